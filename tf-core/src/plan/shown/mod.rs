//! A plan that its CLI cannot save (pure): what it shows is all there is of it.
//!
//! Its text stands for its JSON, less what differs between two showings of the same plan. Values that the CLI hides are
//! not in it: such a plan says less than a saved one.

use serde_json::{Value, json};

use super::document::{self, DocumentError, PlanDocument};

/// The member of the document that holds the text.
const MEMBER: &str = "shown_plan";
/// Begins the note of what changed outside of the CLI, which stands before the plan and is parted from it by a rule.
const NOTE: &str = "Objects have changed outside of";
/// Where the plan itself begins, after progress and addresses of this very plan on a service.
const BEGINNINGS: [&str; 3] = [
    "perform the following actions",
    "planned the following actions",
    "Changes to Outputs:",
];
/// Largest text that counts; a longer one is nobody's to read.
pub const TEXT_LIMIT: u64 = 16 * 1024 * 1024;

/// The plan itself out of all that the CLI said, with the note of what changed outside before it; all of it where no beginning
/// is found, so that nothing is left out. It ends at the rule behind its last beginning: one before parts the note from the plan.
#[must_use]
pub fn essence(text: &str) -> String {
    let plain: Vec<&str> = text.lines().map(str::trim_end).collect();
    let begins = |line: &&str| BEGINNINGS.iter().any(|words| line.contains(words));
    let is_rule =
        |line: &&str| line.len() >= 20 && line.chars().all(|letter| matches!(letter, '\u{2500}' | '-'));
    let from = plain.iter().position(|line| begins(line) || line.contains(NOTE));
    let last = plain.iter().rposition(begins);
    let end = last.and_then(|last| Some(last + plain.get(last..)?.iter().position(is_rule)?));
    let kept = plain.get(from.unwrap_or(0)..end.unwrap_or(plain.len()));
    kept.unwrap_or_default().join("\n").trim().to_owned()
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
mod tests;
