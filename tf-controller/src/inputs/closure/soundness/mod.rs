//! If the plan differs, the digest differs: 500 random trees of modules and files, each with a random edit. A reference evaluator
//! computes the result of a plan; the real CLI confirms it for 100 of the trees and their edits, with `SLUICE_TREES=500` (`make
//! nightly`) for all of them.

mod reference;
mod writer;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reference::PlanResult;
use serde_json::{Map, Value};

use super::*;

const FOLDERS: [&str; 9] = [
    "stacks/s",
    "stacks/s/conf",
    "stacks/s-files",
    "stacks/t",
    "modules/m0-files",
    "modules/m0",
    "modules/m1",
    "modules/m1/deep",
    "shared",
];
/// Modules by number; 0 is the stack. A module calls only those behind it.
const MODULES: [&str; 6] = [
    "stacks/s",
    "stacks/s/conf",
    "modules/m0",
    "modules/m1",
    "modules/m1/deep",
    "modules/far",
];
/// The module that is called by an absolute path, and calls none. In it, `path.module` is the copy that `init` makes.
const FAR: usize = MODULES.len() - 1;
/// Files with values of the stack's variable: later ones have precedence, and the last is not loaded automatically.
const VARIABLE_FILES: [&str; 5] = [
    "terraform.tfvars",
    "terraform.tfvars.json",
    "a.auto.tfvars",
    "b.auto.tfvars.json",
    "c.tfvars",
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Base {
    Here,
    Module,
    Root,
}

/// How a command refers to the file that it prints.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PathForm {
    /// A path in its text.
    Literal(Base),
    /// A path appended to `path.*` without a slash.
    Concatenated,
    /// The same, joined by a function.
    Joined,
    /// A path computed from a named one.
    Replaced,
    /// `..` in its text.
    Parent,
}

/// The syntax of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Native,
    Json,
}

/// One output of a module, and what it reads.
#[derive(Clone, Debug, PartialEq)]
enum Statement {
    File(Base, String),
    Exists(Base, String),
    Base64(Base, String),
    Template(Base, String),
    Set(Base, String),
    /// Its paths are computed.
    Each(String),
    Own(u32),
}

/// An override file.
#[derive(Clone, Debug, PartialEq)]
struct Override {
    form: Form,
    /// Replaces the first output.
    statement: Statement,
    /// Replaces the module of the first call.
    call: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
struct Module {
    form: Form,
    statements: Vec<Statement>,
    calls: Vec<usize>,
    /// Files that the commands of provisioners print.
    commands: Vec<(PathForm, String)>,
    overridden: Option<Override>,
}

/// A repository of modules and other files.
#[derive(Clone, Debug, PartialEq)]
struct Repository {
    modules: Vec<Module>,
    files: BTreeMap<String, String>,
    /// Values of the stack's variable, by file.
    variables: BTreeMap<usize, u32>,
    /// The stack's other variable, a pattern of files, contains `..`.
    pattern: bool,
}

fn path(random: &mut StdRng) -> String {
    let folder = FOLDERS.choose(random).unwrap();
    let name = ["a.txt", "b.txt", "c.tpl"].choose(random).unwrap();
    format!("{folder}/{name}")
}

fn text(random: &mut StdRng, path: &str) -> String {
    let number: u32 = random.random_range(0..1000);
    if path.contains(".tpl") && random.random_bool(0.3) {
        let read = path.replace("c.tpl", "a.txt");
        return format!("{number} ${{x}} ${{file(\"../../{read}\")}}");
    }
    format!("{number}{}", if path.contains(".tpl") { " ${x}" } else { "" })
}

fn base(random: &mut StdRng, number: usize) -> Base {
    match [Base::Here, Base::Module, Base::Root].choose(random).unwrap() {
        Base::Module if number == FAR => Base::Here,
        base => *base,
    }
}

/// Returns the file that a command prints, and how it refers to it.
fn command(random: &mut StdRng, number: usize) -> (PathForm, String) {
    let beside = if MODULES[number] == "modules/m0" {
        "modules/m0-files"
    } else {
        "stacks/s-files"
    };
    match random.random_range(0..8) {
        0 => (PathForm::Concatenated, format!("{beside}/a.txt")),
        1 => (PathForm::Joined, format!("{beside}/a.txt")),
        2 => (PathForm::Replaced, path(random)),
        3 => (PathForm::Parent, "stacks/t/b.txt".to_owned()),
        _ => (PathForm::Literal(base(random, number)), path(random)),
    }
}

fn statement(random: &mut StdRng, number: usize) -> Statement {
    let base = base(random, number);
    let folder = (*FOLDERS.choose(random).unwrap()).to_owned();
    match random.random_range(0..8) {
        0 | 1 => Statement::File(base, path(random)),
        2 => Statement::Exists(base, path(random)),
        3 => Statement::Base64(base, path(random)),
        4 => Statement::Template(base, format!("{folder}/c.tpl")),
        5 => Statement::Set(base, folder),
        6 if random.random_bool(0.3) => Statement::Each(folder),
        _ => Statement::Own(random.random_range(0..1000)),
    }
}

fn form(random: &mut StdRng, json: f64) -> Form {
    if random.random_bool(json) {
        Form::Json
    } else {
        Form::Native
    }
}

fn override_file(random: &mut StdRng, number: usize) -> Override {
    let targets: Vec<_> = (number + 1..FAR).collect();
    Override {
        form: form(random, 0.3),
        statement: statement(random, number),
        call: targets
            .choose(random)
            .copied()
            .filter(|_| random.random_bool(0.5)),
    }
}

fn module(random: &mut StdRng, number: usize) -> Module {
    let form = form(random, 0.2);
    let statements = (0..random.random_range(1..4)).map(|_| statement(random, number));
    let mut statements: Vec<_> = statements.collect();
    let call = |random: &mut StdRng, target| random.random_bool(if target == FAR { 0.06 } else { 0.35 });
    let mut calls: Vec<_> = (number + 1..MODULES.len())
        .filter(|target| call(random, *target))
        .collect();
    if form == Form::Json && random.random_bool(0.6) {
        // Without a path, since a path in JSON widens the closure.
        statements = vec![Statement::Own(random.random_range(0..1000))];
        calls.retain(|target| writer::is_below(MODULES[number], MODULES[*target]));
    }
    let commands = (0..2).filter(|_| random.random_bool(0.08)).collect::<Vec<_>>();
    Module {
        form,
        statements,
        calls,
        commands: commands.iter().map(|_| command(random, number)).collect(),
        overridden: random.random_bool(0.15).then(|| override_file(random, number)),
    }
}

fn repository(random: &mut StdRng) -> Repository {
    let modules = (0..MODULES.len()).map(|number| module(random, number)).collect();
    let mut files = BTreeMap::new();
    for _ in 0..random.random_range(4..14) {
        let path = path(random);
        let text = text(random, &path);
        files.insert(path, text);
    }
    let variables = (0..VARIABLE_FILES.len())
        .filter(|_| random.random_bool(0.2))
        .collect::<Vec<_>>();
    Repository {
        modules,
        files,
        variables: variables
            .into_iter()
            .map(|file| (file, random.random_range(0..1000)))
            .collect(),
        pattern: random.random_bool(0.1),
    }
}

fn edit(random: &mut StdRng, repository: &Repository) -> Repository {
    let mut edited = repository.clone();
    let existing = edited.files.keys().cloned().collect::<Vec<_>>();
    let number = random.random_range(0..MODULES.len());
    match random.random_range(0..10) {
        0 => drop(edited.files.remove(existing.choose(random).unwrap())),
        1..=3 => {
            let path = existing.choose(random).unwrap();
            let text = text(random, path);
            edited.files.insert(path.clone(), text);
        }
        4 => {
            let path = path(random);
            let text = text(random, &path);
            edited.files.insert(path, text);
        }
        5 => edited.modules[number].statements[0] = statement(random, number),
        6 => edited.modules[number].overridden = Some(override_file(random, number)),
        7 => edited.modules[number].commands = vec![command(random, number)],
        8 => edited.pattern = !edited.pattern,
        _ => {
            let file = random.random_range(0..VARIABLE_FILES.len());
            edited.variables.insert(file, random.random_range(0..1000));
        }
    }
    edited
}

fn closure(repository: &Repository, root: &Path) -> Closure {
    repository.write(root);
    read(&Tree::read(root).unwrap(), MODULES[0], &[]).unwrap()
}

#[test]
fn different_plans_have_different_digests() {
    let (mut differ, mut narrow, mut unchanged) = (0, 0, 0);
    for seed in 0..500 {
        let mut random = StdRng::seed_from_u64(seed);
        let before = repository(&mut random);
        let after = edit(&mut random, &before);
        // One directory for both: the configuration contains the absolute path of the far module.
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (closure(&before, root.path()), closure(&after, root.path()));
        let same = old.digest == new.digest;
        if before.plan_result() != after.plan_result() {
            differ += 1;
            assert!(
                !same,
                "seed {seed}: the plan differs and the digest does not\n{before:#?}\n{after:#?}"
            );
        }
        narrow += usize::from(old.wide.is_none());
        unchanged += usize::from(same && before != after);
    }
    // The assertions above also hold if everything always counts, or nothing ever differs.
    assert!(
        differ > 75 && narrow > 100 && unchanged > 30,
        "{differ} differ, {narrow} narrow, {unchanged} unchanged"
    );
}

#[test]
fn different_results_of_the_real_cli_have_different_digests() {
    let cli = sluice_harness::cli::terraform().unwrap();
    let seeds = cli_trees();
    let part_of = |part: u64| {
        (part..seeds)
            .step_by(4)
            .filter(|seed| compare(&cli, *seed))
            .count()
    };
    let differ: usize = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..4).map(|part| scope.spawn(move || part_of(part))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).sum()
    });
    println!("soundness: {seeds} trees and their edits by the real CLI, {differ} differ");
    assert!(differ * 10 > usize::try_from(seeds).unwrap(), "{differ} differ");
}

/// Returns the number of trees that the real CLI applies, each before and after its edit; `SLUICE_TREES=500` selects all.
fn cli_trees() -> u64 {
    let trees = std::env::var("SLUICE_TREES").ok();
    trees.map_or(100, |number| number.parse().unwrap())
}

/// Applies the tree of a seed before and after its edit, compares both with the reference, and the digests if the results differ.
/// Returns whether they differ.
fn compare(cli: &Path, seed: u64) -> bool {
    let mut random = StdRng::seed_from_u64(seed);
    let before = repository(&mut random);
    let after = edit(&mut random, &before);
    let root = tempfile::tempdir().unwrap();
    let stack = root.path().join(MODULES[0]);
    let [(old, before), (new, after)] = [before, after].map(|repository| {
        let closure = closure(&repository, root.path());
        apply(cli, &stack, &format!("seed {seed}: {repository:#?}"));
        let result = applied(&stack);
        assert_eq!(result, repository.plan_result(), "seed {seed}: {repository:#?}");
        (closure.digest, result)
    });
    assert!(
        before == after || old != new,
        "seed {seed}: the plan differs and the digest does not"
    );
    before != after
}

fn apply(cli: &Path, stack: &Path, what: &str) {
    for arguments in [
        &["init", "-input=false"][..],
        &["apply", "-auto-approve", "-input=false"],
    ] {
        let mut command = std::process::Command::new(cli);
        command.args(arguments).current_dir(stack);
        let output = command.env("CHECKPOINT_DISABLE", "1").output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {errors}");
    }
}

/// Returns the result of the CLI: the outputs in its state, and the files that commands wrote.
fn applied(stack: &Path) -> PlanResult {
    let state: Value = serde_json::from_slice(&fs::read(stack.join("terraform.tfstate")).unwrap()).unwrap();
    let outputs = state["outputs"].as_object().unwrap().iter();
    let outputs: Map<_, _> = outputs
        .map(|(name, output)| (name.clone(), output["value"].clone()))
        .collect();
    let names = fs::read_dir(stack)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let written = names.filter(|name| name.starts_with("made-"));
    PlanResult {
        outputs: outputs.into(),
        commands: written
            .map(|name| (name.clone(), fs::read_to_string(stack.join(name)).unwrap()))
            .collect(),
    }
}
