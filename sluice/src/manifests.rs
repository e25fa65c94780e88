//! The user's manifests: read from a directory, document by document. A bad document is named and the others go on.

use kube::api::DynamicObject;
use serde::Deserialize;
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A larger file is no manifest.
const LARGEST_FILE: u64 = 4 << 20;
/// How deep folders are entered.
const DEEPEST: usize = 16;

/// Where a manifest stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, relative to the directory that was given.
    pub file: PathBuf,
    /// The document in the file, from 1.
    pub document: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file.display(), self.document)
    }
}

/// One object to apply.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Where it stands.
    pub place: Place,
    /// What it says.
    pub object: DynamicObject,
}

/// A document that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it stands.
    pub place: Place,
    /// The field, where one is to blame, and what is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// What a directory holds.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The usable documents, in the order of file names and documents.
    pub manifests: Vec<Manifest>,
    /// The others.
    pub problems: Vec<Problem>,
}

/// Reads every `.yaml`, `.yml` and `.json` file below `root` (a single file is taken as well).
///
/// # Errors
/// When `root` cannot be read. A file inside that cannot be read is a [`Problem`].
pub fn load(root: &Path) -> std::io::Result<Loaded> {
    let mut loaded = Loaded::default();
    if std::fs::metadata(root)?.is_file() {
        let name = PathBuf::from(root.file_name().unwrap_or(root.as_os_str()));
        read_file(root, name, &mut loaded);
        return Ok(loaded);
    }
    let mut files = Vec::new();
    list(root, root, 0, &mut files)?;
    files.sort();
    for relative in files {
        read_file(&root.join(&relative), relative, &mut loaded);
    }
    Ok(loaded)
}

fn list(root: &Path, folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if depth > DEEPEST {
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

/// `kustomization.yaml` is an instruction to another program, not an object.
fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    matches!(extension, "yaml" | "yml" | "json") && stem != "kustomization"
}

fn read_file(path: &Path, file: PathBuf, loaded: &mut Loaded) {
    let size = std::fs::metadata(path).map_or(0, |m| m.len());
    let text = if size > LARGEST_FILE {
        Err(format!(
            "the file has {size} bytes; a manifest has at most {LARGEST_FILE}"
        ))
    } else {
        std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
    };
    match text {
        Ok(text) => read_documents(&text, &file, loaded),
        Err(what) => loaded.problems.push(Problem {
            place: Place { file, document: 1 },
            what,
        }),
    }
}

/// Splits by `---` lines first, so that a syntax error in one document leaves the others readable.
fn read_documents(text: &str, file: &Path, loaded: &mut Loaded) {
    let mut document = 0;
    for part in split(text) {
        if part
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
        {
            continue;
        }
        document += 1;
        let place = Place {
            file: file.to_owned(),
            document,
        };
        match serde_yaml_ng::from_str::<serde_json::Value>(&part) {
            Ok(value) => take(value, &place, loaded),
            Err(error) => loaded.problems.push(Problem {
                place,
                what: format!("is no YAML: {error}"),
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

fn take(value: serde_json::Value, place: &Place, loaded: &mut Loaded) {
    let is_list = value.get("kind").and_then(|k| k.as_str()) == Some("List");
    if let (true, Some(items)) = (is_list, value.get("items").and_then(|i| i.as_array())) {
        for item in items {
            take_object(item.clone(), place, loaded);
        }
        return;
    }
    take_object(value, place, loaded);
}

fn take_object(value: serde_json::Value, place: &Place, loaded: &mut Loaded) {
    let problem = |what: &str| Problem {
        place: place.clone(),
        what: what.to_owned(),
    };
    for field in ["apiVersion", "kind"] {
        if value
            .get(field)
            .and_then(|f| f.as_str())
            .is_none_or(str::is_empty)
        {
            loaded
                .problems
                .push(problem(&format!("{field}: is missing or no text")));
            return;
        }
    }
    if value
        .pointer("/metadata/name")
        .and_then(|n| n.as_str())
        .is_none_or(str::is_empty)
    {
        loaded
            .problems
            .push(problem("metadata.name: is missing or no text"));
        return;
    }
    match DynamicObject::deserialize(value) {
        Ok(object) => loaded.manifests.push(Manifest {
            place: place.clone(),
            object,
        }),
        Err(error) => loaded.problems.push(problem(&format!("metadata: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(text: &str) -> (Vec<String>, Vec<String>) {
        let mut loaded = Loaded::default();
        read_documents(text, Path::new("a.yaml"), &mut loaded);
        let name = |m: &Manifest| {
            format!(
                "{} {}",
                m.place,
                m.object.metadata.name.clone().unwrap_or_default()
            )
        };
        (
            loaded.manifests.iter().map(name).collect(),
            loaded.problems.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn a_bad_document_leaves_the_others() {
        let text = "# nothing\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\na: [\n---\nkind: Secret\n---\n\
                    apiVersion: v1\nkind: Secret\nmetadata: {name: 3}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n";
        let (good, bad) = told(text);
        assert_eq!(good, ["a.yaml, document 1 a", "a.yaml, document 5 b"]);
        assert_eq!(bad.len(), 3);
        assert!(bad[0].starts_with("a.yaml, document 2: is no YAML"), "{}", bad[0]);
        assert_eq!(bad[1], "a.yaml, document 3: apiVersion: is missing or no text");
        assert_eq!(bad[2], "a.yaml, document 4: metadata.name: is missing or no text");
    }

    #[test]
    fn a_list_is_its_items() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n- {kind: x}\n";
        let (good, bad) = told(text);
        assert_eq!(good, ["a.yaml, document 1 a"]);
        assert_eq!(bad, ["a.yaml, document 1: apiVersion: is missing or no text"]);
    }

    #[test]
    fn folders_are_read_in_order_and_other_files_are_left() {
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
            told(&text);
        }
    }
}
