//! Reads the user's manifests from a directory, document by document. A bad document does not stop the others.

use std::fmt;
use std::path::{Path, PathBuf};

use kube::api::DynamicObject;
use serde::Deserialize;
use sluice_embedded::parse_yaml;

/// Maximum size of a file in bytes.
const MAX_FILE_SIZE: u64 = 4 << 20;
/// Maximum depth of nested folders.
const MAX_DEPTH: usize = 16;

/// The location of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file, relative to the directory that is read.
    pub file: PathBuf,
    /// The document in the file, from 1.
    pub document: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file.display(), self.document)
    }
}

/// One object to apply.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Its location.
    pub location: Location,
    /// Its content.
    pub object: DynamicObject,
}

/// A document that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its location.
    pub location: Location,
    /// The error, preceded by the field if there is one.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

/// The content of a directory.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The usable documents, in the order of file names and documents.
    pub manifests: Vec<Manifest>,
    /// The unusable documents.
    pub problems: Vec<Problem>,
}

/// Reads every `.yaml`, `.yml` and `.json` file below `root`, which may also be a single file.
///
/// # Errors
/// When `root` cannot be read. An unreadable file inside is a [`Problem`].
pub fn load(root: &Path) -> std::io::Result<Loaded> {
    let mut loaded = Loaded::default();
    if std::fs::metadata(root)?.is_file() {
        let name = PathBuf::from(root.file_name().unwrap_or(root.as_os_str()));
        read_file(root, name, &mut loaded);
        return Ok(loaded);
    }
    for relative in files(root)? {
        read_file(&root.join(&relative), relative, &mut loaded);
    }
    Ok(loaded)
}

/// Returns the files that [`load`] reads below the directory `root`, sorted and relative to it.
///
/// # Errors
/// When a directory cannot be read.
pub fn files(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    list(root, root, 0, &mut files)?;
    files.sort();
    Ok(files)
}

fn list(root: &Path, folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if kind.is_dir() && !hidden {
            list(root, &path, depth + 1, files)?;
        } else if kind.is_file() && is_manifest(&path) {
            files.push(path.strip_prefix(root).unwrap_or(&path).to_owned());
        }
    }
    Ok(())
}

/// Whether the file contains objects; `kustomization.yaml` is input of another program.
fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    matches!(extension, "yaml" | "yml" | "json") && stem != "kustomization"
}

fn read_file(path: &Path, file: PathBuf, loaded: &mut Loaded) {
    let size = std::fs::metadata(path).map_or(0, |m| m.len());
    let text = if size > MAX_FILE_SIZE {
        Err(format!(
            "the file has {size} bytes; the maximum is {MAX_FILE_SIZE}"
        ))
    } else {
        std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
    };
    match text {
        Ok(text) => read_documents(&text, &file, loaded),
        Err(message) => loaded.problems.push(Problem {
            location: Location { file, document: 1 },
            message,
        }),
    }
}

/// Splits at `---` lines before parsing, so that a syntax error affects only its document.
fn read_documents(text: &str, file: &Path, loaded: &mut Loaded) {
    let mut document = 0;
    for part in split(text) {
        let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if part.lines().all(is_blank) {
            continue;
        }
        document += 1;
        let location = Location {
            file: file.to_owned(),
            document,
        };
        match parse_yaml::<serde_json::Value>(part.as_bytes()) {
            Ok(value) => add_value(value, &location, loaded),
            Err(error) => loaded.problems.push(Problem {
                location,
                message: format!("invalid YAML: {error}"),
            }),
        }
    }
}

fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    parts
}

fn add_value(value: serde_json::Value, location: &Location, loaded: &mut Loaded) {
    let is_list = value.get("kind").and_then(|k| k.as_str()) == Some("List");
    if let (true, Some(items)) = (is_list, value.get("items").and_then(|i| i.as_array())) {
        for item in items {
            add_object(item.clone(), location, loaded);
        }
        return;
    }
    add_object(value, location, loaded);
}

fn add_object(value: serde_json::Value, location: &Location, loaded: &mut Loaded) {
    let problem = |message: &str| Problem {
        location: location.clone(),
        message: message.to_owned(),
    };
    for field in ["apiVersion", "kind", "metadata.name"] {
        let text = value.pointer(&format!("/{}", field.replace('.', "/")));
        if text.and_then(|text| text.as_str()).is_none_or(str::is_empty) {
            let message = format!("{field}: missing or not a string");
            loaded.problems.push(problem(&message));
            return;
        }
    }
    match DynamicObject::deserialize(value) {
        Ok(object) => loaded.manifests.push(Manifest {
            location: location.clone(),
            object,
        }),
        Err(error) => loaded.problems.push(problem(&format!("metadata: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let mut loaded = Loaded::default();
        read_documents(text, Path::new("a.yaml"), &mut loaded);
        let name = |m: &Manifest| {
            format!(
                "{} {}",
                m.location,
                m.object.metadata.name.clone().unwrap_or_default()
            )
        };
        (
            loaded.manifests.iter().map(name).collect(),
            loaded.problems.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn a_bad_document_does_not_affect_the_others() {
        let text = "# nothing\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\na: [\n---\nkind: Secret\n---\n\
                    apiVersion: v1\nkind: Secret\nmetadata: {name: 3}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n";
        let (good, bad) = read(text);
        assert_eq!(good, ["a.yaml, document 1 a", "a.yaml, document 5 b"]);
        assert_eq!(bad.len(), 3);
        assert!(
            bad[0].starts_with("a.yaml, document 2: invalid YAML"),
            "{}",
            bad[0]
        );
        assert_eq!(bad[1], "a.yaml, document 3: apiVersion: missing or not a string");
        assert_eq!(
            bad[2],
            "a.yaml, document 4: metadata.name: missing or not a string"
        );
    }

    #[test]
    fn a_document_that_takes_too_long_to_parse_is_a_problem() {
        let deep = "{a: ".repeat(64_000);
        let (good, bad) = read(&format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\n---\n{deep}"
        ));
        assert_eq!(good, ["a.yaml, document 1 a"]);
        assert_eq!(bad.len(), 1);
        assert!(bad[0].contains("more than 120 levels"), "{}", bad[0]);
    }

    #[test]
    fn a_list_yields_its_items() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n- {kind: x}\n";
        let (good, bad) = read(text);
        assert_eq!(good, ["a.yaml, document 1 a"]);
        assert_eq!(bad, ["a.yaml, document 1: apiVersion: missing or not a string"]);
    }

    #[test]
    fn folders_are_read_in_order_and_other_files_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let object = |name: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\n");
        std::fs::create_dir(dir.path().join("b")).unwrap();
        std::fs::write(dir.path().join("b/x.yml"), object("second")).unwrap();
        std::fs::write(dir.path().join("a.yaml"), object("first")).unwrap();
        std::fs::write(dir.path().join("kustomization.yaml"), "resources: []").unwrap();
        std::fs::write(dir.path().join("main.tf"), "not yaml").unwrap();
        let loaded = load(dir.path()).unwrap();
        let names: Vec<_> = loaded
            .manifests
            .iter()
            .filter_map(|m| m.object.metadata.name.clone())
            .collect();
        assert_eq!(names, ["first", "second"]);
        assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,400}") {
            read(&text);
        }
    }
}
