//! The summary of a plan in the status of a run: counts and changes, without values.

use std::collections::BTreeSet;

use sluice_api::run::{Change, ChangeSummary, PlanEffects, RunStatusLimit};

use super::document::{PlanDocument, ResourceChange};

/// Length limit of a type and of an unknown action.
const WORD_LIMIT: usize = 120;

/// The summary of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Numbers of resources; a replacement counts as one added and one destroyed.
    pub counts: ChangeSummary,
    /// Numbers of effects by class.
    pub effects: PlanEffects,
    /// The most far-reaching changes, by address.
    pub entries: Vec<Change>,
    /// Number of other changes.
    pub omitted: i64,
}

/// Summarizes a plan.
#[must_use]
pub fn summarize(plan: &PlanDocument) -> Summary {
    let mut counts = ChangeSummary::default();
    let mut effects = PlanEffects::default();
    let mut types = BTreeSet::new();
    let mut entries = Vec::new();
    for change in plan.resource_changes.iter().filter(|change| change.is_effect()) {
        counts.add += i64::from(change.change.acts("create"));
        counts.destroy += i64::from(change.change.acts("delete"));
        counts.change += i64::from(change.change.acts("update"));
        counts.import += i64::from(change.change.importing.is_some());
        counts.moved += i64::from(change.previous_address.is_some());
        let class = class(change);
        *count(&mut effects, class) += 1;
        types.insert(truncate(&change.type_));
        entries.push((
            class,
            Change {
                address: address(change),
                action: word(change, class),
            },
        ));
    }
    let outputs = plan.output_changes.values().filter(|change| !change.is_no_op());
    effects.outputs = length(outputs.count());
    // Unknown members may be effects.
    effects.others += length(plan.other.len());
    effects.types_omitted = length(types.len().saturating_sub(PlanEffects::MAX_TYPES));
    effects.types = types.into_iter().take(PlanEffects::MAX_TYPES).collect();
    let omitted = length(entries.len().saturating_sub(RunStatusLimit::CHANGES));
    entries.sort_by(|(one, a), (other, b)| (one, &a.address).cmp(&(other, &b.address)));
    entries.truncate(RunStatusLimit::CHANGES);
    let mut entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
    entries.sort_by(|a, b| a.address.cmp(&b.address));
    Summary {
        counts,
        effects,
        entries,
        omitted,
    }
}

fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn truncate(word: &str) -> String {
    word.chars().take(WORD_LIMIT).collect()
}

/// The class of a change, the most far-reaching first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Other,
    Delete,
    Replace,
    Forget,
    Update,
    Create,
    Import,
    Move,
}

/// Returns the class of an effect. Unknown actions and combinations are `Other`, which no policy permits.
fn class(entry: &ResourceChange) -> Class {
    let mut actions: Vec<_> = entry.change.actions.iter().map(String::as_str).collect();
    actions.sort_unstable();
    match actions[..] {
        ["create", "delete" | "forget"] => Class::Replace,
        ["delete"] => Class::Delete,
        ["forget"] => Class::Forget,
        ["update"] => Class::Update,
        ["create"] => Class::Create,
        [] | ["no-op"] if entry.change.importing.is_some() => Class::Import,
        [] | ["no-op"] => Class::Move,
        _ => Class::Other,
    }
}

fn count(effects: &mut PlanEffects, class: Class) -> &mut i64 {
    match class {
        Class::Other => &mut effects.others,
        Class::Delete => &mut effects.deletes,
        Class::Replace => &mut effects.replaces,
        Class::Forget => &mut effects.forgets,
        Class::Update => &mut effects.updates,
        Class::Create => &mut effects.creates,
        Class::Import => &mut effects.imports,
        Class::Move => &mut effects.moves,
    }
}

fn address(change: &ResourceChange) -> String {
    match &change.deposed {
        Some(key) => format!("{} (deposed {key})", change.address),
        None => change.address.clone(),
    }
}

fn word(entry: &ResourceChange, class: Class) -> String {
    let word = match class {
        Class::Other => return truncate(&entry.change.actions.join("+")),
        Class::Delete => "delete",
        Class::Replace => "replace",
        Class::Forget => "forget",
        Class::Update => "update",
        Class::Create => "create",
        Class::Import => "import",
        Class::Move => "move",
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(entries: &serde_json::Value) -> PlanDocument {
        super::super::document::parse(json!({ "resource_changes": entries }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn counts_equal_those_of_the_cli() {
        let of =
            |address: &str, actions: &[&str]| json!({ "address": address, "change": { "actions": actions } });
        let mut moved = of("m.new", &["no-op"]);
        moved["previous_address"] = json!("m.old");
        let mut imported = of("i.one", &["update"]);
        imported["change"]["importing"] = json!({ "id": "x" });
        let plan = plan(&json!([
            of("z.create", &["create"]),
            of("a.replace", &["delete", "create"]),
            of("b.delete", &["delete"]),
            of("n.none", &["no-op"]),
            of("data.r", &["read"]),
            moved,
            imported
        ]));
        let summary = summarize(&plan);
        assert_eq!(summary.counts.short(), "+2 ~1 -2 >1 =1");
        assert_eq!(summary.omitted, 0);
        let entries: Vec<_> = summary
            .entries
            .iter()
            .map(|e| format!("{} {}", e.address, e.action))
            .collect();
        assert_eq!(
            entries,
            [
                "a.replace replace",
                "b.delete delete",
                "i.one update",
                "m.new move",
                "z.create create"
            ]
        );
    }

    #[test]
    fn every_effect_has_a_class_and_unknown_ones_are_separate() {
        let of = |actions: serde_json::Value, more: serde_json::Value| {
            let mut entry = json!({ "address": "a.b", "type": "a", "change": { "actions": actions } });
            for (name, value) in more.as_object().unwrap() {
                entry[name] = value.clone();
            }
            let summary = summarize(&plan(&json!([entry])));
            let word = summary
                .entries
                .first()
                .map(|entry| entry.action.clone())
                .unwrap_or_default();
            let effects = PlanEffects {
                types: vec![],
                ..summary.effects
            };
            (word, effects.to_string())
        };
        let moved = json!({ "previous_address": "a.old" });
        for (actions, more, word, effects) in [
            (json!(["create"]), json!({}), "create", "1 create"),
            (json!(["create", "delete"]), json!({}), "replace", "1 replace"),
            (json!(["delete", "create"]), moved.clone(), "replace", "1 replace"),
            (json!(["forget", "create"]), json!({}), "replace", "1 replace"),
            (json!(["delete"]), moved.clone(), "delete", "1 delete"),
            (json!(["update"]), moved.clone(), "update", "1 in-place"),
            (json!(["forget"]), json!({}), "forget", "1 forget"),
            (json!(["no-op"]), moved, "move", "1 move"),
            (json!(["no-op"]), json!({}), "", ""),
            (json!(["read"]), json!({}), "", ""),
            (
                json!(["delete", "shred"]),
                json!({}),
                "delete+shred",
                "1 of an unknown kind",
            ),
            (
                json!(["update", "delete"]),
                json!({}),
                "update+delete",
                "1 of an unknown kind",
            ),
            (json!(["open"]), json!({}), "open", "1 of an unknown kind"),
        ] {
            assert_eq!(
                of(actions.clone(), more),
                (word.to_owned(), effects.to_owned()),
                "{actions}"
            );
        }
        let text = json!({ "resource_changes": [], "output_changes": { "a": { "actions": ["update"] }, "b": { "actions": ["no-op"] } } });
        let outputs = super::super::document::parse(text.to_string().as_bytes()).unwrap();
        assert_eq!(summarize(&outputs).effects.to_string(), "1 output-only");
        let text = json!({ "action_invocations": [{}] }).to_string();
        let strange = super::super::document::parse(text.as_bytes()).unwrap();
        assert_eq!(summarize(&strange).effects.others, 1);
    }

    #[test]
    fn a_long_plan_lists_its_destroys() {
        let mut entries: Vec<_> = (0..250)
            .map(|i| json!({ "address": format!("a.r[{i}]"), "change": { "actions": ["create"] } }))
            .collect();
        entries.push(json!({ "address": "z.last", "change": { "actions": ["delete"] } }));
        let summary = summarize(&plan(&json!(entries)));
        assert_eq!(summary.entries.last().unwrap().address, "z.last");
        assert_eq!((summary.entries.len(), summary.omitted), (200, 51));
    }

    #[test]
    fn long_plans_are_counted_not_listed() {
        let entries: Vec<_> = (0..250)
            .map(|i| json!({ "address": format!("a.r[{i}]"), "change": { "actions": ["create"] } }))
            .collect();
        let summary = summarize(&plan(&json!(entries)));
        assert_eq!(
            (summary.counts.add, summary.entries.len(), summary.omitted),
            (250, 200, 50)
        );
    }
}
