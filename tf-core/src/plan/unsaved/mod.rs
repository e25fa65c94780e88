//! Plans that the CLI cannot save, known by their text only.
//!
//! The text replaces the JSON, without the parts that differ between two outputs of the same plan. Sensitive values are not in the
//! text, so the effect of such a plan covers less than that of a saved one.

use serde_json::{Value, json};

use super::document::{self, DocumentError, PlanDocument};

/// The member of the document that holds the text.
const MEMBER: &str = "shown_plan";
/// Start of the drift note. A rule separates it from the plan that follows.
const DRIFT_NOTE: &str = "Objects have changed outside of";
/// Starts of the plan, after progress and the URL of this run at a remote service.
const STARTS: [&str; 3] = [
    "perform the following actions",
    "planned the following actions",
    "Changes to Outputs:",
];
/// Size limit of a text, in bytes.
pub const TEXT_LIMIT: u64 = 16 * 1024 * 1024;

/// Returns the plan in the output of the CLI, with the drift note. It ends at the first rule after its last start. Returns the whole
/// output if there is no start.
#[must_use]
pub fn plan_section(text: &str) -> String {
    let plain: Vec<&str> = text.lines().map(str::trim_end).collect();
    let is_start = |line: &&str| STARTS.iter().any(|words| line.contains(words));
    let is_rule =
        |line: &&str| line.len() >= 20 && line.chars().all(|letter| matches!(letter, '\u{2500}' | '-'));
    let from = plain
        .iter()
        .position(|line| is_start(line) || line.contains(DRIFT_NOTE));
    let last = plain.iter().rposition(is_start);
    let end = last.and_then(|last| Some(last + plain.get(last..)?.iter().position(is_rule)?));
    let section = plain.get(from.unwrap_or(0)..end.unwrap_or(plain.len()));
    section.unwrap_or_default().join("\n").trim().to_owned()
}

/// Returns the document of such a plan: the changes in its headings, and the text as another effect.
///
/// # Errors
/// None in practice: the JSON is valid.
pub fn document(text: &str) -> Result<PlanDocument, DocumentError> {
    let text = plan_section(text);
    let entries: Vec<Value> = text.lines().filter_map(entry).collect();
    let plan = json!({ "resource_changes": entries, MEMBER: text });
    document::parse(plan.to_string().as_bytes())
}

/// Parses `# <address> will be created` and other headings.
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

/// Returns the resource type: the part before the last name. Dots in keys are ignored.
fn type_of(address: &str) -> &str {
    let base = address.split_once("[\"").map_or(address, |(base, _)| base);
    let base = if base.starts_with("module.") {
        address
    } else {
        base
    };
    let mut outside = String::new();
    let mut quoted = false;
    for letter in base.chars() {
        quoted ^= letter == '"';
        outside.push(if quoted { '_' } else { letter });
    }
    let name = outside.rfind('.').unwrap_or(0);
    let start = outside
        .get(..name)
        .and_then(|head| head.rfind('.'))
        .map_or(0, |at| at + 1);
    // Quoted characters of several bytes shift the positions: the type is unknown then.
    if outside.len() == base.len() {
        base.get(start..name).unwrap_or_default()
    } else {
        ""
    }
}

#[cfg(test)]
mod tests;
