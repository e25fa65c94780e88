//! The definitions of `sluice up`: its own, and those of `--crd-dir`. All of them are read-only in the API.

use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sluice_embedded::{DefinitionProblem, read_only_definition};

use super::own_approvals;
use crate::manifests::{self, Manifest, Problem};

/// Maximum number of files in a directory: one with more is most likely not a directory of definitions.
const MAX_FILES: usize = 1000;

/// Why the definitions cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionsError {
    /// A directory cannot be read.
    #[error("--crd-dir {path}: {source}")]
    Directory {
        /// The directory.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The directory has too many files.
    #[error("--crd-dir {path}: there are {count} files, the limit is {MAX_FILES}")]
    TooManyFiles {
        /// The directory.
        path: String,
        /// Their number.
        count: usize,
    },
    /// A file or a document of it cannot be read.
    #[error("--crd-dir {path}: {problem}")]
    File {
        /// The directory.
        path: String,
        /// The document and the error.
        problem: Problem,
    },
    /// An object is not a definition that can be served.
    #[error("--crd-dir {place}: {problem}")]
    Definition {
        /// Directory, file and document.
        place: String,
        /// The error, which names the field.
        problem: DefinitionProblem,
    },
    /// A definition of Sluice cannot be replaced.
    #[error(
        "--crd-dir {place}: metadata.name: {name:?} is a definition of Sluice; remove it from the directory"
    )]
    Own {
        /// Directory, file and document.
        place: String,
        /// Name of the definition.
        name: String,
    },
}

/// Returns the definitions of Sluice, for objects in a Git repository or elsewhere.
pub(super) fn own(in_repository: bool) -> Vec<CustomResourceDefinition> {
    let mut crds = sluice_api::crds();
    // Always, so that objects in the state directory are served after a restart without their manifests.
    crds.extend(sluice_api::optional_crds());
    if in_repository {
        own_approvals::require_administrator(&mut crds);
    }
    crds
}

/// Returns the definitions of Sluice and those in the directories.
///
/// # Errors
/// If a directory has anything that is not a valid definition, or has a name twice: a kind that is not served looks like a lost one.
pub(super) fn load(
    mut crds: Vec<CustomResourceDefinition>,
    directories: &[PathBuf],
) -> Result<Vec<CustomResourceDefinition>, DefinitionsError> {
    let own = crds.len();
    for directory in directories {
        for manifest in read(directory)? {
            let definition = admit(directory, manifest, &crds, own)?;
            crds.push(definition);
        }
    }
    Ok(crds)
}

fn read(directory: &Path) -> Result<Vec<Manifest>, DefinitionsError> {
    let path = directory.display().to_string();
    let unreadable = |source| DefinitionsError::Directory {
        path: path.clone(),
        source,
    };
    let count = manifests::files(directory).map_err(unreadable)?.len();
    if count > MAX_FILES {
        return Err(DefinitionsError::TooManyFiles { path, count });
    }
    let loaded = manifests::load(directory).map_err(unreadable)?;
    match loaded.problems.into_iter().next() {
        Some(problem) => Err(DefinitionsError::File { path, problem }),
        None => Ok(loaded.manifests),
    }
}

/// Admits a manifest beside the definitions before it, of which the first `own` are those of Sluice.
fn admit(
    directory: &Path,
    manifest: Manifest,
    crds: &[CustomResourceDefinition],
    own: usize,
) -> Result<CustomResourceDefinition, DefinitionsError> {
    let place = format!("{}: {}", directory.display(), manifest.location);
    let name = manifest.object.metadata.name.clone();
    if crds.iter().take(own).any(|crd| crd.metadata.name == name) {
        let name = name.unwrap_or_default();
        return Err(DefinitionsError::Own { place, name });
    }
    let object = serde_json::to_value(manifest.object);
    object
        .map_err(|error| DefinitionProblem::Invalid(error.to_string()))
        .and_then(|object| read_only_definition(object, crds))
        .map_err(|problem| DefinitionsError::Definition { place, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tools.tools.dev}
spec:
  group: tools.dev
  scope: Namespaced
  names: {plural: tools, kind: Tool}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
";

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn names(directories: &[PathBuf]) -> Vec<String> {
        let crds = load(own(false), directories).unwrap();
        crds.into_iter().filter_map(|crd| crd.metadata.name).collect()
    }

    #[test]
    fn the_definitions_of_all_directories_are_added_to_those_of_sluice() {
        let of_sluice = names(&[]);
        let gears = TOOLS.replace("tools.tools.dev", "gears.tools.dev");
        let gears = gears.replace("plural: tools, kind: Tool", "plural: gears, kind: Gear");
        let (first, second) = (directory(&[("a.yaml", TOOLS)]), directory(&[("a.yml", &gears)]));
        let all = names(&[first.path().to_owned(), second.path().to_owned()]);
        assert_eq!(all[..of_sluice.len()], of_sluice);
        assert_eq!(all[of_sluice.len()..], ["tools.tools.dev", "gears.tools.dev"]);
    }

    #[test]
    fn an_error_names_file_and_field() {
        let galaxy = TOOLS.replace("Namespaced", "Galaxy");
        let unknown = TOOLS.replace("  scope:", "  nope: 1\n  scope:");
        let replaced = TOOLS.replace("tools.tools.dev", "terraforms.infra.contrib.fluxcd.io");
        let twice = format!("{TOOLS}---\n{TOOLS}");
        for (text, expected) in [
            ("a: [", "a.yaml, document 1: invalid YAML"),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
                "a.yaml, document 1: apiVersion: ",
            ),
            (&*galaxy, "spec.scope"),
            (&*unknown, "spec.nope: unknown"),
            (
                &*replaced,
                "metadata.name: \"terraforms.infra.contrib.fluxcd.io\" is a definition of Sluice",
            ),
            (
                &*twice,
                "a.yaml, document 2: metadata.name: \"tools.tools.dev\" is defined already",
            ),
        ] {
            let dir = directory(&[("a.yaml", text)]);
            let error = load(own(false), &[dir.path().to_owned()])
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("--crd-dir /") && error.contains("a.yaml"),
                "{error}"
            );
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let absent = load(own(false), &[PathBuf::from("/absent")]).unwrap_err();
        assert!(absent.to_string().starts_with("--crd-dir /absent: "), "{absent}");
    }

    #[test]
    fn the_number_of_files_is_limited() {
        let dir = directory(&[]);
        for number in 0..=MAX_FILES {
            std::fs::write(dir.path().join(format!("{number}.yaml")), "").unwrap();
        }
        let error = load(own(false), &[dir.path().to_owned()])
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with(": there are 1001 files, the limit is 1000"),
            "{error}"
        );
        std::fs::remove_file(dir.path().join("0.yaml")).unwrap();
        load(own(false), &[dir.path().to_owned()]).unwrap();
    }
}
