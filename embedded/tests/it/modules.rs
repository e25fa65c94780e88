//! The imports of the crate: its modules form no large cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use regex::Regex;

/// Maximum number of modules that import each other, directly or not.
const MAX_CYCLE: usize = 4;

/// Collects the code of each module below `dir`, without unit tests.
fn collect(dir: &Path, module: &str, modules: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let child = if matches!(name, "lib" | "mod") {
            module.to_owned()
        } else {
            format!("{module}::{name}")
        };
        if path.is_dir() {
            collect(&path, &child, modules);
        } else {
            let code = fs::read_to_string(&path).unwrap();
            let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let lines = code
                .lines()
                .map(|line| line.split("//").next().unwrap_or_default());
            modules.insert(child, lines.collect::<Vec<_>>().join("\n"));
        }
    }
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

/// Returns the modules that a module names.
fn imports(module: &str, code: &str, modules: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut paths = Vec::new();
    for tree in Regex::new(r"\buse ([^;]*);").unwrap().captures_iter(code) {
        expand("", &tree[1], &mut paths);
    }
    let inline = Regex::new(r"\b[a-z_]+(::\w+)+").unwrap();
    paths.extend(inline.find_iter(code).map(|path| path.as_str().to_owned()));
    let resolve = |path: String| {
        let mut target = module.to_owned();
        for part in path.split("::") {
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
        (target != module).then_some(target)
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

#[test]
fn modules_form_no_large_cycles() {
    let mut modules = BTreeMap::new();
    collect(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        "crate",
        &mut modules,
    );
    assert!(modules.len() > 60, "{modules:?}");
    let test_module = Regex::new(r"#\[cfg\(test\)\]\n(?:pub\S* )?mod (\w+);").unwrap();
    let test_modules: Vec<String> = modules
        .iter()
        .flat_map(|(module, code)| {
            let names = test_module.captures_iter(code);
            names.map(move |name| format!("{module}::{}", &name[1]))
        })
        .collect();
    modules.retain(|module, _| !test_modules.contains(module));
    let graph: BTreeMap<&str, BTreeSet<String>> = modules
        .iter()
        .map(|(module, code)| (module.as_str(), imports(module, code, &modules)))
        .collect();
    let reachable: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|module| (*module, reachable(module, &graph)))
        .collect();
    for (module, targets) in &reachable {
        let cycle: Vec<_> = targets
            .iter()
            .filter(|target| reachable[**target].contains(module))
            .collect();
        assert!(cycle.len() <= MAX_CYCLE, "import each other: {cycle:?}");
    }
}
