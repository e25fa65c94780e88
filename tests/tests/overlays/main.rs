//! Checks the objects that `kubectl kustomize` builds from each overlay in `config`, and from a user's overlay based on it; and that
//! the Helm chart has the same objects.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking; clippy exempts only the test functions themselves"
)]

mod chart;
mod combinations;
mod installation;
mod permissions;
mod pods;
mod rendered;
mod repo_controller;
mod user_patches;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize as _;
use serde_json::Value;
use tempfile::TempDir;

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
    let output = kustomize(folder);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", folder.display());
    documents(&output.stdout)
}

fn kustomize(folder: &Path) -> Output {
    let kubectl = sluice_harness::cli::kubectl().unwrap();
    Command::new(kubectl)
        .arg("kustomize")
        .arg(folder)
        .output()
        .unwrap()
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
    build(&write_user_overlay(kustomization).path().join("mine"))
}

/// Returns why kustomize refuses a user's overlay; empty if it builds it.
fn refusal_of_user_overlay(kustomization: &Value) -> String {
    let output = kustomize(&write_user_overlay(kustomization).path().join("mine"));
    if output.status.success() {
        return String::new();
    }
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns a folder with `config` and, in `mine`, a user's overlay.
fn write_user_overlay(kustomization: &Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    symlink(config(), folder.path().join("config")).unwrap();
    let overlay = folder.path().join("mine");
    fs::create_dir(&overlay).unwrap();
    fs::write(overlay.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    folder
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
