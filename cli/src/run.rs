//! What a user wants to know of a TerraformRun: its number, its result and its plan. Pure.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use sluice_api::run::{Change, Phase, TerraformRun, TerraformRunStatus};
use sluice_api::terraform::run_sequence;

use crate::output::Tone;

/// Returns the number of a run; 0 if its name has none.
#[must_use]
pub fn number(run: &TerraformRun) -> u64 {
    run.metadata
        .name
        .as_deref()
        .and_then(run_sequence)
        .unwrap_or_default()
}

/// Returns the phase; a run without a status is pending.
#[must_use]
pub fn phase(run: &TerraformRun) -> Phase {
    run.status.as_ref().map_or(Phase::Pending, |status| status.phase)
}

/// Sorts runs, newest first.
pub fn sort_newest_first(runs: &mut [TerraformRun]) {
    runs.sort_by_key(|run| (Reverse(number(run)), run.name_any()));
}

/// Returns the colour of a phase.
#[must_use]
pub const fn tone(phase: Phase) -> Tone {
    match phase {
        Phase::Succeeded => Tone::Good,
        Phase::Failed | Phase::Lost => Tone::Bad,
        Phase::Superseded => Tone::Muted,
        Phase::Pending
        | Phase::Claimed
        | Phase::Preparing
        | Phase::Initializing
        | Phase::Planning
        | Phase::Applying
        | Phase::WritingOutputs
        | Phase::CheckingHealth
        | Phase::BreakingTheGlass => Tone::Plain,
    }
}

/// Returns how long the run lasted, or lasts until `now`; `None` if no runner has claimed it.
#[must_use]
pub fn lasted(run: &TerraformRun, now: Timestamp) -> Option<SignedDuration> {
    let status = run.status.as_ref()?;
    let start = status.started_at.as_ref()?.0;
    let end = status.finished_at.as_ref().map_or(now, |end| end.0);
    Some(end.duration_since(start))
}

/// Returns the run among `runs` that made the plan with this id.
#[must_use]
pub fn of_plan<'a>(runs: &'a [TerraformRun], plan: &str) -> Option<&'a TerraformRun> {
    let has_plan = |run: &&TerraformRun| run.status.as_ref().is_some_and(|status| status.plan_id == plan);
    runs.iter().filter(has_plan).max_by_key(|run| number(run))
}

/// The changes of a plan, most severe first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeList<'a> {
    /// The changes that the run records.
    pub entries: Vec<&'a Change>,
    /// Number of changes beyond those.
    pub omitted: i64,
}

/// Returns the changes of a run's plan: what is destroyed first, then what is replaced, then the rest by address.
#[must_use]
pub fn changes(status: &TerraformRunStatus) -> ChangeList<'_> {
    let mut entries: Vec<_> = status.change_entries.iter().collect();
    entries.sort_by_key(|change| (severity(&change.action), change.address.clone()));
    ChangeList {
        entries,
        omitted: status.changes_omitted,
    }
}

/// Returns the rank of an action: 0 destroys. An action that this version does not know comes next to it.
fn severity(action: &str) -> u8 {
    match action {
        "delete" => 0,
        "replace" => 1,
        "forget" => 3,
        "update" => 4,
        "create" => 5,
        "import" => 6,
        "move" => 7,
        _ => 2,
    }
}

/// Returns the sign of an action, as the CLI prints it, and its colour.
#[must_use]
pub fn sign(action: &str) -> (&'static str, Tone) {
    match action {
        "create" => ("+", Tone::Good),
        "update" => ("~", Tone::Attention),
        "delete" => ("-", Tone::Bad),
        "replace" => ("-/+", Tone::Bad),
        "forget" => (".", Tone::Attention),
        "import" => (">", Tone::Plain),
        "move" => ("=", Tone::Plain),
        _ => ("?", Tone::Attention),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::run;

    #[test]
    fn runs_are_sorted_by_their_number() {
        let mut runs: Vec<_> = [9, 10, 2].map(|number| run(number, &json!({}))).into();
        sort_newest_first(&mut runs);
        assert_eq!(runs.iter().map(number).collect::<Vec<_>>(), [10, 9, 2]);
    }

    #[test]
    fn the_newest_run_of_a_plan_is_found() {
        let plan = json!({"planId": "plan-x"});
        let runs = [run(1, &plan), run(3, &plan), run(4, &json!({}))];
        assert_eq!(of_plan(&runs, "plan-x").map(number), Some(3));
        assert_eq!(of_plan(&runs, "plan-y"), None);
    }

    #[test]
    fn what_is_destroyed_comes_first() {
        let status = json!({"changeEntries": [
            {"action": "create", "address": "a.c"}, {"action": "delete", "address": "a.d"},
            {"action": "replace", "address": "a.r"}, {"action": "teleport", "address": "a.t"},
            {"action": "delete", "address": "a.b"}], "changesOmitted": 2});
        let run = run(1, &status);
        let list = changes(run.status.as_ref().unwrap());
        let addresses: Vec<_> = list
            .entries
            .iter()
            .map(|change| change.address.as_str())
            .collect();
        assert_eq!(
            (addresses, list.omitted),
            (vec!["a.b", "a.d", "a.r", "a.t", "a.c"], 2)
        );
    }

    #[test]
    fn a_run_lasts_from_its_claim_to_its_end() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let lasted = |status| super::lasted(&run(1, &status), now);
        let ended = json!({"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:30Z"});
        assert_eq!(lasted(ended), Some(SignedDuration::from_secs(90)));
        let active = json!({"startedAt": "2026-01-01T00:09:00Z"});
        assert_eq!(lasted(active), Some(SignedDuration::from_secs(60)));
        assert_eq!(lasted(json!({})), None);
    }
}
