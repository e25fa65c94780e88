//! Checks the imports of crates and of files: their order is the architecture, which an import must not break.

#![expect(
    clippy::unwrap_used,
    reason = "tests fail by panicking; clippy exempts only the test functions themselves"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// The crates of this workspace that each crate may import. Tests may also use the harness and the embedded API.
const ALLOWED_IMPORTS: [(&str, &[&str]); 14] = [
    ("sluice-api", &[]),
    ("sluice-runtime", &["sluice-api"]),
    ("sluice-embedded", &[]),
    ("sluice-git-pack", &[]),
    ("sluice-tf-core", &["sluice-api", "sluice-runtime"]),
    (
        "sluice-tf-runner",
        &["sluice-api", "sluice-runtime", "sluice-tf-core"],
    ),
    (
        "sluice-source-controller",
        &["sluice-api", "sluice-runtime", "sluice-git-pack"],
    ),
    (
        "sluice-tf-controller",
        &["sluice-api", "sluice-runtime", "sluice-tf-core"],
    ),
    ("sluice-repo-controller", &["sluice-api", "sluice-runtime"]),
    ("sluice-cli", &["sluice-api", "sluice-runtime", "sluice-tf-core"]),
    (
        "sluice",
        &[
            "sluice-api",
            "sluice-runtime",
            "sluice-embedded",
            "sluice-tf-core",
            "sluice-tf-runner",
            "sluice-source-controller",
            "sluice-tf-controller",
            "sluice-repo-controller",
            "sluice-cli",
        ],
    ),
    ("sluice-images", &[]),
    ("sluice-harness", &["sluice-images"]),
    (
        "sluice-tests",
        &[
            "sluice-api",
            "sluice-runtime",
            "sluice-embedded",
            "sluice-tf-core",
            "sluice-tf-runner",
            "sluice-source-controller",
            "sluice-tf-controller",
            "sluice",
            "sluice-images",
            "sluice-harness",
        ],
    ),
];

/// Crates that every crate may have in `dev-dependencies`.
const TEST_IMPORTS: [&str; 2] = ["sluice-harness", "sluice-embedded"];

/// Maximum number of files of a crate that import each other, directly or not.
const MAX_CYCLE: usize = 4;

fn metadata(arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(arguments)
        .current_dir(sluice_harness::gobuild::workspace())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn crates_import_only_allowed_crates() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> = ALLOWED_IMPORTS
        .iter()
        .map(|(name, imports)| (*name, imports.iter().copied().collect()))
        .collect();
    let metadata = metadata(&["--no-deps", "--offline"]);
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        allowed.keys().copied().collect(),
        "a crate was added or removed: update its allowed imports here"
    );
    let mut forbidden = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let imported = dependency["name"].as_str().unwrap();
            let is_test_only = TEST_IMPORTS.contains(&imported);
            let in_tests = dependency["kind"] == "dev" && is_test_only;
            if names.contains(imported) && !allowed[name].contains(imported) && !in_tests {
                forbidden.push(format!("{name} -> {imported} ({})", dependency["kind"]));
            }
        }
    }
    assert!(forbidden.is_empty(), "forbidden imports: {forbidden:?}");
}

/// Parses a compiler version: `1.90` is `1.90.0`.
fn compiler_version(text: &str) -> Vec<u64> {
    let mut parts: Vec<u64> = text.split('.').map(|part| part.parse().unwrap()).collect();
    parts.resize(3, 0);
    parts
}

#[test]
fn the_minimum_compiler_version_builds_all_dependencies() {
    // Only packages for this platform: the others may not be downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = metadata(&["--filter-platform", &platform]);
    let packages = metadata["packages"].as_array().unwrap();
    let needed = |package: &Value| package["rust_version"].as_str().map(compiler_version);
    let own = packages.iter().filter(|package| package["source"].is_null());
    let own: BTreeSet<_> = own.map(|package| needed(package).unwrap()).collect();
    assert_eq!(own.len(), 1, "the workspace must have one version: {own:?}");
    let lowest = own.first().unwrap();
    let newer: Vec<_> = packages
        .iter()
        .filter(|package| needed(package).is_some_and(|needed| needed > *lowest))
        .map(|package| format!("{} {}", package["name"], package["rust_version"]))
        .collect();
    assert!(newer.is_empty(), "{lowest:?} is too old for: {newer:?}");
    let root = sluice_harness::gobuild::workspace();
    let toolchain = std::fs::read_to_string(root.join("rust-toolchain.toml")).unwrap();
    let channel = toolchain
        .split("channel = \"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    assert!(compiler_version(channel.unwrap()) >= *lowest, "{channel:?}");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let expected = format!("Rust {}.{}", lowest[0], lowest[1]);
    assert!(
        readme.contains(&expected),
        "the README does not mention {expected}"
    );
}

/// Adds the code of each file below `dir`, without unit tests, under the path of its module.
fn collect(dir: &Path, module: &str, modules: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let child = if matches!(name, "lib" | "main" | "mod") {
            module.to_owned()
        } else {
            format!("{module}::{name}")
        };
        if path.is_dir() {
            collect(&path, &child, modules);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let code = fs::read_to_string(&path).unwrap();
            let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let lines = code
                .lines()
                .map(|line| line.split("//").next().unwrap_or_default());
            // A crate may have both `lib.rs` and `main.rs`.
            let of_module = modules.entry(child).or_default();
            of_module.extend(lines.flat_map(|line| [line, "\n"]));
        }
    }
}

/// Removes the modules that only tests use.
fn remove_tests(modules: &mut BTreeMap<String, String>) {
    let declaration = Regex::new(r"#\[cfg\(test\)\]\n(?:pub\S* )?mod (\w+);").unwrap();
    let tests: Vec<String> = modules
        .iter()
        .flat_map(|(module, code)| {
            let names = declaration.captures_iter(code);
            names.map(move |name| format!("{module}::{}", &name[1]))
        })
        .collect();
    modules.retain(|module, _| !tests.iter().any(|test| module == test || is_below(module, test)));
}

/// Whether a module lies in the folder of another.
fn is_below(module: &str, folder: &str) -> bool {
    let rest = module.strip_prefix(folder);
    rest.is_some_and(|rest| rest.starts_with("::"))
}

/// Returns the paths of a use tree.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        if !tree.trim().is_empty() {
            paths.push(format!("{prefix}{}", tree.trim()));
        }
        return;
    };
    let (prefix, mut depth, mut start) = (format!("{prefix}{}", head.trim()), 0, 0);
    for (at, character) in rest.char_indices() {
        match character {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                expand(&prefix, &rest[start..at], paths);
                start = at + 1;
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// Returns the modules that a module names, except those in its own folder: `mod.rs` may order the files of its folder, which
/// may import its types.
fn imports(module: &str, code: &str, modules: &BTreeMap<String, String>) -> BTreeSet<String> {
    static DECLARATION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\buse ([^;]*);").unwrap());
    static INLINE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b[a-z_]\w*(::\w+)+").unwrap());
    let mut paths = Vec::new();
    for tree in DECLARATION.captures_iter(code) {
        expand("", &tree[1], &mut paths);
    }
    let code = DECLARATION.replace_all(code, "");
    paths.extend(INLINE.find_iter(&code).map(|path| path.as_str().to_owned()));
    let resolve = |path: String| {
        let mut target = module.to_owned();
        for part in path.split(" as ").next()?.split("::") {
            match part {
                "crate" => "crate".clone_into(&mut target),
                "super" => target.truncate(target.rfind("::")?),
                "self" => {}
                part if modules.contains_key(&format!("{target}::{part}")) => {
                    target = format!("{target}::{part}");
                }
                _ => break,
            }
        }
        (target != module && !is_below(&target, module)).then_some(target)
    };
    paths.into_iter().filter_map(resolve).collect()
}

/// Returns the modules that a module imports, directly or not.
fn reachable<'a>(from: &'a str, graph: &'a BTreeMap<&str, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let (mut found, mut pending) = (BTreeSet::new(), vec![from]);
    while let Some(module) = pending.pop() {
        let new = graph[module].iter().filter(|next| found.insert(next.as_str()));
        pending.extend(new.map(String::as_str));
    }
    found
}

/// Returns the modules of the largest cycle.
fn largest_cycle(modules: &BTreeMap<String, String>) -> Vec<String> {
    let graph: BTreeMap<&str, BTreeSet<String>> = modules
        .iter()
        .map(|(module, code)| (module.as_str(), imports(module, code, modules)))
        .collect();
    let reachable: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|module| (*module, reachable(module, &graph)))
        .collect();
    let cycles = reachable.iter().map(|(module, targets)| {
        let back = |target: &&&str| reachable[**target].contains(module);
        let cycle = targets.iter().filter(back);
        cycle.map(|module| (*module).to_owned()).collect::<Vec<_>>()
    });
    cycles.max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn modules_form_no_large_cycles() {
    let metadata = metadata(&["--no-deps", "--offline"]);
    let mut count = 0;
    for package in metadata["packages"].as_array().unwrap() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let mut modules = BTreeMap::new();
        collect(&manifest.with_file_name("src"), "crate", &mut modules);
        remove_tests(&mut modules);
        count += modules.len();
        let cycle = largest_cycle(&modules);
        let name = &package["name"];
        assert!(cycle.len() <= MAX_CYCLE, "{name}: import each other: {cycle:?}");
    }
    assert!(count > 400, "only {count} files were found");
}

#[test]
fn a_back_edge_forms_a_cycle() {
    let cycle = |last: &str| {
        let modules = [
            ("crate", "mod a;\nmod b;\nmod c;\npub use a::A;"),
            ("crate::a", "use crate::{b as other, c};\nmod part;\npart::run();"),
            (
                "crate::a::part",
                "use crate::a::A;\nuse super::super::b::{self, B};",
            ),
            ("crate::b", "fn f() { crate::c::run(); }"),
            ("crate::c", last),
        ];
        let modules = modules.map(|(module, code)| (module.to_owned(), code.to_owned()));
        largest_cycle(&modules.into()).join(" ")
    };
    assert_eq!(cycle("use std::fs;"), "");
    assert_eq!(cycle("use crate::b::{B};"), "crate::b crate::c");
    assert_eq!(
        cycle("fn f() { crate::a::part::f(); }"),
        "crate::a crate::a::part crate::b crate::c"
    );
}
