//! The row of a `Repo` in `kubectl get`: its present commit, and how far that is.
//!
//! Only two things count: the run of the present commit and the present spec, and, where the tf-controller has found that these
//! need no run, the status of the Terraform object. A run of another commit, or of an earlier spec, never changes the row.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use sluice_api::condition::{ConditionStatus, ConditionType as _, ConditionUpdate, TerraformCondition};
use sluice_api::repo::{ApprovalMode, Repo, RepoCondition, RepoStatus, RunStatus};
use sluice_api::revision::Revision;
use sluice_api::run::{Phase, TerraformRun, TerraformRunStatus};
use sluice_api::source::GitRepository;
use sluice_api::terraform::{Reason, Terraform};

use super::children::{approve_plan, pending_plan, source_differs, stack_differs};
use super::{APPROVAL_REQUIRED, Observed};

/// Reasons of a stack that fails before it starts a run.
const FAILURES_BEFORE_RUN: [Reason; 7] = [
    Reason::AccessDenied,
    Reason::PlanEncryptionFailed,
    Reason::TemplateGenerationFailed,
    Reason::TfExecInitFailed,
    Reason::TfExecNewFailed,
    Reason::ToolNotInstalled,
    Reason::VarsGenerationFailed,
];
/// Reasons of a stack that waits before it starts a run. While its first artifact is stored, it has none.
const WAITS_BEFORE_RUN: [Reason; 2] = [Reason::ArtifactFailed, Reason::DependencyNotReady];

/// No approval applies such a plan.
const PLAN_ONLY: &str = "The plan is not applied: the Terraform object has planOnly";
/// With approval Auto a plan waits only for what the Terraform object demands, or where it finds another state.
const AUTO_HOLDS: &str = "The plan is not applied automatically";

/// The present commit and its run.
#[derive(Clone, Debug, Default)]
pub(super) struct Row<'a> {
    /// The revision of the artifact, e.g. `master@sha1:<commit>`. Empty: the branch was not read yet.
    revision: &'a str,
    status: RunStatus,
    /// Its run; `None`: it has none yet, or needs none.
    run: Option<&'a TerraformRun>,
    /// The id of the plan that waits for an approval.
    pending_plan: Option<&'a str>,
}

impl<'a> Row<'a> {
    /// Returns the row of these objects.
    pub(super) fn of(repo: &Repo, observed: &'a Observed) -> Self {
        let source = observed.source.as_ref();
        let Some(revision) = source.and_then(|source| present_revision(repo, source)) else {
            return Self::default();
        };
        let new = Self {
            revision,
            ..Self::default()
        };
        let stack = observed.stack.as_ref();
        let Some(stack) = stack.filter(|stack| !stack_differs(repo, stack)) else {
            return new;
        };
        let run = observed.run.as_ref();
        let run = run.filter(|run| is_of_commit(run, stack, revision));
        let (status, run, waits) = if let Some(run) = run.filter(|run| is_of_spec(run, repo, stack)) {
            (run_status(run), Some(run), has_waiting_plan(run))
        } else {
            let settled = settled_status(stack, revision);
            let status = settled.unwrap_or_default();
            let run = run.filter(|_| settled.is_some());
            (status, run, status == RunStatus::Pending)
        };
        Self {
            status,
            run,
            pending_plan: unapproved_plan(repo, stack).filter(|_| waits),
            ..new
        }
    }

    /// Whether a run has yet to start: there is none, or an approved plan waits for its apply.
    fn awaits_run(&self) -> bool {
        let is_approved = || self.pending_plan.is_none() && self.run.is_some_and(has_waiting_plan);
        self.run.is_none() || is_approved()
    }

    /// Returns why its plan is not applied, and how to approve it.
    fn approval_advice(&self, repo: &Repo, plan: &str) -> String {
        let report = self.run.and_then(|run| run.status.as_ref());
        let text =
            |field: fn(&TerraformRunStatus) -> &String| report.map(field).filter(|text| !text.is_empty());
        if is_manual(repo) {
            let mismatch = text(|report| &report.state_mismatch);
            let check = mismatch.map(|mismatch| format!(". Check the state first: {mismatch}"));
            return format!(
                "Set spec.approvePlan to {plan} to apply this plan{}",
                check.unwrap_or_default()
            );
        }
        let hold = text(|report| &report.auto_apply_hold).map_or_else(
            || "; the Terraform object has the reason".to_owned(),
            |hold| format!(": {hold}"),
        );
        format!("{AUTO_HOLDS}{hold}. To approve {plan}, set spec.approval to Manual first")
    }

    /// Sets the fields of the status.
    pub(super) fn report(&self, repo: &Repo, status: &mut RepoStatus) {
        status.git_sha = commit(self.revision);
        if !status.git_sha.is_empty() {
            status.observed_source = present_source(repo);
        }
        status.run_status = self.status;
        let plan = self.pending_plan.filter(|_| is_manual(repo));
        plan.unwrap_or_default().clone_into(&mut status.pending_plan);
        let Some(run) = self.run else { return };
        status.run_name = run.name_any();
        if let Some(report) = &run.status {
            status.run_job_name.clone_from(&report.job_name);
            status.log_secret.clone_from(&report.log_secret);
        }
    }
}

/// Returns the commit of a revision.
fn commit(revision: &str) -> String {
    let revision = Revision::parse(revision);
    revision.hash().unwrap_or_default().to_owned()
}

/// Returns branch and URL, as the status records what a commit was read from.
fn present_source(repo: &Repo) -> String {
    format!("{} {}", repo.spec.branch, repo.spec.url)
}

fn is_manual(repo: &Repo) -> bool {
    repo.spec.approval == ApprovalMode::Manual
}

/// Returns the revision of the artifact, if it is that of the present URL and branch.
pub(super) fn present_revision<'a>(repo: &Repo, source: &'a GitRepository) -> Option<&'a str> {
    if source_differs(repo, source) {
        return None;
    }
    let status = source.status.as_ref()?;
    let revision = status.artifact.as_ref()?.revision.as_str();
    let is_read = status.observed_generation == source.metadata.generation
        && source_ready(source).is_some_and(|(ready, _)| ready == ConditionStatus::True);
    // While the branch is read again or cannot be read, the artifact of this URL and branch stays the present one.
    let before = repo.status.as_ref();
    let is_known = before.is_some_and(|before| {
        before.observed_source == present_source(repo)
            && !before.git_sha.is_empty()
            && before.git_sha == commit(revision)
    });
    (is_read || is_known).then_some(revision)
}

/// Whether this run, the newest one, belongs to this very stack and to the present commit.
fn is_of_commit(run: &TerraformRun, stack: &Terraform, revision: &str) -> bool {
    let is_own = stack.uid().is_some_and(|uid| uid == run.spec.terraform.uid);
    let is_superseded = run
        .status
        .as_ref()
        .is_some_and(|status| status.phase == Phase::Superseded);
    is_own && run.spec.source.revision == revision && !is_superseded
}

/// Whether this run is that of the present spec. An approval is an edit of the stack too, but concerns the plan of this very run.
fn is_of_spec(run: &TerraformRun, repo: &Repo, stack: &Terraform) -> bool {
    let approved = approve_plan(repo, Some(stack));
    let plan = run.status.as_ref().map(|status| status.plan_id.as_str());
    let is_approved = !approved.is_empty() && plan == Some(&approved);
    Some(run.spec.terraform.generation) == stack.metadata.generation || is_approved
}

/// Returns how far a run is.
fn run_status(run: &TerraformRun) -> RunStatus {
    let Some(status) = &run.status else {
        return RunStatus::Pending;
    };
    match status.phase {
        Phase::Pending => RunStatus::Pending,
        Phase::Succeeded if has_waiting_plan(run) => RunStatus::Pending,
        Phase::Succeeded => RunStatus::Completed,
        Phase::Failed | Phase::Lost | Phase::Superseded => RunStatus::Failed,
        Phase::Claimed
        | Phase::Preparing
        | Phase::Initializing
        | Phase::Planning
        | Phase::Applying
        | Phase::WritingOutputs
        | Phase::CheckingHealth
        | Phase::BreakingTheGlass => RunStatus::Running,
    }
}

/// Whether a run ended with a plan that it did not apply.
fn has_waiting_plan(run: &TerraformRun) -> bool {
    run.status.as_ref().is_some_and(|status| {
        status.phase == Phase::Succeeded && status.has_changes == Some(true) && !status.attempted_apply
    })
}

/// Returns the id of the plan that waits and is not approved yet.
fn unapproved_plan<'a>(repo: &Repo, stack: &'a Terraform) -> Option<&'a str> {
    let plan = pending_plan(stack)?;
    (approve_plan(repo, Some(stack)) != *plan).then_some(plan)
}

/// Returns how far a commit is for which no run is due: the tf-controller has decided on it and on the present spec. `None`: a run
/// is due, or something else is.
fn settled_status(stack: &Terraform, revision: &str) -> Option<RunStatus> {
    let status = stack.status.as_ref()?;
    if status.observed_generation != stack.metadata.generation || status.last_attempted_revision != revision {
        return None;
    }
    let conditions = &status.conditions;
    let is_true = |kind: &str| find(conditions, kind).is_some_and(|found| found.status == "True");
    let planned = Reason::TerraformPlannedWithChanges.as_str();
    let waits = find(conditions, "Ready").is_some_and(|ready| ready.reason == planned);
    if is_true("Ready") {
        Some(RunStatus::Completed)
    } else if is_true("Stalled") {
        Some(RunStatus::Failed)
    } else if waits && pending_plan(stack).is_some() {
        Some(RunStatus::Pending)
    } else {
        None
    }
}

/// Returns the condition of the `Repo`.
pub(super) fn ready(repo: &Repo, observed: &Observed, row: &Row<'_>) -> ConditionUpdate<RepoCondition> {
    let update = |status, reason: &str, message: &str| {
        ConditionUpdate::new(RepoCondition::Ready, status, reason, message)
    };
    if let Some(message) = observed.source.as_ref().and_then(source_failure) {
        return update(ConditionStatus::False, "SourceFailed", &message);
    }
    let blocking = blocking_condition(repo, observed, row);
    let decided = || decided_condition(observed.stack.as_ref()?, row.revision);
    let stack = blocking.or_else(decided);
    let stated = row.run.and_then(|run| run.status.as_ref());
    let run = stated
        .map(|status| status.message.as_str())
        .filter(|message| !message.is_empty());
    let message = run.or_else(|| stack.map(|ready| ready.message.as_str()));
    let reason = row.status.as_str();
    match row.status {
        RunStatus::Completed => {
            let applied = format!("Commit {} is applied", commit(row.revision));
            update(ConditionStatus::True, reason, &applied)
        }
        RunStatus::Failed => update(
            ConditionStatus::False,
            reason,
            message.unwrap_or("The run failed"),
        ),
        RunStatus::New if row.revision.is_empty() => {
            let wait = format!("Waiting for the branch {} of the repository", repo.spec.branch);
            update(ConditionStatus::Unknown, reason, &wait)
        }
        RunStatus::Pending if row.pending_plan.is_some() => {
            let plan = row.pending_plan.unwrap_or_default();
            let is_plan_only = |stack: &Terraform| stack.spec.plan_only;
            if observed.stack.as_ref().is_some_and(is_plan_only) {
                return update(ConditionStatus::Unknown, reason, PLAN_ONLY);
            }
            let advice = row.approval_advice(repo, plan);
            update(ConditionStatus::Unknown, APPROVAL_REQUIRED, &advice)
        }
        RunStatus::New | RunStatus::Pending | RunStatus::Running => match blocking {
            Some(failure) if !is_one_of(failure, &WAITS_BEFORE_RUN) => {
                update(ConditionStatus::False, &failure.reason, &failure.message)
            }
            _ => update(
                ConditionStatus::Unknown,
                reason,
                message.unwrap_or("Waiting for a run"),
            ),
        },
    }
}

/// Returns `Ready` of the stack, if it says why a run does not start. If it is what the newest run reported, which is of another commit or
/// spec, it describes that run.
fn blocking_condition<'a>(repo: &Repo, observed: &'a Observed, row: &Row<'_>) -> Option<&'a Condition> {
    let stack = observed.stack.as_ref().filter(|_| row.awaits_run())?;
    let conditions = &stack.status.as_ref()?.conditions;
    let ready = find(conditions, "Ready")?;
    let is_present = ready.observed_generation == stack.metadata.generation && !stack_differs(repo, stack);
    let is_before_run = is_one_of(ready, &FAILURES_BEFORE_RUN)
        || is_one_of(ready, &WAITS_BEFORE_RUN)
        || is_stalled_before_run(conditions, ready);
    let newest = observed.run.as_ref();
    (ready.status == "False" && is_before_run && is_present && !is_of_run(ready, newest)).then_some(ready)
}

fn is_one_of(ready: &Condition, reasons: &[Reason]) -> bool {
    reasons.iter().any(|reason| ready.reason == *reason)
}

/// Whether only an edit of the stack helps. After failed runs, `Stalled` has another reason than `Ready`.
fn is_stalled_before_run(conditions: &[Condition], ready: &Condition) -> bool {
    find(conditions, "Stalled").is_some_and(|stalled| {
        let is_present = stalled.observed_generation == ready.observed_generation;
        stalled.status == "True" && stalled.reason == ready.reason && is_present
    })
}

/// Whether the condition is what a run reported.
fn is_of_run(ready: &Condition, run: Option<&TerraformRun>) -> bool {
    run.and_then(|run| run.status.as_ref()).is_some_and(|status| {
        let message = TerraformCondition::MESSAGE_LIMIT.truncate(&status.message);
        status.reason == ready.reason && message == ready.message
    })
}

/// Returns `Ready` of a stack, if it is about this revision and not `True`.
fn decided_condition<'a>(stack: &'a Terraform, revision: &str) -> Option<&'a Condition> {
    let status = stack.status.as_ref()?;
    let ready = find(&status.conditions, "Ready")?;
    let is_present =
        status.last_attempted_revision == revision && ready.observed_generation == stack.metadata.generation;
    (is_present && ready.status != "True").then_some(ready)
}

/// Returns why the branch cannot be read.
fn source_failure(source: &GitRepository) -> Option<String> {
    let status = source.status.as_ref()?;
    let (ready, message) = source_ready(source)?;
    let is_current = status.observed_generation == source.metadata.generation;
    (is_current && ready == ConditionStatus::False).then(|| message.to_owned())
}

/// Returns status and message of `Ready`.
fn source_ready(source: &GitRepository) -> Option<(ConditionStatus, &str)> {
    let ready = find(&source.status.as_ref()?.conditions, "Ready")?;
    Some((ConditionStatus::parse(&ready.status), &ready.message))
}

/// Returns the condition of a type.
fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}
