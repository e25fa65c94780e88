//! Whenever a plan would differ, the digest differs: 500 random trees of modules and files, each with a random edit. What a
//! plan of a tree yields is told by a reference evaluator, which knows what it wrote; the real CLI is asked for
//! 100 of the trees and their edits, and for all of them with `SLUICE_TREES=500` (`make nightly`), so that the evaluator is no
//! invention.

mod reference;
mod written;

use super::*;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use reference::Yield;
use serde_json::{Map, Value};

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
/// The module that is called by its address on the machine, and calls none. What it names by `path.module` would be sought
/// beside the copy that `init` makes.
const FAR: usize = MODULES.len() - 1;
/// Files with values of the stack's variable: what stands behind wins, and the last is not read by itself.
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

/// How a command is given the file that it prints.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// By a path in its text.
    Plain(Base),
    /// By a path behind `path.*`, without a slash.
    Glued,
    /// The same, put together by a function.
    Joined,
    /// By a path that is made of another one, which goes by a name.
    CutUp,
    /// By a step up in its text.
    StepsUp,
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

/// What an override file says.
#[derive(Clone, Debug, PartialEq)]
struct Override {
    form: Form,
    /// The first output is another.
    statement: Statement,
    /// The first call is of another module.
    call: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
struct Module {
    form: Form,
    statements: Vec<Statement>,
    calls: Vec<usize>,
    /// Files that the commands of provisioners print.
    commands: Vec<(Way, String)>,
    overridden: Option<Override>,
}

/// A repository: what modules say, and what else lies in it.
#[derive(Clone, Debug, PartialEq)]
struct Repository {
    modules: Vec<Module>,
    files: BTreeMap<String, String>,
    /// Values of the stack's variable, by file.
    variables: BTreeMap<usize, u32>,
    /// The stack's other variable, a pattern of files, leads out of the directory.
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

/// What a command prints, and how.
fn command(random: &mut StdRng, number: usize) -> (Way, String) {
    let beside = if MODULES[number] == "modules/m0" {
        "modules/m0-files"
    } else {
        "stacks/s-files"
    };
    match random.random_range(0..8) {
        0 => (Way::Glued, format!("{beside}/a.txt")),
        1 => (Way::Joined, format!("{beside}/a.txt")),
        2 => (Way::CutUp, path(random)),
        3 => (Way::StepsUp, "stacks/t/b.txt".to_owned()),
        _ => (Way::Plain(base(random, number)), path(random)),
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

fn overriding(random: &mut StdRng, number: usize) -> Override {
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
        // Without a path, so that its syntax alone does not make everything count.
        statements = vec![Statement::Own(random.random_range(0..1000))];
        calls.retain(|target| written::is_below(MODULES[number], MODULES[*target]));
    }
    let commands = (0..2).filter(|_| random.random_bool(0.08)).collect::<Vec<_>>();
    Module {
        form,
        statements,
        calls,
        commands: commands.iter().map(|_| command(random, number)).collect(),
        overridden: random.random_bool(0.15).then(|| overriding(random, number)),
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
        6 => edited.modules[number].overridden = Some(overriding(random, number)),
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
fn whenever_a_plan_would_differ_the_digest_differs() {
    let (mut differ, mut narrow, mut quiet) = (0, 0, 0);
    for seed in 0..500 {
        let mut random = StdRng::seed_from_u64(seed);
        let before = repository(&mut random);
        let after = edit(&mut random, &before);
        // One place for both: the address of the far module is a part of what is written.
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (closure(&before, root.path()), closure(&after, root.path()));
        let same = old.digest == new.digest;
        if before.yields() != after.yields() {
            differ += 1;
            assert!(
                !same,
                "seed {seed}: the plan differs and the digest does not\n{before:#?}\n{after:#?}"
            );
        }
        narrow += usize::from(old.wide.is_none());
        quiet += usize::from(same && before != after);
    }
    // The test would pass as well if everything counted always, or nothing ever differed.
    assert!(
        differ > 75 && narrow > 100 && quiet > 30,
        "{differ} differ, {narrow} narrow, {quiet} quiet"
    );
}

#[test]
fn whenever_the_real_cli_yields_something_else_the_digest_differs() {
    let cli = sluice_harness::cli::terraform().unwrap();
    let seeds = seen_by_the_cli();
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

/// Trees that the real CLI is asked about, each before and after its edit: `SLUICE_TREES=500` asks it about all of them.
fn seen_by_the_cli() -> u64 {
    let wanted = std::env::var("SLUICE_TREES").ok();
    wanted.map_or(100, |number| number.parse().unwrap())
}

/// Applies the tree of a seed, and the same after its edit: the reference knows what comes of both, and if that is not the
/// same, neither are the digests. Tells whether it was another.
fn compare(cli: &Path, seed: u64) -> bool {
    let mut random = StdRng::seed_from_u64(seed);
    let before = repository(&mut random);
    let after = edit(&mut random, &before);
    let root = tempfile::tempdir().unwrap();
    let stack = root.path().join(MODULES[0]);
    let [(old, was), (new, is)] = [before, after].map(|repository| {
        let closure = closure(&repository, root.path());
        apply(cli, &stack, &format!("seed {seed}: {repository:#?}"));
        let yields = applied(&stack);
        assert_eq!(yields, repository.yields(), "seed {seed}: {repository:#?}");
        (closure.digest, yields)
    });
    assert!(
        was == is || old != new,
        "seed {seed}: the plan differs and the digest does not"
    );
    was != is
}

fn apply(cli: &Path, stack: &Path, what: &str) {
    for arguments in [
        &["init", "-input=false"][..],
        &["apply", "-auto-approve", "-input=false"],
    ] {
        let mut command = std::process::Command::new(cli);
        command.args(arguments).current_dir(stack);
        let done = command.env("CHECKPOINT_DISABLE", "1").output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{what}: {said}");
    }
}

/// What the CLI left behind: outputs in its state, and the files that commands wrote.
fn applied(stack: &Path) -> Yield {
    let state: Value = serde_json::from_slice(&fs::read(stack.join("terraform.tfstate")).unwrap()).unwrap();
    let outputs = state["outputs"].as_object().unwrap().iter();
    let outputs: Map<_, _> = outputs
        .map(|(name, output)| (name.clone(), output["value"].clone()))
        .collect();
    let names = fs::read_dir(stack)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let made = names.filter(|name| name.starts_with("made-"));
    Yield {
        outputs: outputs.into(),
        commands: made
            .map(|name| (name.clone(), fs::read_to_string(stack.join(name)).unwrap()))
            .collect(),
    }
}
