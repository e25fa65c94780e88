//! Who may import whom. The order of the crates is the architecture; this keeps a convenient import from bending it.

#![expect(
    clippy::unwrap_used,
    reason = "a test says what failed by failing; clippy exempts only the test functions themselves"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Each crate with the crates of this workspace that it may import. Tests may use the harness and the embedded API.
const ARROWS: [(&str, &[&str]); 9] = [
    ("sluice-api", &[]),
    ("sluice-runtime", &["sluice-api"]),
    ("sluice-embedded", &[]),
    ("sluice-tf-runner", &["sluice-api", "sluice-runtime"]),
    ("sluice-source-controller", &["sluice-api", "sluice-runtime"]),
    (
        "sluice-tf-controller",
        &["sluice-api", "sluice-runtime", "sluice-tf-runner"],
    ),
    (
        "sluice",
        &[
            "sluice-api",
            "sluice-runtime",
            "sluice-embedded",
            "sluice-tf-runner",
            "sluice-source-controller",
            "sluice-tf-controller",
        ],
    ),
    ("sluice-harness", &[]),
    (
        "sluice-tests",
        &[
            "sluice-api",
            "sluice-runtime",
            "sluice-embedded",
            "sluice-tf-runner",
            "sluice-source-controller",
            "sluice-tf-controller",
            "sluice",
            "sluice-harness",
        ],
    ),
];

/// What `dev-dependencies` may add, for every crate.
const IN_TESTS: [&str; 2] = ["sluice-harness", "sluice-embedded"];

fn metadata(further: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(further)
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
fn crates_import_only_to_their_left() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> = ARROWS
        .iter()
        .map(|(name, arrows)| (*name, arrows.iter().copied().collect()))
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
        "a crate came or went: say here what it may import"
    );
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let imported = dependency["name"].as_str().unwrap();
            let in_tests = dependency["kind"] == "dev" && IN_TESTS.contains(&imported);
            if names.contains(imported) && !allowed[name].contains(imported) && !in_tests {
                wrong.push(format!("{name} -> {imported} ({})", dependency["kind"]));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that point back: {wrong:?}");
}

/// A version of the compiler: `1.90` is `1.90.0`.
fn compiler(text: &str) -> Vec<u64> {
    let mut parts: Vec<u64> = text.split('.').map(|part| part.parse().unwrap()).collect();
    parts.resize(3, 0);
    parts
}

#[test]
fn the_compiler_that_is_named_builds_all_dependencies() {
    // What is built here, and no more: the rest may not have been downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = metadata(&["--filter-platform", &platform]);
    let packages = metadata["packages"].as_array().unwrap();
    let needed = |package: &Value| package["rust_version"].as_str().map(compiler);
    let own = packages.iter().filter(|package| package["source"].is_null());
    let own: BTreeSet<_> = own.map(|package| needed(package).unwrap()).collect();
    assert_eq!(own.len(), 1, "one for the whole workspace: {own:?}");
    let lowest = own.first().unwrap();
    let newer: Vec<_> = packages
        .iter()
        .filter(|package| needed(package).is_some_and(|needed| needed > *lowest))
        .map(|package| format!("{} {}", package["name"], package["rust_version"]))
        .collect();
    assert!(newer.is_empty(), "need more than {lowest:?}: {newer:?}");
    let root = sluice_harness::gobuild::workspace();
    let toolchain = std::fs::read_to_string(root.join("rust-toolchain.toml")).unwrap();
    let channel = toolchain
        .split("channel = \"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    assert!(compiler(channel.unwrap()) >= *lowest, "{channel:?}");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let said = format!("Rust {}.{}", lowest[0], lowest[1]);
    assert!(readme.contains(&said), "the README does not say {said}");
}
