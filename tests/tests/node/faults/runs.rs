//! Checks the runs of a stack after a trial. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

/// Each run has ended, none began before the one before it ended, and none applied a plan that was not approved; without `approved` each plan
/// is. The runs are in the order of their numbers.
pub(super) fn check_runs(runs: &[Value], approved: Option<&BTreeSet<String>>) -> Result<(), String> {
    let mut last_end = "";
    for run in runs {
        let (name, end) = (text(run, "/metadata/name"), text(run, "/status/finishedAt"));
        let start = text(run, "/status/startedAt");
        if end.is_empty() {
            return Err(format!("{name} has not ended"));
        }
        // RFC 3339 in UTC, so the order of texts is that of times.
        if !start.is_empty() && start < last_end {
            return Err(format!(
                "{name} began at {start}, before the end of another: {last_end}"
            ));
        }
        last_end = last_end.max(end);
        let has_applied = run.pointer("/status/attemptedApply") == Some(&Value::Bool(true));
        let plan = text(run, "/spec/plan/id");
        if has_applied && approved.is_some_and(|approved| !approved.contains(plan)) {
            return Err(format!("{name} applied {plan:?}, which was not approved"));
        }
    }
    Ok(())
}

/// There are as many runs as without a fault, each is the first attempt and succeeded, and the one that was active when the fault began is
/// among them. `pods` are the pods that worked: one for each run.
pub(super) fn check_undisturbed(
    runs: &[Value],
    active: Option<&str>,
    is_manual: bool,
    pods: &BTreeSet<String>,
) -> Result<(), String> {
    let names: Vec<_> = runs.iter().map(|run| text(run, "/metadata/name")).collect();
    // A plan, and the apply of it after the approval; or both at once.
    let expected = if is_manual { 2 } else { 1 };
    if runs.len() != expected {
        return Err(format!("{expected} runs were enough: {names:?}"));
    }
    if pods.len() > expected {
        return Err(format!("{expected} pods were enough: {pods:?}"));
    }
    if let Some(active) = active.filter(|active| !names.contains(active)) {
        return Err(format!("{active} was replaced: {names:?}"));
    }
    for (run, name) in runs.iter().zip(&names) {
        let (attempt, phase) = (run.pointer("/spec/attempt"), text(run, "/status/phase"));
        if attempt != Some(&Value::from(1)) || phase != "Succeeded" {
            return Err(format!("{name} is attempt {attempt:?} and {phase}"));
        }
    }
    Ok(())
}

/// Returns a text of a run, or an empty one.
pub(super) fn text<'r>(run: &'r Value, pointer: &str) -> &'r str {
    run.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A run of the minutes from `start` to `end` that has succeeded.
    fn run(number: u32, start: u32, end: u32) -> Value {
        let time = |minute: u32| format!("2026-11-26T10:{minute:02}:00Z");
        json!({
            "metadata": { "name": format!("trial-0-{number}") },
            "spec": { "attempt": 1, "plan": { "id": "plan-1" } },
            "status": { "phase": "Succeeded", "attemptedApply": number > 1,
                "startedAt": time(start), "finishedAt": time(end) },
        })
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn runs_one_after_the_other_with_an_approval_pass() {
        let runs = [run(1, 0, 5), run(2, 5, 9)];
        assert!(check_runs(&runs, Some(&set(&["plan-1"]))).is_ok());
        assert!(check_runs(&runs, None).is_ok());
    }

    #[test]
    fn a_run_that_began_before_the_end_of_another_is_found() {
        assert!(check_runs(&[run(1, 0, 5), run(2, 4, 9)], None).is_err());
        assert!(check_runs(&[run(1, 0, 9), run(2, 9, 9), run(3, 8, 9)], None).is_err());
    }

    #[test]
    fn an_apply_without_an_approval_and_a_run_without_an_end_are_found() {
        let runs = [run(1, 0, 5), run(2, 5, 9)];
        assert!(check_runs(&runs, Some(&set(&["plan-2"]))).is_err());
        let mut active = run(1, 0, 5);
        active["status"]["finishedAt"] = Value::Null;
        assert!(check_runs(&[active], None).is_err());
    }

    #[test]
    fn a_controller_that_is_replaced_adds_no_run_and_no_attempt() {
        let pods = set(&["trial-0-1-x", "trial-0-2-y"]);
        let check = |runs: &[Value], active: &str, is_manual| {
            check_undisturbed(runs, Some(active), is_manual, &pods).is_ok()
        };
        let runs = [run(1, 0, 5), run(2, 5, 9)];
        assert!(check(&runs, "trial-0-1", true));
        assert!(!check(&runs, "trial-0-3", true), "it was replaced");
        assert!(!check(&runs, "trial-0-1", false), "one run too many");
        let more = [run(1, 0, 5), run(2, 5, 6), run(3, 6, 9)];
        assert!(!check(&more, "trial-0-1", true));
        for (pointer, value) in [
            ("/spec/attempt", json!(2)),
            ("/status/phase", json!("Failed")),
            ("/status/phase", json!("Lost")),
        ] {
            let mut runs = runs.clone();
            *runs[1].pointer_mut(pointer).unwrap() = value;
            assert!(!check(&runs, "trial-0-1", true), "{pointer}");
        }
    }

    #[test]
    fn a_run_with_two_pods_is_found() {
        let runs = [run(1, 0, 5)];
        let check = |pods: &[&str]| check_undisturbed(&runs, None, false, &set(pods)).is_ok();
        assert!(check(&["trial-0-1-x"]) && !check(&["trial-0-1-x", "trial-0-1-y"]));
    }
}
