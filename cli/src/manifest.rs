//! Edits one field of one object in a YAML file and leaves every other byte as it is: comments, order and quoting.
//!
//! The edit is made by lines and then proved: the documents before and after it are parsed, and nothing but the field may differ. A
//! file that is written in a form that this does not understand (flow style, anchors on `spec`) is refused, never changed by guess.

use std::ops::Range;

use serde::Deserialize as _;
use serde_json::Value;

/// The largest file that is edited, in bytes.
pub const LIMIT: usize = 1 << 20;

/// The object in the file.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace. A document without a namespace matches any.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// Why a file is not edited.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The file is larger than [`LIMIT`].
    #[error("the file is larger than {LIMIT} bytes")]
    TooLarge,
    /// A document is not YAML.
    #[error("document {0} is not valid YAML: {1}")]
    Syntax(usize, String),
    /// The file has no such object.
    #[error("the file has no {0}")]
    NotFound(String),
    /// The file has the object more than once.
    #[error("the file has {0} more than once")]
    Ambiguous(String),
    /// The form of the document is not understood.
    #[error("the form of spec is not understood: set {0} by hand")]
    Form(String),
}

/// Returns the file with `spec.<field>` of the object set to a text.
///
/// # Errors
/// The object is not there once, or the edit cannot be proved to change nothing else.
pub fn set_spec_text(
    text: &str,
    identity: Identity<'_>,
    field: &str,
    value: &str,
) -> Result<String, ManifestError> {
    if text.len() > LIMIT {
        return Err(ManifestError::TooLarge);
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let document = document_of(&lines, identity)?;
    let before = parse(&lines[document.clone()].concat(), 0)?;
    let edited =
        edit(&lines[document.clone()], field, value).ok_or_else(|| ManifestError::Form(field.to_owned()))?;
    let mut expected = before;
    let spec = expected.pointer_mut("/spec").and_then(Value::as_object_mut);
    spec.ok_or_else(|| ManifestError::Form(field.to_owned()))?
        .insert(field.to_owned(), Value::from(value));
    if parse(&edited, 0).ok().as_ref() != Some(&expected) {
        return Err(ManifestError::Form(field.to_owned()));
    }
    Ok([
        &lines[..document.start].concat(),
        edited.as_str(),
        &lines[document.end..].concat(),
    ]
    .concat())
}

/// Returns the lines of the document with the object.
fn document_of(lines: &[&str], identity: Identity<'_>) -> Result<Range<usize>, ManifestError> {
    let Identity {
        kind,
        namespace,
        name,
    } = identity;
    let described = || format!("{} {namespace}/{name}", kind.to_lowercase());
    let mut found = None;
    for (index, range) in documents(lines).into_iter().enumerate() {
        let object = parse(&lines[range.clone()].concat(), index + 1)?;
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let is_it = text("/kind") == Some(kind)
            && text("/metadata/name") == Some(name)
            && text("/metadata/namespace").is_none_or(|found| found == namespace);
        if is_it && found.replace(range).is_some() {
            return Err(ManifestError::Ambiguous(described()));
        }
    }
    found.ok_or_else(|| ManifestError::NotFound(described()))
}

/// Returns the lines between the separators `---`.
fn documents(lines: &[&str]) -> Vec<Range<usize>> {
    let is_separator = |line: &&str| line.trim_end() == "---" || line.starts_with("--- ");
    let mut documents = Vec::new();
    let mut start = 0;
    for (index, _) in lines.iter().enumerate().filter(|(_, line)| is_separator(line)) {
        documents.push(start..index);
        start = index + 1;
    }
    documents.push(start..lines.len());
    documents
}

fn parse(document: &str, number: usize) -> Result<Value, ManifestError> {
    let deserializer = serde_yaml_ng::Deserializer::from_str(document);
    Value::deserialize(deserializer).map_err(|error| ManifestError::Syntax(number, error.to_string()))
}

/// Replaces the line of the field below `spec:`, or adds it as the first one. `None`: the form is not understood.
fn edit(lines: &[&str], field: &str, value: &str) -> Option<String> {
    let spec = lines.iter().position(|line| content(line) == "spec:")?;
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let below: Vec<usize> = (spec + 1..lines.len())
        .filter(|index| !is_blank(lines[*index]))
        .take_while(|index| indent(lines[*index]) > 0)
        .collect();
    let width = indent(lines[*below.first()?]);
    let key = format!("{field}:");
    let existing = below
        .iter()
        .find(|index| indent(lines[**index]) == width && lines[**index].trim_start().starts_with(&key));
    let new_line = |comment: &str| format!("{}{field}: {}{comment}\n", " ".repeat(width), quoted(value));
    let mut edited: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    match existing {
        Some(index) => edited[*index] = new_line(comment(lines[*index])),
        None => edited.insert(spec + 1, new_line("")),
    }
    Some(edited.concat())
}

/// Returns a line without its comment and the spaces at its end.
fn content(line: &str) -> &str {
    let end = line.find(" #").unwrap_or(line.len());
    line[..end].trim_end()
}

/// Returns the comment at the end of a line with the spaces before it.
fn comment(line: &str) -> &str {
    let line = line.trim_end();
    let Some(start) = line.find(" #") else { return "" };
    let spaces = line[..start].len() - line[..start].trim_end().len();
    &line[start - spaces..]
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Quotes a text for YAML (double-quoted style, YAML 1.2 section 7.3.1), which JSON strings are a subset of.
fn quoted(value: &str) -> String {
    Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const APP: Identity<'static> = Identity {
        kind: "Terraform",
        namespace: "default",
        name: "app",
    };

    const FILE: &str = "# the stacks\n---\nkind: Terraform\nmetadata:\n  name: net\nspec:\n  interval: 1m\n---\napiVersion: v1\nkind: Terraform\nmetadata: {name: app}\n\
                        spec:   # of the app\n    # how often\n    interval: 1m\n    approvePlan: ''   # by a user\n    path: ./a\n";

    #[test]
    fn only_the_field_changes() {
        let edited = set_spec_text(FILE, APP, "approvePlan", "plan-x").unwrap();
        assert_eq!(
            edited,
            FILE.replace("approvePlan: ''   # by", "approvePlan: \"plan-x\"   # by")
        );
    }

    #[test]
    fn a_missing_field_is_added_with_the_indentation_of_the_others() {
        let net = Identity { name: "net", ..APP };
        let edited = set_spec_text(FILE, net, "approvePlan", "plan-x").unwrap();
        assert_eq!(
            edited,
            FILE.replacen("spec:\n", "spec:\n  approvePlan: \"plan-x\"\n", 1)
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let flow = "kind: Terraform\nmetadata: {name: app}\nspec: {interval: 1m}\n";
        let twice = format!(
            "{FILE}---\nkind: Terraform\nmetadata: {{name: app, namespace: default}}\nspec:\n  a: 1\n"
        );
        let block = "kind: Terraform\nmetadata: {name: app}\nspec:\n  approvePlan: |\n    plan-y\n";
        for (text, error) in [
            (flow, ManifestError::Form("approvePlan".to_owned())),
            (block, ManifestError::Form("approvePlan".to_owned())),
            (
                &twice,
                ManifestError::Ambiguous("terraform default/app".to_owned()),
            ),
            (
                "kind: Other\n",
                ManifestError::NotFound("terraform default/app".to_owned()),
            ),
            (&"#".repeat(LIMIT + 1), ManifestError::TooLarge),
        ] {
            assert_eq!(set_spec_text(text, APP, "approvePlan", "plan-x"), Err(error));
        }
        assert!(matches!(
            set_spec_text("a: [", APP, "approvePlan", "x"),
            Err(ManifestError::Syntax(1, _))
        ));
    }

    proptest! {
        #[test]
        fn arbitrary_files_do_not_panic(text in "\\PC{0,80}(\\n\\PC{0,20}){0,4}") {
            let _ = set_spec_text(&text, APP, "approvePlan", "plan-x");
        }

        /// Any value reads back, and the file around it is the same.
        #[test]
        fn any_value_reads_back(value in "\\PC{0,40}") {
            let edited = set_spec_text(FILE, APP, "approvePlan", &value).unwrap();
            let document = edited.rsplit("---\n").next().unwrap();
            prop_assert_eq!(&parse(document, 0).unwrap()["spec"]["approvePlan"], &Value::from(value));
        }
    }
}
