//! Checks the objects that `kubectl kustomize` builds from each overlay in `config`, and from a user's overlay based on it; and that
//! the Helm chart has the same objects.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking; clippy exempts only the test functions themselves"
)]

mod chart;
mod installation;
mod permissions;
mod pods;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize as _;
use serde_json::Value;

/// An overlay in `config/overlays` and its namespace.
struct Overlay {
    name: &'static str,
    namespace: &'static str,
    /// Whether it contains source-controller.
    has_sources: bool,
}

const fn overlay(name: &'static str, namespace: &'static str, has_sources: bool) -> Overlay {
    Overlay {
        name,
        namespace,
        has_sources,
    }
}

const OVERLAYS: [Overlay; 6] = [
    overlay("standalone", "sluice-system", true),
    overlay("with-flux", "flux-system", false),
    overlay("replace-flux", "flux-system", true),
    overlay("single-namespace", "sluice-system", true),
    overlay("multi-tenant", "sluice-system", true),
    overlay("ha", "sluice-system", true),
];

impl Overlay {
    fn objects(&self) -> Vec<Value> {
        build(&config().join("overlays").join(self.name))
    }

    fn setup(&self) -> Vec<Value> {
        build(&config().join("overlays").join(self.name).join("setup"))
    }
}

fn config() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config")
}

/// Returns the objects of a folder of `config`.
fn objects(folder: &str) -> Vec<Value> {
    build(&config().join(folder))
}

/// Builds the objects of a folder.
fn build(folder: &Path) -> Vec<Value> {
    try_build(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// As [`build`]; returns why kustomize refuses the folder.
fn try_build(folder: &Path) -> Result<Vec<Value>, String> {
    let kubectl = sluice_harness::cli::kubectl().unwrap();
    let output = Command::new(kubectl)
        .arg("kustomize")
        .arg(folder)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(documents(&output.stdout))
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Returns the objects in a YAML stream.
fn documents(text: &[u8]) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_slice(text)
        .map(|object| Value::deserialize(object).unwrap())
        .filter(|object| !object.is_null())
        .collect()
}

/// Builds a user's overlay beside `config`.
fn user_overlay(kustomization: &Value) -> Vec<Value> {
    try_user_overlay(kustomization).unwrap()
}

/// As [`user_overlay`]; returns why kustomize refuses it.
fn try_user_overlay(kustomization: &Value) -> Result<Vec<Value>, String> {
    let folder = tempfile::tempdir().unwrap();
    symlink(config(), folder.path().join("config")).unwrap();
    let overlay = folder.path().join("mine");
    fs::create_dir(&overlay).unwrap();
    fs::write(overlay.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    try_build(&overlay)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the elements of a list; none if there is no list.
fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Returns `Kind name` of an object.
fn name(object: &Value) -> String {
    format!("{} {}", text(object, "/kind"), text(object, "/metadata/name"))
}

fn names(objects: &[Value]) -> BTreeSet<String> {
    objects.iter().map(name).collect()
}

fn find<'a>(objects: &'a [Value], wanted: &str) -> &'a Value {
    let found = objects.iter().find(|object| name(object) == wanted);
    found.unwrap_or_else(|| panic!("no {wanted} in {:?}", names(objects)))
}

/// Returns the objects of a kind.
fn of_kind<'a>(objects: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| text(object, "/kind") == kind)
}
