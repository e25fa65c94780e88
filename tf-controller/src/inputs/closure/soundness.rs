//! Whenever a plan would differ, the digest differs: 500 random trees of modules and files, each with a random edit. What a
//! plan of a tree yields is told by a reference evaluator, which knows what it wrote; the real CLI is asked for some of
//! the trees, so that the evaluator is no invention.

use super::*;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

const FOLDERS: [&str; 7] = [
    "stacks/s",
    "stacks/s/conf",
    "stacks/t",
    "modules/m0",
    "modules/m1",
    "modules/m1/deep",
    "shared",
];
/// Modules by number; 0 is the stack. A module calls only those behind it.
const MODULES: [&str; 4] = ["stacks/s", "modules/m0", "modules/m1", "modules/m1/deep"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Base {
    Here,
    Module,
    Root,
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

/// A repository: what modules say, and what else lies in it.
#[derive(Clone, Debug, PartialEq)]
struct Repository {
    modules: Vec<(Vec<Statement>, Vec<usize>)>,
    files: BTreeMap<String, String>,
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

fn statement(random: &mut StdRng) -> Statement {
    let base = *[Base::Here, Base::Module, Base::Root].choose(random).unwrap();
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

fn repository(random: &mut StdRng) -> Repository {
    let modules = (0..MODULES.len()).map(|number| {
        let statements = (0..random.random_range(1..4))
            .map(|_| statement(random))
            .collect();
        let calls = (number + 1..MODULES.len())
            .filter(|_| random.random_bool(0.4))
            .collect();
        (statements, calls)
    });
    let modules = modules.collect();
    let mut files = BTreeMap::new();
    for _ in 0..random.random_range(4..14) {
        let path = path(random);
        let text = text(random, &path);
        files.insert(path, text);
    }
    Repository { modules, files }
}

fn edit(random: &mut StdRng, repository: &Repository) -> Repository {
    let mut edited = repository.clone();
    let existing = edited.files.keys().cloned().collect::<Vec<_>>();
    match random.random_range(0..5) {
        0 => drop(edited.files.remove(existing.choose(random).unwrap())),
        1 | 2 => {
            let path = existing.choose(random).unwrap();
            let text = text(random, path);
            edited.files.insert(path.clone(), text);
        }
        3 => {
            let path = path(random);
            let text = text(random, &path);
            edited.files.insert(path, text);
        }
        _ => {
            let module = random.random_range(0..MODULES.len());
            edited.modules[module].0[0] = statement(random);
        }
    }
    edited
}

/// `target` as seen from `base`: up to the top and down again.
fn relative(base: &str, target: &str) -> String {
    format!("{}{target}", "../".repeat(base.split('/').count()))
}

fn written(base: Base, module: &str, target: &str) -> String {
    match base {
        Base::Here => relative(MODULES[0], target),
        Base::Module => format!("${{path.module}}/{}", relative(module, target)),
        Base::Root => format!("${{path.root}}/{}", relative(MODULES[0], target)),
    }
}

fn expression(statement: &Statement, module: &str) -> String {
    let at = |base: &Base, target: &str| written(*base, module, target);
    match statement {
        Statement::File(base, target) => format!("try(file(\"{}\"), \"missing\")", at(base, target)),
        Statement::Exists(base, target) => format!("fileexists(\"{}\")", at(base, target)),
        Statement::Base64(base, target) => format!("try(filebase64(\"{}\"), \"missing\")", at(base, target)),
        Statement::Template(base, target) => {
            format!(
                "try(templatefile(\"{}\", {{ x = \"X\" }}), \"missing\")",
                at(base, target)
            )
        }
        Statement::Set(base, folder) => format!("join(\",\", fileset(\"{}\", \"*.txt\"))", at(base, folder)),
        Statement::Each(folder) => {
            let folder = relative(MODULES[0], folder);
            format!("join(\",\", [for f in fileset(\"{folder}\", \"*.txt\") : file(\"{folder}/${{f}}\")])")
        }
        Statement::Own(number) => format!("\"{number}\""),
    }
}

impl Repository {
    fn write(&self, root: &Path) {
        for folder in FOLDERS {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for (path, text) in &self.files {
            fs::write(root.join(path), text).unwrap();
        }
        for (module, (statements, calls)) in MODULES.iter().zip(&self.modules) {
            let mut text = String::new();
            for (number, statement) in statements.iter().enumerate() {
                let value = expression(statement, module);
                writeln!(text, "output \"o{number}\" {{\n  value = {value}\n}}").unwrap();
            }
            for call in calls {
                let source = relative(module, MODULES[*call]);
                writeln!(text, "module \"m{call}\" {{\n  source = \"{source}\"\n}}").unwrap();
                writeln!(text, "output \"m{call}\" {{\n  value = module.m{call}\n}}").unwrap();
            }
            fs::write(root.join(module).join("main.tf"), text).unwrap();
        }
    }

    /// What a plan yields for a module.
    fn outputs(&self, module: usize) -> Value {
        let (statements, calls) = &self.modules[module];
        let mut outputs = Map::new();
        for (number, statement) in statements.iter().enumerate() {
            outputs.insert(format!("o{number}"), self.value(statement));
        }
        for call in calls {
            outputs.insert(format!("m{call}"), self.outputs(*call));
        }
        outputs.into()
    }

    fn value(&self, statement: &Statement) -> Value {
        let content = |path: &String| self.files.get(path).cloned();
        let missing = || "missing".to_owned();
        match statement {
            Statement::File(_, path) => content(path).unwrap_or_else(missing).into(),
            Statement::Exists(_, path) => self.files.contains_key(path).into(),
            Statement::Base64(_, path) => content(path)
                .map_or_else(missing, |text| base64(text.as_bytes()))
                .into(),
            Statement::Template(_, path) => content(path)
                .and_then(|text| self.rendered(&text))
                .unwrap_or_else(missing)
                .into(),
            Statement::Set(_, folder) => {
                let names: Vec<_> = self
                    .texts(folder)
                    .map(|(path, _)| path.rsplit('/').next().unwrap())
                    .collect();
                names.join(",").into()
            }
            Statement::Each(folder) => self
                .texts(folder)
                .map(|(_, text)| text.as_str())
                .collect::<Vec<_>>()
                .join(",")
                .into(),
            Statement::Own(number) => number.to_string().into(),
        }
    }

    fn texts(&self, folder: &str) -> impl Iterator<Item = (&String, &String)> {
        let inside = move |path: &str| {
            path.rsplit_once('/')
                .is_some_and(|(parent, name)| parent == folder && name.contains(".txt"))
        };
        self.files.iter().filter(move |(path, _)| inside(path))
    }

    fn rendered(&self, template: &str) -> Option<String> {
        let text = template.replace("${x}", "X");
        let Some((front, call)) = text.split_once("${file(\"../../") else {
            return Some(text);
        };
        Some(format!("{front}{}", self.files.get(call.split_once('"')?.0)?))
    }

    fn closure(&self) -> Closure {
        let folder = tempfile::tempdir().unwrap();
        self.write(folder.path());
        read(&Tree::read(folder.path()).unwrap(), MODULES[0], &[]).unwrap()
    }
}

fn base64(bytes: &[u8]) -> String {
    let text = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap();
    text.as_str().unwrap().to_owned()
}

#[test]
fn whenever_a_plan_would_differ_the_digest_differs() {
    let (mut differ, mut narrow, mut quiet) = (0, 0, 0);
    for seed in 0..500 {
        let mut random = StdRng::seed_from_u64(seed);
        let before = repository(&mut random);
        let after = edit(&mut random, &before);
        let (old, new) = (before.closure(), after.closure());
        let same = old.digest == new.digest;
        if before.outputs(0) != after.outputs(0) {
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
fn the_reference_yields_what_the_real_cli_yields() {
    let cli = sluice_harness::cli::terraform().unwrap();
    for seed in [1, 2, 3, 5, 8, 13] {
        let folder = tempfile::tempdir().unwrap();
        let repository = repository(&mut StdRng::seed_from_u64(seed));
        repository.write(folder.path());
        let call = |arguments: &[&str]| {
            let mut command = std::process::Command::new(&cli);
            command
                .args(arguments)
                .current_dir(folder.path().join(MODULES[0]));
            let done = command.env("CHECKPOINT_DISABLE", "1").output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            done.stdout
        };
        call(&["init", "-input=false"]);
        call(&["apply", "-auto-approve", "-input=false"]);
        let outputs: Map<String, Value> = serde_json::from_slice(&call(&["output", "-json"])).unwrap();
        let outputs: Map<_, _> = outputs
            .into_iter()
            .map(|(name, output)| (name, output["value"].clone()))
            .collect();
        assert_eq!(json!(outputs), repository.outputs(0), "seed {seed}");
    }
}
