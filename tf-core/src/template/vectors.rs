//! Golden vectors of Go's `text/template` with sprig. `tests/assets/sprig` has the templates, the results and their generator.

use std::collections::BTreeSet;

use super::*;

const VECTORS: &str = include_str!("../../../tests/assets/sprig/vectors.jsonl");
const DATA: &str = include_str!("../../../tests/assets/sprig/data.json");
const DOCS: &str = include_str!("../../../docs/reference/templates.md");

/// A template, what the original makes of it (nothing: an error), and the name of the difference, if there is to be one.
#[derive(serde::Deserialize)]
struct Vector {
    template: String,
    output: Option<String>,
    #[serde(default)]
    differs: String,
}

fn vectors() -> Vec<Vector> {
    let lines = VECTORS.lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn templates_match_the_original_except_documented_differences() {
    let data: serde_json::Value = serde_json::from_str(DATA).unwrap();
    let mut wrong = Vec::new();
    for vector in vectors() {
        let actual = render(&vector.template, Delimiters::Curly, Functions::Text, &data);
        let same = actual.as_ref().ok() == vector.output.as_ref();
        if same != vector.differs.is_empty() {
            let Vector {
                template,
                output,
                differs,
            } = vector;
            wrong.push(format!(
                "{template} {differs}\n  original {output:?}\n  ours     {actual:?}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} are not as section:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_function_has_vectors_for_results_and_errors() {
    let vectors = vectors();
    let words = |only_failures: bool| -> BTreeSet<&str> {
        let equal = vectors
            .iter()
            .filter(|vector| vector.differs.is_empty() && (!only_failures || vector.output.is_none()));
        let word = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        equal.flat_map(|vector| vector.template.split(word)).collect()
    };
    let compared = words(false);
    let missing: Vec<_> = functions::supported_names()
        .filter(|name| !compared.contains(name))
        .collect();
    assert!(missing.is_empty(), "no vector has {missing:?}");
    assert!(words(true).len() > 60);
}

#[test]
fn every_difference_is_documented_by_name() {
    let section = DOCS.split("## Differences from sprig").nth(1).unwrap();
    let names: BTreeSet<_> = vectors().into_iter().map(|vector| vector.differs).collect();
    for name in names.iter().filter(|name| !name.is_empty()) {
        assert!(
            section.contains(&format!("| {name} |")),
            "docs/reference/templates.md does not tell of {name:?}"
        );
    }
}
