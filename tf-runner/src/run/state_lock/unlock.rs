//! A state lock that a dead run of ours left behind, or a command of this one, is released; any other lock stands.
//!
//! The proof: the lock's holder is the user and host of runs of this very stack, and it was taken inside the time of such a
//! run, which did not end well and did not itself meet that lock; and each run of which this holds is certainly over. Of a run that
//! told its end itself only those times count in which one of its commands may have left a lock, as it has them on record
//! ([`super::left`]): while it made health checks or asked a service it held none. One that worked with the file locks that are
//! seen here is over: the stack's directory lock is ours, so no CLI of this stack lives. One of another pod is once it has ended by
//! its record and its pod is gone. A person on the same machine has the same name: whatever ended well left no lock, and what met
//! one did not take it.

use jiff::Timestamp;
use kube::api::{Api, ListParams};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::{LockInfo, LockWindow, Phase, TerraformRun, TerraformRunStatus};
use sluice_api::terraform::label_value;

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::api_retry::patiently;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::identity;
use crate::run::state_lock::holder_pod;
use crate::run::state_lock::release;
use sluice_tf_core::cli::process::CommandExit;
use sluice_tf_core::cli::{argv, lock::parse_created};

/// Runs a command; when it meets a lock that is provably dead, releases it and runs the command once more.
pub(crate) async fn retrying(
    context: &Context,
    workspace: &Workspace<'_>,
    step: Step,
    words: &[String],
    codes: &[i32],
) -> Result<CommandExit, RunError> {
    workspace.left.borrow_mut().forget_somebodys();
    workspace.reporter.note(|status| status.lock = None);
    let first = workspace.expect(step, words, codes).await;
    let Err(error @ RunError::Command { .. }) = first else {
        return first;
    };
    let Some((lock, run)) = dead(context, workspace).await else {
        return Err(error);
    };
    let id = workspace.reporter.secrets().redact(&lock.id).into_owned();
    tracing::warn!(
        lock = id,
        run,
        "releasing the state lock that a run of this stack left behind"
    );
    let released = workspace.must(Step::Unlock, &argv::force_unlock(&lock.id)).await;
    if released.is_err() && !release::lease(context, &lock.id).await {
        return Err(error);
    }
    workspace.left.borrow_mut().forget_somebodys();
    workspace.reporter.note(|status| status.lock = None);
    workspace.expect(step, words, codes).await
}

/// The lock that the last command met, if it is certain that nobody holds it, and the run that took it.
async fn dead(context: &Context, workspace: &Workspace<'_>) -> Option<(LockInfo, String)> {
    let own = workspace.left.borrow_mut().take();
    if let Some(own) = own {
        return Some((own, context.settings.run.clone()));
    }
    let lock = workspace.left.borrow().somebodys().cloned()?;
    let run = dead_holder(context, &lock).await?;
    Some((lock, run))
}

/// The ended run of this stack that took the lock, if that is certain.
async fn dead_holder(context: &Context, lock: &LockInfo) -> Option<String> {
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let patience = context.settings.patience;
    let me = patiently(patience, || api.get(&context.settings.run))
        .await
        .ok()?;
    let stack = &me.spec.terraform;
    let params = ListParams::default().labels(&format!("{TERRAFORM_LABEL}={}", label_value(&stack.name)));
    let runs = patiently(patience, || api.list(&params)).await.ok()?.items;
    let others = runs
        .iter()
        .filter(|run| run.metadata.name != me.metadata.name && run.spec.terraform.uid == stack.uid);
    let takers = takers(lock, others);
    for run in &takers {
        if !is_over(context, run).await {
            return None;
        }
    }
    takers.first().and_then(|run| run.metadata.name.clone())
}

/// Whether nothing of this run works any more, for certain.
async fn is_over(context: &Context, run: &TerraformRun) -> bool {
    let Some((status, claim)) = run.status.as_ref().and_then(|s| Some((s, s.claim.as_ref()?))) else {
        return false;
    };
    if context.identity.shares_locks(claim) {
        return true; // the stack's directory lock is ours
    }
    status.phase.is_final() && holder_pod::is_over(context, claim).await
}

/// Pure part of the proof: the runs that may have taken the lock.
fn takers<'a>(lock: &LockInfo, runs: impl Iterator<Item = &'a TerraformRun>) -> Vec<&'a TerraformRun> {
    let Some(created) = parse_created(&lock.created) else {
        return Vec::new();
    };
    let took = |run: &&TerraformRun| {
        let Some(status) = &run.status else { return false };
        let by_us = holder(status) == Some(lock.who.as_str());
        let left_none = matches!(status.phase, Phase::Succeeded | Phase::Superseded);
        let met_it = status.lock.as_ref().is_some_and(|met| met.id == lock.id);
        by_us && possible_lock_windows(status, created) && !left_none && !met_it
    };
    runs.filter(took).collect()
}

/// The `user@host` of the CLI of a run, once it is claimed.
fn holder(status: &TerraformRunStatus) -> Option<&str> {
    let claim = status.claim.as_ref()?;
    let own = Some(status.lock_holder.as_str()).filter(|own| !own.is_empty());
    Some(own.unwrap_or_else(|| identity::who(claim)))
}

/// Whether a run may have left a lock of this time.
fn possible_lock_windows(status: &TerraformRunStatus, created: Timestamp) -> bool {
    // Of a run that did not tell its end nobody knows what its last command did.
    if status.phase == Phase::Failed
        && let Some(spans) = &status.possible_lock_windows
    {
        let at = created.as_microsecond();
        let within =
            |span: &LockWindow| (span.from.0.as_microsecond()..=span.to.0.as_microsecond()).contains(&at);
        return spans.iter().any(within);
    }
    let began = status.started_at.as_ref().is_some_and(|time| time.0 <= created);
    // Times in a status have whole seconds.
    let ended = status
        .finished_at
        .as_ref()
        .is_none_or(|time| created.as_second() <= time.0.as_second());
    began && ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(process: &str, started: &str, finished: Option<&str>) -> TerraformRun {
        let mut value = json!({
            "metadata": { "name": "net-abcd-1" },
            "spec": { "action": "Apply", "attempt": 1, "deadline": "2h", "trigger": "Approval",
                      "source": { "kind": "GitRepository", "name": "x", "namespace": "team" },
                      "terraform": { "name": "net", "uid": "u", "generation": 1 } },
            "status": { "phase": "Lost", "claim": { "holder": "h", "process": process }, "startedAt": started }
        });
        if let Some(finished) = finished {
            value["status"]["finishedAt"] = json!(finished);
        }
        serde_json::from_value(value).unwrap()
    }

    fn lock(who: &str) -> LockInfo {
        LockInfo {
            id: "1".into(),
            who: who.into(),
            created: "2026-11-21 11:37:28.445320369 +0000 UTC".into(),
            operation: "OperationTypeApply".into(),
        }
    }

    #[test]
    fn a_lock_that_a_person_took_while_a_run_of_ours_went_on_stands() {
        let lasted = || run("me@vm:1", "2026-11-21T11:37:00Z", Some("2026-11-21T11:38:00Z"));
        let dead = |run: &TerraformRun| !takers(&lock("me@vm"), [run].into_iter()).is_empty();
        assert!(dead(&lasted()));
        for phase in [Phase::Succeeded, Phase::Superseded] {
            let mut run = lasted();
            run.status.as_mut().unwrap().phase = phase;
            assert!(!dead(&run), "{phase:?} left no lock");
        }
        let mut met = lasted();
        met.status.as_mut().unwrap().lock = Some(lock("me@vm"));
        assert!(!dead(&met), "it met the lock and did not take it");
        met.status.as_mut().unwrap().lock.as_mut().unwrap().id = "2".into();
        assert!(dead(&met));
    }

    #[test]
    fn a_lock_is_of_the_user_that_the_cli_of_the_run_had() {
        let mut run = run("@vm:1", "2026-11-21T11:37:00Z", None);
        let dead = |run: &TerraformRun, who: &str| !takers(&lock(who), [run].into_iter()).is_empty();
        assert!(dead(&run, "@vm") && !dead(&run, "me@vm"));
        run.status.as_mut().unwrap().lock_holder = "me@vm".into();
        assert!(dead(&run, "me@vm") && !dead(&run, "@vm"));
    }

    #[test]
    fn a_run_that_told_its_end_left_a_lock_only_where_its_record_says_so() {
        let at = |phase: Phase, record: Option<&[(&str, &str)]>| {
            let mut run = run("me@vm:1", "2026-11-21T11:37:00Z", Some("2026-11-21T11:38:00Z"));
            let status = run.status.as_mut().unwrap();
            status.phase = phase;
            let time = |seconds: &str| format!("2026-11-21T11:37:{seconds}Z");
            let span = |(from, to): &(&str, &str)| json!({ "from": time(from), "to": time(to) });
            status.possible_lock_windows =
                record.map(|all| serde_json::from_value(all.iter().map(span).collect()).unwrap());
            !takers(&lock("me@vm"), [&run].into_iter()).is_empty()
        };
        assert!(at(Phase::Failed, None), "a run of before that kept no record");
        assert!(
            !at(Phase::Failed, Some(&[])),
            "its checks failed while a person held the lock"
        );
        assert!(!at(Phase::Failed, Some(&[("10", "11"), ("28.5", "40")])));
        assert!(at(Phase::Failed, Some(&[("10", "11"), ("28.445", "28.445320")])));
        for phase in [Phase::Lost, Phase::Applying] {
            assert!(
                at(phase, Some(&[])),
                "{phase:?}: what it did last is not on record"
            );
        }
    }

    #[test]
    fn only_a_lock_of_an_ended_run_of_ours_is_dead() {
        let (before, after) = ("2026-11-21T11:37:00Z", "2026-11-21T11:38:00Z");
        let cases = [
            (run("me@vm:1", before, Some(after)), "me@vm", true),
            (run("me@vm:1", before, None), "me@vm", true),
            (run("me@vm:1", after, None), "me@vm", false),
            (
                run("me@vm:1", before, Some("2026-11-21T11:37:27Z")),
                "me@vm",
                false,
            ),
            (run("me@other:1", before, Some(after)), "me@vm", false),
            (run("me@vm:1", before, Some(after)), "you@vm", false),
        ];
        for (run, who, dead) in cases {
            let takers = takers(&lock(who), [&run].into_iter());
            assert_eq!(!takers.is_empty(), dead, "{run:?}");
        }
        let garbage = LockInfo {
            created: "yesterday".into(),
            ..lock("me@vm")
        };
        let lasted = run("me@vm:1", before, Some(after));
        assert!(takers(&garbage, [&lasted].into_iter()).is_empty());
    }
}
