//! Why the controller ends a run in place of its runner. Pure.

use kube::ResourceExt as _;
use sluice_api::annotation::is_cancelled;
use sluice_api::run::{Action, Phase, TerraformRun};
use sluice_api::terraform::Reason;
use sluice_tf_core::disruption::is_repeated;

use crate::decide::{Facts, Inputs};
use crate::executor::RunnerEnd;
use crate::memory::MemoryQuantity;

/// Why the controller ends a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EndReason {
    /// The reason.
    pub(super) reason: &'static str,
    /// Public message.
    pub(super) message: String,
    /// The memory limit that the runner exceeded.
    exceeded_memory: Option<MemoryQuantity>,
}

impl EndReason {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            exceeded_memory: None,
        }
    }

    /// Returns the reason of a run whose runner ended so.
    fn of_runner(end: &RunnerEnd, message: String) -> Self {
        Self {
            exceeded_memory: end.exceeded_memory,
            ..Self::new(end.reason.as_str(), message)
        }
    }

    /// Returns the peak of memory that the end of the run shows, in bytes; `None`: it shows none. A runner that exceeded its limit did
    /// not report its peak, which is the limit at least.
    pub(super) fn peak_memory(&self, run: &TerraformRun) -> Option<i64> {
        let limit = i64::try_from(self.exceeded_memory?.bytes()).ok()?;
        let reported = run.status.as_ref().and_then(|status| status.peak_memory_bytes);
        Some(reported.unwrap_or(0).max(limit))
    }
}

/// Why a claimed run is lost.
pub(super) fn lost_reason(run: &TerraformRun, end: Option<RunnerEnd>) -> EndReason {
    let has_begun = run.status.as_ref().is_some_and(|status| status.attempted_apply);
    match end {
        Some(end) => {
            // As the history has it: an apply whose start is not recorded changed nothing.
            let is_interrupted = is_disruption(&end) && may_repeat(run);
            let consequence = if run.spec.action == Action::Apply && !has_begun && is_interrupted {
                "The apply had not begun: the next run applies the same plan"
            } else {
                "What it has changed is not known: a new plan shows it"
            };
            EndReason::of_runner(&end, format!("{}. {consequence}", end.message))
        }
        None => EndReason::new(
            Reason::RunLost.as_str(),
            "the runner process ended without a report, or sent no heartbeat for too long",
        ),
    }
}

/// How a run ends whose runner ended before it claimed the run. If Kubernetes ended the pod, or the pod was deleted, the run is interrupted
/// and repeated with the same plan, up to a limit. The pod of an eviction may be gone before its reason is read.
pub(super) fn end_before_claim(run: &TerraformRun, end: Option<RunnerEnd>) -> (Phase, EndReason) {
    let is_deleted = |end: &RunnerEnd| end.reason == Reason::RunLost && end.is_pod_deleted;
    let ended_early = end.as_ref().filter(|end| is_disruption(end) || is_deleted(end));
    match ended_early.filter(|_| may_repeat(run)) {
        Some(end) => {
            let text = format!("the run did not begin, and is repeated: {}", end.message);
            let why = EndReason::new(Reason::Interrupted.as_str(), text);
            (Phase::Superseded, why)
        }
        None => (Phase::Failed, failed_start_reason(end)),
    }
}

/// Returns whether a run is repeated with the same plan if Kubernetes ends it before its work begins: up to a limit, and not if a user has
/// cancelled it. As its runner has it.
pub(super) fn may_repeat(run: &TerraformRun) -> bool {
    is_repeated(run.spec.interruptions) && !is_cancelled(run.annotations())
}

/// Returns whether Kubernetes ended the pod for a reason of its own.
const fn is_disruption(end: &RunnerEnd) -> bool {
    matches!(end.reason, Reason::Evicted | Reason::NodeLost)
}

/// Why a run failed whose runner ended before it claimed the run.
fn failed_start_reason(end: Option<RunnerEnd>) -> EndReason {
    let Some(end) = end else {
        return EndReason::new(Reason::RunLost.as_str(), "the runner ended before it began");
    };
    let text = format!("the run did not begin: {}", end.message);
    EndReason::of_runner(&end, text)
}

/// Why a run ends before it was started, without its inputs.
pub(super) fn not_started_reason(facts: &Facts) -> EndReason {
    let because = |reason, message: &str| EndReason::new(reason, message);
    if facts.suspended {
        return because("Suspended", "the object was suspended before the run started");
    }
    if let Some(field) = &facts.unsupported_field {
        let text = format!(
            "the spec changed to an unsupported value before the run started: {}",
            field.text
        );
        return because(field.reason, &text);
    }
    match &facts.inputs {
        Inputs::Failed { message, .. } => {
            let text = format!("its inputs became unavailable before the run started: {message}");
            because("InputsUnknown", &text)
        }
        _ if facts.deleting => because("Deleted", "the object was deleted before the run started"),
        Inputs::Unresolved | Inputs::Known(_) => {
            because("InputsUnknown", "its source was deleted before the run started")
        }
    }
}

/// Why a run of a deletion ends before it was started, for want of its ServiceAccount.
pub(super) fn no_account_reason(own: &str, other: &str) -> EndReason {
    EndReason::new(
        Reason::ServiceAccountNotFound.as_str(),
        format!(
            "ServiceAccount {own} does not exist: the deletion continues under {other} of --destroy-service-account"
        ),
    )
}

#[cfg(test)]
mod tests {
    use sluice_api::annotation::CANCEL;
    use sluice_tf_core::disruption::INTERRUPTION_LIMIT;

    use super::*;
    use crate::decide::{UnsupportedField, facts_of_a_new_stack};

    #[test]
    fn a_destroy_without_its_account_names_both_accounts() {
        let why = no_account_reason("deployer", "destroyer");
        insta::assert_snapshot!(format!("{}: {}", why.reason, why.message), @"ServiceAccountNotFound: ServiceAccount deployer does not exist: the deletion continues under destroyer of --destroy-service-account");
    }

    #[test]
    fn a_run_that_exceeded_its_memory_records_the_limit_as_its_peak() {
        let end = |reason, exceeded: Option<u64>| RunnerEnd {
            reason,
            message: "killed".into(),
            exceeded_memory: exceeded.map(MemoryQuantity::from_bytes),
            is_pod_deleted: false,
        };
        let run = |peak: Option<i64>| -> TerraformRun {
            serde_json::from_value(
                serde_json::json!({ "metadata": {}, "status": { "peakMemoryBytes": peak },
                "spec": { "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
                    "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                    "terraform": { "name": "net", "uid": "u", "generation": 1 } } }),
            )
            .unwrap()
        };
        let killed = || Some(end(Reason::OomKilled, Some(700)));
        for why in [lost_reason(&run(None), killed()), failed_start_reason(killed())] {
            assert_eq!(why.peak_memory(&run(None)), Some(700));
            assert_eq!(why.peak_memory(&run(Some(300))), Some(700), "init needed less");
            assert_eq!(why.peak_memory(&run(Some(900))), Some(900));
        }
        let evicted = lost_reason(&run(None), Some(end(Reason::Evicted, None)));
        assert_eq!(evicted.peak_memory(&run(Some(300))), None, "it stays as reported");
    }

    /// An apply of a stored plan after this number of interrupted runs.
    fn apply(interruptions: i64, attempted_apply: bool) -> TerraformRun {
        serde_json::from_value(
            serde_json::json!({ "metadata": {}, "status": { "attemptedApply": attempted_apply },
            "spec": { "action": "Apply", "attempt": 1, "deadline": "1h", "interruptions": interruptions, "trigger": "Approval",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u", "generation": 1 } } }),
        )
        .unwrap()
    }

    /// As [`apply`], and a user has cancelled it.
    fn cancelled_apply() -> TerraformRun {
        let mut run = apply(0, false);
        run.annotations_mut().insert(CANCEL.to_owned(), "now".to_owned());
        run
    }

    fn ended(reason: Reason) -> RunnerEnd {
        RunnerEnd {
            reason,
            message: "the pod was ended".into(),
            exceeded_memory: None,
            is_pod_deleted: false,
        }
    }

    #[test]
    fn an_eviction_before_the_claim_interrupts_the_run_until_the_last_repeat() {
        let line_of = |run: &TerraformRun, end| {
            let (phase, why) = end_before_claim(run, Some(end));
            format!("{} {}: {}", phase.as_str(), why.reason, why.message)
        };
        let line = |interruptions, end| line_of(&apply(interruptions, false), end);
        let text = |reason, interruptions| line(interruptions, ended(reason));
        let deleted = |reason| RunnerEnd {
            is_pod_deleted: true,
            ..ended(reason)
        };
        insta::assert_snapshot!([
            text(Reason::Evicted, 0),
            text(Reason::NodeLost, INTERRUPTION_LIMIT - 1),
            text(Reason::Evicted, INTERRUPTION_LIMIT),
            text(Reason::RunLost, 0),
            line(0, deleted(Reason::RunLost)),
            line(INTERRUPTION_LIMIT, deleted(Reason::RunLost)),
            line(0, deleted(Reason::OomKilled)),
            line_of(&cancelled_apply(), ended(Reason::Evicted)),
        ].join("\n"), @"
        Superseded Interrupted: the run did not begin, and is repeated: the pod was ended
        Superseded Interrupted: the run did not begin, and is repeated: the pod was ended
        Failed Evicted: the run did not begin: the pod was ended
        Failed RunLost: the run did not begin: the pod was ended
        Superseded Interrupted: the run did not begin, and is repeated: the pod was ended
        Failed RunLost: the run did not begin: the pod was ended
        Failed OOMKilled: the run did not begin: the pod was ended
        Failed Evicted: the run did not begin: the pod was ended
        ");
    }

    #[test]
    fn a_lost_apply_says_whether_its_plan_is_applied_again() {
        let text = |reason, run: &TerraformRun| {
            let why = lost_reason(run, Some(ended(reason)));
            format!("{}: {}", why.reason, why.message)
        };
        insta::assert_snapshot!([
            text(Reason::Evicted, &apply(0, false)),
            text(Reason::Evicted, &apply(0, true)),
            text(Reason::Evicted, &apply(INTERRUPTION_LIMIT, false)),
            text(Reason::RunLost, &apply(0, false)),
            text(Reason::Evicted, &cancelled_apply()),
        ].join("\n"), @"
        Evicted: the pod was ended. The apply had not begun: the next run applies the same plan
        Evicted: the pod was ended. What it has changed is not known: a new plan shows it
        Evicted: the pod was ended. What it has changed is not known: a new plan shows it
        RunLost: the pod was ended. What it has changed is not known: a new plan shows it
        Evicted: the pod was ended. What it has changed is not known: a new plan shows it
        ");
    }

    #[test]
    fn a_run_that_never_started_reports_why() {
        let why = |edit: &dyn Fn(&mut Facts)| {
            let mut facts = facts_of_a_new_stack();
            facts.inputs = Inputs::Unresolved;
            edit(&mut facts);
            let why = not_started_reason(&facts);
            format!("{}: {}", why.reason, why.message)
        };
        let failed = |f: &mut Facts| {
            f.inputs = Inputs::Failed {
                reason: "VarsGenerationFailed",
                message: "cannot read Secret login".into(),
            };
        };
        insta::assert_snapshot!([
            why(&|f| f.suspended = true),
            why(&|f| f.unsupported_field = Some(UnsupportedField { reason: "InvalidToolVersion", text: "spec.tool.version: no version".into() })),
            why(&failed),
            why(&|f| f.deleting = true),
            why(&|f| { f.deleting = true; failed(f); }),
            why(&|_| ()),
        ].join("\n"), @"
        Suspended: the object was suspended before the run started
        InvalidToolVersion: the spec changed to an unsupported value before the run started: spec.tool.version: no version
        InputsUnknown: its inputs became unavailable before the run started: cannot read Secret login
        Deleted: the object was deleted before the run started
        InputsUnknown: its inputs became unavailable before the run started: cannot read Secret login
        InputsUnknown: its source was deleted before the run started
        ");
    }
}
