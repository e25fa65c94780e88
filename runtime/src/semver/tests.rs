//! Against the original's own answers, and against a straightforward reference.

use proptest::prelude::*;

use super::*;

/// What Masterminds/semver answers; made by the Go program beside it.
const VECTORS: &str = include_str!("../../tests/semver/vectors.txt");

fn constraint(text: &str) -> Constraint {
    text.parse().unwrap()
}

/// The lines of one kind: the quoted text, and what follows it.
fn vectors(kind: &str) -> Vec<(String, &str)> {
    let lines = VECTORS
        .lines()
        .filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    lines
        .map(|line| {
            let mut quoted = serde_json::Deserializer::from_str(line).into_iter::<String>();
            let text = quoted.next().unwrap().unwrap();
            (text, line[quoted.byte_offset()..].trim_start())
        })
        .collect()
}

fn versions() -> Vec<&'static str> {
    VECTORS.lines().next().unwrap().split(' ').skip(1).collect()
}

#[test]
fn every_constraint_admits_what_the_original_admits() {
    let versions: Vec<_> = versions()
        .into_iter()
        .map(|text| Version::parse(text).unwrap())
        .collect();
    let cases = vectors("admits");
    assert!(cases.len() > 400, "{}", cases.len());
    for (text, wanted) in cases {
        let constraint: Constraint = text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"));
        let answer: String = versions
            .iter()
            .map(|version| if constraint.admits(version) { '1' } else { '0' })
            .collect();
        assert_eq!(answer, wanted, "{text:?}");
    }
}

#[test]
fn every_text_that_the_original_refuses_is_refused_in_its_words() {
    let cases = vectors("error");
    assert!(cases.len() > 50, "{}", cases.len());
    for (text, wanted) in cases {
        let error = text.parse::<Constraint>().map(|_| ()).unwrap_err().to_string();
        // Go and Rust escape what is no ASCII differently.
        let shown = if text.is_ascii() {
            wanted
        } else {
            "improper constraint: "
        };
        assert!(error.starts_with(shown), "{text:?}: {error}");
    }
}

#[test]
fn every_tag_is_a_version_to_us_that_is_one_to_the_original() {
    for (tag, wanted) in vectors("tag") {
        assert_eq!(Version::of_tag(&tag).is_some().to_string(), wanted, "{tag}");
    }
    let versions: Vec<_> = versions()
        .into_iter()
        .map(|text| Version::parse(text).unwrap())
        .collect();
    assert!(versions.is_sorted() && versions.windows(2).all(|pair| pair[0] != pair[1]));
}

fn picked<'a>(text: &str, tags: &[&'a str]) -> Vec<&'a str> {
    let constraint = constraint(text);
    let mut selection = Selection::new(&constraint);
    for tag in tags {
        selection.offer(tag, *tag);
    }
    selection.best()
}

#[test]
fn the_highest_admitted_version_is_picked_whatever_the_order_of_tags() {
    let tags = [
        "v0.1.0",
        "0.2.0",
        "v0.2.1",
        "v1.0.0-alpha",
        "v1.1.0-alpha",
        "latest",
        "v3",
    ];
    for (text, wanted) in [
        ("*", vec!["v0.2.1"]),
        ("<v0.2.1", vec!["0.2.0"]),
        (">=1.0.0-0 <1.1.0-0", vec!["v1.0.0-alpha"]),
        (">=2", vec![]),
        ("0.1.x || 0.2.0", vec!["0.2.0"]),
    ] {
        assert_eq!(picked(text, &tags), wanted, "{text}");
    }
    let tied = ["v1.0.0+b", "1.0.0", "v0.9.0", "1.0.0+a", "1.00.0"];
    assert_eq!(picked("^1", &tied), ["v1.0.0+b", "1.0.0", "1.0.0+a", "1.00.0"]);
}

fn constraints() -> impl Strategy<Value = String> {
    let comparator = "(|=|!=|>|<|>=|<=|~|\\^)[ ]?v?[0-3x](\\.[0-3x*]){0,2}(-(0|a|rc\\.1))?";
    proptest::collection::vec((comparator, "( |, |,|\\|\\|| - )"), 1..5).prop_map(|parts| {
        let joined: String = parts
            .iter()
            .flat_map(|(comparator, between)| [comparator.as_str(), between])
            .collect();
        joined.trim_end_matches([' ', ',', '|', '-']).to_owned()
    })
}

proptest! {
    #[test]
    fn any_text_is_a_constraint_or_not(text in "\\PC{0,80}") {
        let _ = text.parse::<Constraint>();
    }

    #[test]
    fn a_selection_equals_sorting_all_tags(
        text in constraints(),
        tags in proptest::collection::vec("v?[0-3]\\.[0-3]\\.[0-3](-(0|a|rc\\.1))?(\\+[ab])?", 0..40),
    ) {
        let Ok(constraint) = text.parse::<Constraint>() else { return Ok(()) };
        let mut admitted: Vec<_> = tags.iter().map(|tag| (Version::parse(tag).unwrap(), tag)).collect();
        admitted.retain(|(version, _)| constraint.admits(version));
        admitted.sort_by(|one, other| one.0.cmp(&other.0));
        let highest = admitted.last().cloned();
        let wanted: Vec<_> = tags.iter()
            .filter(|tag| admitted.iter().any(|(version, other)| other == tag && Some(version) == highest.as_ref().map(|(highest, _)| highest)))
            .collect();
        let mut selection = Selection::new(&constraint);
        for tag in &tags {
            selection.offer(tag, tag);
        }
        prop_assert_eq!(selection.best(), wanted, "{}", text);
    }

    #[test]
    fn a_release_passes_without_regard_to_build_metadata(text in constraints(), build in "[a-z]{1,4}") {
        let Ok(constraint) = text.parse::<Constraint>() else { return Ok(()) };
        let version = |text: &str| Version::parse(text).unwrap();
        prop_assert_eq!(constraint.admits(&version("1.2.3")), constraint.admits(&version(&format!("1.2.3+{build}"))));
    }
}
