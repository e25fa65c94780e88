//! Decides which modules are roots, and what their manifests are. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::module::Module;
use super::walk::Repository;

/// Directories whose modules are rarely applied as they are.
const EXAMPLES: [&str; 6] = ["example", "examples", "test", "tests", "fixtures", "testdata"];
/// Longest name of a stack.
const MAX_NAME: usize = 63;

/// The result.
#[derive(Debug, Default)]
pub(super) struct Adoption {
    /// The root modules by path.
    pub(super) roots: Vec<Root>,
    /// What was left out, and why.
    pub(super) notes: Vec<String>,
}

/// A root module.
#[derive(Debug)]
pub(super) struct Root {
    /// Name of the stack.
    pub(super) name: String,
    /// Path in the repository; empty for its root.
    path: String,
    workspace: Option<String>,
    has_backend: bool,
    /// What the user has to decide.
    pub(super) notes: Vec<String>,
}

impl Root {
    /// Returns the path for messages.
    pub(super) fn shown_path(&self) -> String {
        format!("./{}", self.path)
    }

    /// Returns the Terraform object. A module with a backend keeps it, because its state is there.
    pub(super) fn manifest(&self, source: &Value, namespace: Option<&str>) -> Value {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), json!(self.name));
        if let Some(namespace) = namespace {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        let mut spec = Map::new();
        spec.insert("approvePlan".to_owned(), json!(""));
        if self.has_backend {
            spec.insert("backendConfig".to_owned(), json!({ "disable": true }));
        }
        spec.insert("interval".to_owned(), json!("10m"));
        spec.insert("path".to_owned(), json!(self.shown_path()));
        spec.insert("sourceRef".to_owned(), source.clone());
        if let Some(workspace) = &self.workspace {
            spec.insert("workspace".to_owned(), json!(workspace));
        }
        json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2",
            "kind": "Terraform",
            "metadata": metadata,
            "spec": spec,
        })
    }
}

/// Finds the roots: modules with a backend, and modules that no other one calls.
#[must_use]
pub(super) fn find(repository: &Repository) -> Adoption {
    let callers = callers(&repository.modules);
    let mut adoption = Adoption::default();
    let mut names = BTreeSet::new();
    for (path, module) in &repository.modules {
        if let Some(reason) = exclusion_reason(path, module, &callers) {
            adoption.notes.push(format!("./{path} is left out: {reason}"));
            continue;
        }
        adoption.roots.push(Root {
            name: unique_name(path, &mut names),
            path: path.clone(),
            workspace: module.workspace.clone(),
            has_backend: module.backend.is_some(),
            notes: notes(module),
        });
    }
    adoption
}

/// Returns the caller of each module that another one calls.
fn callers(modules: &BTreeMap<String, Module>) -> BTreeMap<String, String> {
    let mut callers = BTreeMap::new();
    for (path, module) in modules {
        for call in &module.calls {
            if let Some(called) = resolve(path, call).filter(|called| called != path) {
                callers.entry(called).or_insert_with(|| path.clone());
            }
        }
    }
    callers
}

/// Resolves the source of a module against the directory of its caller; `None` if it leaves the repository.
fn resolve(directory: &str, source: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    // What follows `//` is a directory inside of the package, `?` begins arguments.
    let source = source.split('?').next().unwrap_or(source);
    for part in source.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Returns why a module is not a root.
fn exclusion_reason(path: &str, module: &Module, callers: &BTreeMap<String, String>) -> Option<String> {
    if module.backend.is_some() {
        return None;
    }
    if let Some(caller) = callers.get(path) {
        return Some(format!("./{caller} calls it"));
    }
    let mut parts = path.split('/');
    if let Some(part) = parts.clone().find(|part| EXAMPLES.contains(part)) {
        return Some(format!("it has no backend, and {part} has examples or tests"));
    }
    if !module.has_provider && parts.any(|part| part == "modules") {
        return Some("it has neither backend nor provider; another repository may call it".to_owned());
    }
    None
}

/// Returns what the files do not say.
fn notes(module: &Module) -> Vec<String> {
    let mut notes = Vec::new();
    match module.backend.as_deref() {
        None => notes.push(
            "no backend: the state will be in a Secret of the cluster. If there is a state already, move it there before the first plan"
                .to_owned(),
        ),
        Some("local") => notes.push(
            "backend local: the state is on one machine, and runs do not find it. Use another backend".to_owned(),
        ),
        Some(kind) => notes.push(format!(
            "backend {kind}: the state stays there. Give the runs access to it, and the settings that are not in the file (backendConfigsFrom)"
        )),
    }
    let variables: Vec<&str> = module.required_variables.iter().map(String::as_str).collect();
    if !variables.is_empty() {
        notes.push(format!(
            "variables without a default: {}. Set vars, varsFrom or tfVarsFiles, unless a file sets them",
            variables.join(", ")
        ));
    }
    if !module.variable_files.is_empty() {
        notes.push(format!(
            "which of these files apply is not known: {}. Name them in tfVarsFiles",
            module.variable_files.join(", ")
        ));
    }
    if module.reads_workspace {
        notes.push("it reads terraform.workspace: write one manifest for each workspace".to_owned());
    }
    for unread in &module.unread {
        notes.push(format!("not known: {unread}"));
    }
    notes
}

/// Makes the name of a stack of a path: lower-case letters, digits and hyphens.
fn unique_name(path: &str, names: &mut BTreeSet<String>) -> String {
    let letters = path.chars().map(|letter| match letter {
        'a'..='z' | '0'..='9' => letter,
        'A'..='Z' => letter.to_ascii_lowercase(),
        _ => '-',
    });
    let letters: String = letters.collect();
    let parts: Vec<&str> = letters.split('-').filter(|part| !part.is_empty()).collect();
    let mut name: String = parts.join("-").chars().take(MAX_NAME).collect();
    name.truncate(name.trim_end_matches('-').len());
    if name.is_empty() {
        "root".clone_into(&mut name);
    }
    let base = name.clone();
    let mut number = 2;
    while !names.insert(name.clone()) {
        let kept: String = base.chars().take(MAX_NAME - 4).collect();
        name = format!("{}-{number}", kept.trim_end_matches('-'));
        number += 1;
    }
    name
}

#[cfg(test)]
mod tests {
    use sluice_api::terraform::Terraform;

    use super::*;

    fn repository(modules: &[(&str, &str)]) -> Repository {
        let mut repository = Repository::default();
        for (path, text) in modules {
            let mut module = Module::default();
            module.add_file("main.tf", text);
            repository.modules.insert((*path).to_owned(), module);
        }
        repository
    }

    const BACKEND: &str = "terraform {\n  backend \"s3\" {}\n}\n";

    #[test]
    fn roots_have_a_backend_or_no_caller() {
        let found = find(&repository(&[
            (
                "live/app",
                "module \"net\" {\n  source = \"../../modules/net\"\n}\n",
            ),
            ("live/shared", BACKEND),
            ("live/web", "module \"shared\" {\n  source = \"../shared\"\n}\n"),
            ("modules/net", "provider \"aws\" {}\n"),
            ("modules/unused", "variable \"a\" {}\n"),
            ("examples/app", "provider \"aws\" {}\n"),
        ]));
        let names: Vec<_> = found.roots.iter().map(|root| root.name.as_str()).collect();
        assert_eq!(names, ["live-app", "live-shared", "live-web"]);
        assert_eq!(
            found.notes,
            [
                "./examples/app is left out: it has no backend, and examples has examples or tests",
                "./modules/net is left out: ./live/app calls it",
                "./modules/unused is left out: it has neither backend nor provider; another repository may call it",
            ]
        );
    }

    #[test]
    fn a_module_with_a_backend_keeps_it() {
        let mut repository = repository(&[("", BACKEND), ("app", "")]);
        repository.modules.get_mut("app").unwrap().workspace = Some("prod".to_owned());
        let found = find(&repository);
        let source = json!({"kind": "GitRepository", "name": "infra"});
        let stacks: Vec<Terraform> = found
            .roots
            .iter()
            .map(|root| serde_json::from_value(root.manifest(&source, Some("team"))).unwrap())
            .collect();
        assert_eq!(stacks[0].metadata.name.as_deref(), Some("root"));
        assert!(stacks[0].spec.backend_config.as_ref().unwrap().disable);
        assert_eq!(
            (stacks[0].spec.path.as_str(), stacks[1].spec.path.as_str()),
            ("./", "./app")
        );
        assert_eq!(stacks[1].spec.backend_config, None);
        assert_eq!(stacks[1].spec.workspace, "prod");
    }

    #[test]
    fn what_is_not_known_is_said() {
        let found = find(&repository(&[(
            "app",
            "variable \"region\" {}\nlocals {\n  a = terraform.workspace\n}\n",
        )]));
        let notes = found.roots[0].notes.join("\n");
        for part in ["no backend", "without a default: region", "terraform.workspace"] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
    }

    #[test]
    fn sources_are_resolved_in_the_repository() {
        for (directory, source, expected) in [
            ("live/app", "../../modules/net", Some("modules/net")),
            ("", "./modules//net", Some("modules/net")),
            ("a", "../", Some("")),
            ("a", "../../outside", None),
        ] {
            assert_eq!(
                resolve(directory, source).as_deref(),
                expected,
                "{directory} {source}"
            );
        }
    }

    #[test]
    fn names_are_valid_and_unique() {
        let mut names = BTreeSet::new();
        let long = "x".repeat(100);
        let made: Vec<String> = ["a/B_c", "a-b-c", "", "..", long.as_str(), long.as_str()]
            .iter()
            .map(|path| unique_name(path, &mut names))
            .collect();
        assert_eq!(made[..4], ["a-b-c", "a-b-c-2", "root", "root-2"]);
        assert!(made.iter().all(|name| name.len() <= MAX_NAME));
        assert!(
            made.iter()
                .all(|name| sluice_runtime::client::is_account_name(name))
        );
    }
}
