//! A plan that its CLI cannot save (pure): what it shows is all there is of it.
//!
//! Its text stands for its JSON, less what differs between two showings of the same plan. Values that the CLI hides are
//! not in it: such a plan says less than a saved one.

use serde_json::{Value, json};

use super::document::{self, DocumentError, PlanDocument};

/// The member of the document that holds the text.
const MEMBER: &str = "shown_plan";
/// Where the plan itself begins, after progress and addresses of this very plan on a service.
const BEGINNINGS: [&str; 4] = [
    "Objects have changed outside of",
    "perform the following actions",
    "planned the following actions",
    "Changes to Outputs:",
];
/// Largest text that counts; a longer one is nobody's to read.
pub const TEXT_LIMIT: u64 = 16 * 1024 * 1024;

/// The plan itself out of all that the CLI said; all of it where no beginning is found, so that nothing is left out.
#[must_use]
pub fn essence(text: &str) -> String {
    let plain: Vec<&str> = text.lines().map(str::trim_end).collect();
    let begins = |line: &&str| BEGINNINGS.iter().any(|words| line.contains(words));
    let from = plain.iter().position(begins).unwrap_or(0);
    let is_rule =
        |line: &&str| line.len() >= 20 && line.chars().all(|letter| matches!(letter, '\u{2500}' | '-'));
    let length = plain[from..]
        .iter()
        .position(is_rule)
        .unwrap_or(plain.len() - from);
    plain[from..from + length].join("\n").trim().to_owned()
}

/// The document of such a plan: the entries that its headings name, and the whole text as an effect of its own.
///
/// # Errors
/// Never in fact: the document is made here.
pub fn document(text: &str) -> Result<PlanDocument, DocumentError> {
    let text = essence(text);
    let entries: Vec<Value> = text.lines().filter_map(entry).collect();
    let whole = json!({ "resource_changes": entries, MEMBER: text });
    document::parse(whole.to_string().as_bytes())
}

/// `# <address> will be created`, and so on.
fn entry(line: &str) -> Option<Value> {
    const HEADINGS: [(&str, &[&str]); 8] = [
        (" will be created", &["create"]),
        (" will be updated in-place", &["update"]),
        (" will be destroyed", &["delete"]),
        (" must be replaced", &["delete", "create"]),
        (" will be replaced", &["delete", "create"]),
        (" is tainted, so must be replaced", &["delete", "create"]),
        (" is tainted, so it must be replaced", &["delete", "create"]),
        (" will no longer be managed", &["forget"]),
    ];
    let heading = line.trim_start().strip_prefix("# ")?;
    let found = HEADINGS
        .iter()
        .filter_map(|(words, actions)| Some((heading.find(words)?, actions)));
    let (end, actions) = found.min_by_key(|(end, _)| *end)?;
    let address = heading.get(..end)?;
    Some(
        json!({ "address": address, "type": type_of(address), "mode": "managed", "change": { "actions": actions } }),
    )
}

/// The resource's type: the word before the last name, whatever dots stand in a key.
fn type_of(address: &str) -> &str {
    let front = address.split_once("[\"").map_or(address, |(front, _)| front);
    let front = if front.starts_with("module.") {
        address
    } else {
        front
    };
    let mut outside = String::new();
    let mut quoted = false;
    for letter in front.chars() {
        quoted ^= letter == '"';
        outside.push(if quoted { '_' } else { letter });
    }
    let name = outside.rfind('.').unwrap_or(0);
    let start = outside
        .get(..name)
        .and_then(|head| head.rfind('.'))
        .map_or(0, |at| at + 1);
    // Replaced letters may differ in length: then the address itself has no plain type.
    if outside.len() == front.len() {
        front.get(start..name).unwrap_or_default()
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::summary;
    use proptest::prelude::*;

    const TEXT: &str = "Running plan in the service. Output will stream here.\n\nhttps://app.example/runs/run-1\n\n\
        terraform_data.a: Refreshing state... [id=1]\n\nTerraform will perform the following actions:\n\n  \
        # terraform_data.a will be created\n  + resource \"terraform_data\" \"a\" {\n      + id = (known after apply)\n    }\n\n  \
        # module.m[\"x.y\"].aws_thing.b[\"k.v\"] must be replaced\n-/+ resource\n\n  # c_d.e will be destroyed\n  \
        # (because it is gone)\n\nPlan: 2 to add, 0 to change, 2 to destroy.\n\
        \u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\
        \u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\u{2500}\n\nNote: You didn't use the -out option\n";

    #[test]
    fn what_differs_between_two_showings_of_a_plan_does_not_count() {
        let again = TEXT.replace("run-1", "run-2").replace("[id=1]", "[id=1, slow]");
        assert_ne!(TEXT, again);
        assert_eq!(essence(TEXT), essence(&again));
        assert_ne!(essence(TEXT), essence(&TEXT.replace("\"a\"", "\"z\"")));
        assert!(
            essence(TEXT).starts_with("Terraform will perform") && essence(TEXT).ends_with("2 to destroy.")
        );
        assert_eq!(
            essence("in words of their own: +1\n"),
            "in words of their own: +1"
        );
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
}
