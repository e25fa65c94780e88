//! State locks that a dead run of this stack or a command of this run left behind. They are released; any other lock stays.
//!
//! Evidence of such a lock: its holder is the user and host of a run of this stack; it was created during that run; and the run
//! neither succeeded nor met the lock itself. Each run that matches must be certain to have ended. For a run that reported its
//! end, only its possible lock windows count ([`leftover`]): outside of them, for example during health checks, it held no
//! lock.
//!
//! A run of the same lock domain has ended, because this run holds the lock of the stack's directory. A run of another pod
//! has ended if its record says so and its pod is gone. A user on the same machine has the same holder name: hence a run that
//! succeeded or met the lock is not its holder.

pub(crate) mod leftover;
pub(crate) mod release;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::{Claim, LockInfo, LockWindow, Phase, ReleasedLock, TerraformRun, TerraformRunStatus};
use sluice_api::terraform::{Reason, label_value};
use sluice_tf_core::cli::lock::parse_created;
use sluice_tf_core::cli::process::CommandExit;
use sluice_tf_core::disruption::runner_has_ended;

use crate::run::cli::arguments;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::identity;
use crate::run::lifecycle::session::RunSession;

/// The longest time after the last heartbeat in which a runner may still have worked: three intervals of the default.
const MAX_SILENCE: SignedDuration = SignedDuration::from_secs(30);

/// Runs a command. If it meets a lock that is certain to be dead, releases the lock and runs the command again.
pub(crate) async fn retry_after_unlock(
    session: &RunSession<'_>,
    step: Step,
    args: &[String],
    codes: &[i32],
) -> Result<CommandExit, RunError> {
    let RunSession { context, cli, .. } = session;
    forget_lock(session);
    let first = cli.run_expecting(step, args, codes).await;
    let Err(error @ RunError::Command { .. }) = first else {
        return first;
    };
    let Some(DeadLock { lock, run, proof }) = dead_lock(session).await else {
        return Err(error);
    };
    let id = cli.status.secrets().redact(&lock.id).into_owned();
    tracing::warn!(
        lock = id,
        run,
        proof,
        "releasing the state lock that a run of this stack left behind"
    );
    let released = cli.run(Step::Unlock, &force_unlock_arguments(&lock.id)).await;
    if released.is_err() && !release::release_lease(context, &lock.id).await {
        return Err(error);
    }
    forget_lock(session);
    let released = ReleasedLock { id, proof, run };
    cli.status.buffer(|status| status.released_lock = Some(released));
    cli.run_expecting(step, args, codes).await
}

/// `force-unlock` of one lock id.
fn force_unlock_arguments(id: &str) -> Vec<String> {
    arguments(&["force-unlock", "-no-color", "-force", id])
}

/// How long a command waits for the state lock.
pub(crate) fn timeout_argument(timeout: &str) -> String {
    format!(
        "-lock-timeout={}",
        if timeout.is_empty() { "0s" } else { timeout }
    )
}

fn forget_lock(session: &RunSession<'_>) {
    session.cli.leftover_lock.borrow_mut().forget_foreign();
    session.cli.status.buffer(|status| status.lock = None);
}

/// A lock whose holder is certain to have ended.
struct DeadLock {
    /// The lock, not redacted.
    lock: LockInfo,
    /// The run that created it.
    run: String,
    /// What proves the end of that run.
    proof: String,
}

/// The lock that the last command met, if the run that created it is certain to have ended.
async fn dead_lock(session: &RunSession<'_>) -> Option<DeadLock> {
    let RunSession { context, cli, .. } = session;
    let own = cli.leftover_lock.borrow_mut().take_own();
    if let Some(lock) = own {
        return Some(DeadLock {
            lock,
            run: context.settings.run.clone(),
            proof: "the command of this run that acquired it has ended".to_owned(),
        });
    }
    let lock = cli.leftover_lock.borrow().foreign().cloned()?;
    let (run, proof) = dead_holder(context, &lock).await?;
    Some(DeadLock { lock, run, proof })
}

/// The ended run of this stack that created the lock, and what proves its end, if that is certain.
async fn dead_holder(context: &Context, lock: &LockInfo) -> Option<(String, String)> {
    let api: Api<TerraformRun> = context.api();
    let own = context.retry(|| api.get(&context.settings.run)).await.ok()?;
    let stack = &own.spec.terraform;
    let params = ListParams::default().labels(&format!("{TERRAFORM_LABEL}={}", label_value(&stack.name)));
    let runs = context.retry(|| api.list(&params)).await.ok()?.items;
    let others = runs
        .iter()
        .filter(|run| run.metadata.name != own.metadata.name && run.spec.terraform.uid == stack.uid);
    let holders = possible_holders(lock, others);
    let mut first = None;
    for run in &holders {
        let proof = proof_of_end(context, run).await?;
        first.get_or_insert((run.metadata.name.clone()?, proof));
    }
    first
}

/// What proves that all processes of the run have ended; `None`: nothing does.
async fn proof_of_end(context: &Context, run: &TerraformRun) -> Option<String> {
    let status = run.status.as_ref()?;
    let claim = status.claim.as_ref()?;
    if context.identity.shares_locks(claim) {
        return Some("its processes held the lock of the stack's directory, which is free".to_owned());
    }
    let is_proved = status.phase.is_final() && pod_has_ended(context, claim).await;
    is_proved.then(|| format!("its pod {}/{} has ended", claim.pod_namespace, claim.pod))
}

/// The runs that may have created the lock (pure).
fn possible_holders<'a>(
    lock: &LockInfo,
    runs: impl Iterator<Item = &'a TerraformRun>,
) -> Vec<&'a TerraformRun> {
    let Some(created) = parse_created(&lock.created) else {
        return Vec::new();
    };
    let may_hold = |run: &&TerraformRun| {
        let Some(status) = &run.status else { return false };
        let is_of_run = holder(status) == Some(lock.who.as_str());
        let has_left_none = matches!(status.phase, Phase::Succeeded | Phase::Superseded);
        let left_none = has_left_none && !is_interrupted(status);
        let met_it = status.lock.as_ref().is_some_and(|met| met.id == lock.id);
        is_of_run && may_have_locked_at(status, created) && !left_none && !met_it
    };
    runs.filter(may_hold).collect()
}

/// Whether the run was asked to end before its plan or apply, perhaps during `init`, which takes the lock.
fn is_interrupted(status: &TerraformRunStatus) -> bool {
    status.phase == Phase::Superseded && status.reason == Reason::Interrupted
}

/// The `user@host` of the CLI of a run, once it is claimed.
fn holder(status: &TerraformRunStatus) -> Option<&str> {
    let claim = status.claim.as_ref()?;
    let own = Some(status.lock_holder.as_str()).filter(|own| !own.is_empty());
    Some(own.unwrap_or_else(|| identity::who(claim)))
}

/// Whether a run may have left a lock behind that was created at this time.
fn may_have_locked_at(status: &TerraformRunStatus, created: Timestamp) -> bool {
    // Only a run that reported its end has recorded the window of its last command.
    if (status.phase == Phase::Failed || is_interrupted(status))
        && let Some(windows) = &status.possible_lock_windows
    {
        let at = created.as_microsecond();
        let within = |window: &LockWindow| {
            (window.from.0.as_microsecond()..=window.to.0.as_microsecond()).contains(&at)
        };
        return windows.iter().any(within);
    }
    let began = status.started_at.as_ref().is_some_and(|time| time.0 <= created);
    // Timestamps in a status have whole seconds.
    let ended = status
        .finished_at
        .as_ref()
        .is_none_or(|time| created.as_second() <= time.0.as_second());
    began && ended && may_have_lived_at(status, created)
}

/// Whether the runner of a run without a record may have been alive at this time. The recorded end of a lost run is the time at which the
/// controller noticed it, which may be hours later. Outside of a pod, a user of the machine has the same holder name in locks.
fn may_have_lived_at(status: &TerraformRunStatus, time: Timestamp) -> bool {
    let is_in_pod = status.claim.as_ref().is_some_and(|claim| !claim.pod.is_empty());
    let heartbeat = status.heartbeat_at.as_ref();
    is_in_pod || heartbeat.is_none_or(|heartbeat| time <= heartbeat.0 + MAX_SILENCE)
}

/// Whether the pod of this claim is certain to have ended. False without access to pods, or if the API serves none.
async fn pod_has_ended(context: &Context, claim: &Claim) -> bool {
    if claim.pod.is_empty() || claim.pod_namespace.is_empty() || claim.pod_uid.is_empty() {
        return false;
    }
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &claim.pod_namespace);
    ended_by_answer(&claim.pod_uid, api.get(&claim.pod).await)
}

/// A deleted pod disappears from the API once its node has confirmed the end of its processes, or after a forced deletion. A
/// pod of the same name with another uid proves that the first is gone.
fn ended_by_answer(uid: &str, answer: Result<Pod, kube::Error>) -> bool {
    match answer {
        Ok(pod) => {
            let has_ended = pod.status.as_ref().is_some_and(runner_has_ended);
            pod.metadata.uid.is_some_and(|found| found != uid) || has_ended
        }
        // An API without pods answers 404 too, but its details do not name them.
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            status.details.is_some_and(|details| details.kind == "pods")
        }
        Err(error) => {
            tracing::warn!(%error, "the pod of a lock's holder cannot be read");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
    fn a_users_lock_acquired_during_a_run_is_retained() {
        let lasted = || run("me@vm:1", "2026-11-21T11:37:00Z", Some("2026-11-21T11:38:00Z"));
        let dead = |run: &TerraformRun| !possible_holders(&lock("me@vm"), [run].into_iter()).is_empty();
        assert!(dead(&lasted()));
        for phase in [Phase::Succeeded, Phase::Superseded] {
            let mut run = lasted();
            run.status.as_mut().unwrap().phase = phase;
            assert!(!dead(&run), "{phase:?} left no lock");
        }
        let mut interrupted = lasted();
        let status = interrupted.status.as_mut().unwrap();
        (status.phase, status.reason) = (Phase::Superseded, Reason::Interrupted.into());
        assert!(dead(&interrupted), "its init may have left the lock");
        interrupted.status.as_mut().unwrap().possible_lock_windows = Some(Vec::new());
        assert!(!dead(&interrupted), "no command of it may have left a lock");
        let mut met = lasted();
        met.status.as_mut().unwrap().lock = Some(lock("me@vm"));
        assert!(!dead(&met), "it met the lock and did not take it");
        met.status.as_mut().unwrap().lock.as_mut().unwrap().id = "2".into();
        assert!(dead(&met));
    }

    #[test]
    fn a_users_lock_after_the_last_heartbeat_of_a_lost_run_is_retained() {
        let with = |heartbeat: &str, pod: &str| {
            let mut run = run("me@vm:1", "2026-11-21T11:00:00Z", Some("2026-11-21T12:00:00Z"));
            let status = run.status.as_mut().unwrap();
            status.heartbeat_at = Some(serde_json::from_value(json!(heartbeat)).unwrap());
            pod.clone_into(&mut status.claim.as_mut().unwrap().pod);
            !possible_holders(&lock("me@vm"), [&run].into_iter()).is_empty()
        };
        assert!(with("2026-11-21T11:37:20.000000Z", ""), "between two heartbeats");
        assert!(!with("2026-11-21T11:36:20.000000Z", ""), "the runner was dead");
        assert!(
            with("2026-11-21T11:36:20.000000Z", "net-abcd-1-x"),
            "alone in its pod"
        );
    }

    #[test]
    fn a_lock_matches_the_user_of_the_runs_cli() {
        let mut run = run("@vm:1", "2026-11-21T11:37:00Z", None);
        let dead =
            |run: &TerraformRun, who: &str| !possible_holders(&lock(who), [run].into_iter()).is_empty();
        assert!(dead(&run, "@vm") && !dead(&run, "me@vm"));
        run.status.as_mut().unwrap().lock_holder = "me@vm".into();
        assert!(dead(&run, "me@vm") && !dead(&run, "@vm"));
    }

    #[test]
    fn a_completed_run_leaves_only_recorded_locks() {
        let at = |phase: Phase, record: Option<&[(&str, &str)]>| {
            let mut run = run("me@vm:1", "2026-11-21T11:37:00Z", Some("2026-11-21T11:38:00Z"));
            let status = run.status.as_mut().unwrap();
            status.phase = phase;
            let time = |seconds: &str| format!("2026-11-21T11:37:{seconds}Z");
            let span = |(from, to): &(&str, &str)| json!({ "from": time(from), "to": time(to) });
            status.possible_lock_windows =
                record.map(|all| serde_json::from_value(all.iter().map(span).collect()).unwrap());
            !possible_holders(&lock("me@vm"), [&run].into_iter()).is_empty()
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
    fn only_a_lock_of_an_ended_run_of_the_stack_is_dead() {
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
            let holders = possible_holders(&lock(who), [&run].into_iter());
            assert_eq!(!holders.is_empty(), dead, "{run:?}");
        }
        let garbage = LockInfo {
            created: "yesterday".into(),
            ..lock("me@vm")
        };
        let lasted = run("me@vm:1", before, Some(after));
        assert!(possible_holders(&garbage, [&lasted].into_iter()).is_empty());
    }

    #[test]
    fn a_lock_is_released_with_the_words_of_upstream() {
        assert_eq!(
            force_unlock_arguments("id").join(" "),
            "force-unlock -no-color -force id"
        );
    }

    fn refused(status: Value) -> kube::Error {
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    fn found(uid: &str, phase: &str) -> Pod {
        let pod = json!({ "metadata": { "name": "p", "uid": uid }, "status": { "phase": phase } });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn only_a_missing_replaced_or_ended_pod_has_ended() {
        let gone = json!({ "status": "Failure", "message": "", "reason": "NotFound", "code": 404,
            "details": { "kind": "pods", "name": "p" } });
        let unknown_kind =
            json!({ "status": "Failure", "message": "page not found", "reason": "NotFound", "code": 404 });
        let forbidden = json!({ "status": "Failure", "message": "", "reason": "Forbidden", "code": 403,
            "details": { "kind": "pods", "name": "p" } });
        for (uid, phase, wanted) in [
            ("other", "Running", true),
            ("u", "Failed", true),
            ("u", "Succeeded", true),
            ("u", "Running", false),
            ("u", "Unknown", false),
            ("u", "", false),
        ] {
            assert_eq!(
                ended_by_answer("u", Ok(found(uid, phase))),
                wanted,
                "{uid} {phase}"
            );
        }
        assert!(ended_by_answer("u", Err(refused(gone))));
        assert!(!ended_by_answer("u", Err(refused(unknown_kind))));
        assert!(!ended_by_answer("u", Err(refused(forbidden))));
        assert!(!ended_by_answer("u", Err(kube::Error::Service("away".into()))));
    }
}
