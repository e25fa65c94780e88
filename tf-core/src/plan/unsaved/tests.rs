use proptest::prelude::*;

use super::*;
use crate::plan::summary;

const TEXT: &str = "Running plan in the service. Output will stream here.\n\nhttps://app.example/runs/run-1\n\n\
    terraform_data.a: Refreshing state... [id=1]\n\nTerraform will perform the following actions:\n\n  \
    # terraform_data.a will be created\n  + resource \"terraform_data\" \"a\" {\n      + id = (known after apply)\n    }\n\n  \
    # module.m[\"x.y\"].aws_thing.b[\"k.v\"] must be replaced\n-/+ resource\n\n  # c_d.e will be destroyed\n  \
    # (because it is gone)\n\nPlan: 2 to add, 0 to change, 2 to destroy.\n\
    \u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\
    \u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\n\nNote: You didn't use the -out option\n";

#[test]
fn volatile_output_does_not_change_the_shown_plan() {
    let again = TEXT.replace("run-1", "run-2").replace("[id=1]", "[id=1, slow]");
    assert_ne!(TEXT, again);
    assert_eq!(plan_section(TEXT), plan_section(&again));
    assert_ne!(plan_section(TEXT), plan_section(&TEXT.replace("\"a\"", "\"z\"")));
    assert!(
        plan_section(TEXT).starts_with("Terraform will perform")
            && plan_section(TEXT).ends_with("2 to destroy.")
    );
    assert_eq!(
        plan_section("in words of their own: +1\n"),
        "in words of their own: +1"
    );
}

/// Output of Terraform 1.11.4 for a plan with drift: progress, drift note, rule, plan, rule, instructions.
const DRIFTED: &str = include_str!("drifted.txt");

#[test]
fn a_separator_line_does_not_end_the_plan() {
    let section = plan_section(DRIFTED);
    assert!(
        section.starts_with("Note: Objects have changed outside of"),
        "{section}"
    );
    assert!(
        section.contains("# terraform_data.d must be replaced"),
        "{section}"
    );
    assert!(section.ends_with("  ~ version = 1 -> 2"), "{section}");
    let other = DRIFTED.replace(
        "terraform_data.d must be replaced",
        "terraform_data.d will be destroyed",
    );
    assert_ne!(section, plan_section(&other));
    let counts = |text| summary::summarize(&document(text).unwrap()).counts.short();
    assert_eq!(
        [counts(DRIFTED), counts(&other)],
        ["+1 ~1 -1", "+0 ~1 -1"],
        "entries too"
    );
    let later = DRIFTED.replace("Saved the plan to: p", "Saved the plan to: q");
    assert_eq!(
        section,
        plan_section(&later),
        "what to do next is not of the plan"
    );
}

#[test]
fn output_without_a_plan_is_unchanged() {
    let rule = "\u{2500}".repeat(77);
    let text =
        |end: &str| format!("Refreshing\n\nNote: Objects have changed outside of it\n\n{rule}\n\n{end}\n");
    assert!(plan_section(&text("one")).starts_with("Note: "));
    assert_ne!(plan_section(&text("one")), plan_section(&text("two")));
}

#[test]
fn headings_are_the_entries() {
    let document = document(TEXT).unwrap();
    let summary = summary::summarize(&document);
    assert_eq!(summary.counts.short(), "+2 ~0 -2");
    let types: Vec<_> = document
        .resource_changes
        .iter()
        .map(|change| change.type_.as_str())
        .collect();
    assert_eq!(types, ["terraform_data", "aws_thing", "c_d"]);
    assert_eq!(document.other.len(), 1, "the text is an effect");
}

proptest! {
    #[test]
    fn no_text_breaks_it(text in "(# |\\.|\\[\"|\"\\]|will be created|must be replaced|\u{e9}|[a-z ]|\n|-{20,30}){0,30}") {
        prop_assert!(document(&text).is_ok());
    }
}
