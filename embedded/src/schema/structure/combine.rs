//! `anyOf`, `oneOf`, `allOf` and `not`.

use super::{Outcome, Site};
use crate::schema::node::Node;
use crate::schema::text;

pub(super) fn check(site: &Site<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let node = site.node;
    if !node.any_of.is_empty() {
        outcome.merge(check_any(site, &node.any_of));
    }
    if !node.one_of.is_empty() {
        outcome.merge(check_one(site, &node.one_of));
    }
    if !node.all_of.is_empty() {
        outcome.merge(check_all(site, &node.all_of));
    }
    if node
        .not
        .as_deref()
        .is_some_and(|not| alternative(site, not).is_valid())
    {
        outcome.add(Site::whole(format!(
            "{} must not validate the schema (not)",
            text::quote(site.at)
        )));
    }
    outcome.matches += 1;
    outcome
}

/// An alternative is judged as a whole: no ratcheting at its own level.
fn alternative(site: &Site<'_>, node: &Node) -> Outcome {
    super::check(Site { node, ..*site })
}

/// Keeps the failed alternative with the most passed checks, the first of equals.
fn keep_best(best: &mut Option<Outcome>, failed: Outcome) {
    if best.as_ref().is_none_or(|best| failed.matches > best.matches) {
        *best = Some(failed);
    }
}

fn check_any(site: &Site<'_>, alternatives: &[Node]) -> Outcome {
    let mut best = None;
    for node in alternatives {
        let outcome = alternative(site, node);
        if outcome.is_valid() {
            return outcome;
        }
        keep_best(&mut best, outcome);
    }
    let mut outcome = Outcome::default();
    outcome.add(Site::whole(format!(
        "{} must validate at least one schema (anyOf)",
        text::quote(site.at)
    )));
    outcome.merge(best.unwrap_or_default());
    outcome
}

fn check_one(site: &Site<'_>, alternatives: &[Node]) -> Outcome {
    let (mut best, mut first, mut valid) = (None, None, 0_usize);
    for node in alternatives {
        let outcome = alternative(site, node);
        if outcome.is_valid() {
            valid += 1;
            best = None;
            first.get_or_insert(outcome);
        } else if valid == 0 {
            keep_best(&mut best, outcome);
        }
    }
    if valid == 1 {
        return first.unwrap_or_default();
    }
    let found = if valid == 0 {
        "Found none valid".to_owned()
    } else {
        format!("Found {valid} valid alternatives")
    };
    let mut outcome = Outcome::default();
    let at = text::quote(site.at);
    outcome.add(Site::whole(format!(
        "{at} must validate one and only one schema (oneOf). {found}"
    )));
    outcome.merge(best.unwrap_or_default());
    outcome
}

fn check_all(site: &Site<'_>, parts: &[Node]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut valid = 0_usize;
    for node in parts {
        let part = alternative(site, node);
        valid += usize::from(part.is_valid());
        outcome.merge(part);
    }
    if valid != parts.len() {
        let none = if valid == 0 { ". None validated" } else { "" };
        let at = text::quote(site.at);
        outcome.add(Site::whole(format!(
            "{at} must validate all the schemas (allOf){none}"
        )));
    }
    outcome
}
