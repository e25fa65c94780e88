//! Checks the dependencies between crates: their order is the architecture, which an import must not break.

#![expect(
    clippy::unwrap_used,
    reason = "tests fail by panicking; clippy exempts only the test functions themselves"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// The crates of this workspace that each crate may import. Tests may also use the harness and the embedded API.
const ALLOWED_IMPORTS: [(&str, &[&str]); 11] = [
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
        ],
    ),
    ("sluice-harness", &[]),
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
            "sluice-harness",
        ],
    ),
];

/// Crates that every crate may have in `dev-dependencies`.
const TEST_IMPORTS: [&str; 2] = ["sluice-harness", "sluice-embedded"];

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
