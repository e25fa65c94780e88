//! Counts and entries of a plan (pure): what a run's status shows of it. No values, sensitive or not.

use sluice_api::run::{Change, ChangeSummary, RunStatusLimit};

use super::document::{PlanDocument, ResourceChange};

/// What a run's status says of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many resources it touches; a replacement counts as one added and one destroyed.
    pub counts: ChangeSummary,
    /// The first entries, by address.
    pub entries: Vec<Change>,
    /// Entries beyond those.
    pub omitted: i64,
}

/// Counts a plan.
#[must_use]
pub fn summarize(plan: &PlanDocument) -> Summary {
    let mut counts = ChangeSummary::default();
    let mut entries = Vec::new();
    for change in plan.resource_changes.iter().filter(|change| change.is_effect()) {
        counts.add += i64::from(change.change.acts("create"));
        counts.destroy += i64::from(change.change.acts("delete"));
        counts.change += i64::from(change.change.acts("update"));
        counts.import += i64::from(change.change.importing.is_some());
        counts.moved += i64::from(change.previous_address.is_some());
        entries.push(Change {
            address: address(change),
            action: action(change).to_owned(),
        });
    }
    entries.sort_by(|a, b| a.address.cmp(&b.address));
    let omitted = entries.len().saturating_sub(RunStatusLimit::CHANGES);
    entries.truncate(RunStatusLimit::CHANGES);
    Summary {
        counts,
        entries,
        omitted: i64::try_from(omitted).unwrap_or(i64::MAX),
    }
}

fn address(change: &ResourceChange) -> String {
    match &change.deposed {
        Some(key) => format!("{} (deposed {key})", change.address),
        None => change.address.clone(),
    }
}

fn action(change: &ResourceChange) -> &'static str {
    let of = &change.change;
    if of.acts("create") && of.acts("delete") {
        "replace"
    } else if of.acts("create") {
        "create"
    } else if of.acts("delete") {
        "delete"
    } else if of.acts("update") {
        "update"
    } else if of.acts("forget") {
        "forget"
    } else if of.importing.is_some() {
        "import"
    } else {
        "move"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan(entries: &serde_json::Value) -> PlanDocument {
        super::super::document::parse(json!({ "resource_changes": entries }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn counts_are_the_clis() {
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
