//! What a record says about a run: taken from the objects of the API as they are now.

use kube::ResourceExt as _;
use sluice_api::condition::{SourceCondition, find};
use sluice_api::run::{RunSource, TerraformRun, TerraformRunStatus};
use sluice_api::source::GitRepository;
use sluice_api::terraform::plan_id::PlanId;
use sluice_runtime::redact::MaskedUrl;

use super::error::NotEnded;
use super::statement::{
    CommitSignature, RecordedApproval, RecordedInputs, RecordedPlan, RecordedResult, RecordedRun,
    RecordedSource, RecordedStack, RecordedState, RunRecord, SignatureStatus,
};

/// The objects that a record is made from.
#[derive(Clone, Debug)]
pub struct RecordedObjects<'a> {
    /// The run.
    pub run: &'a TerraformRun,
    /// Its source, or why it is not known.
    pub source: Result<&'a GitRepository, String>,
    /// The run that made the plan that `run` applied, if it still exists.
    pub plan_run: Option<&'a TerraformRun>,
}

/// Returns the record of a run.
///
/// # Errors
/// The run has not ended.
pub fn record_of(objects: &RecordedObjects<'_>) -> Result<RunRecord, NotEnded> {
    let run = objects.run;
    let status = run.status.clone().unwrap_or_default();
    if !status.phase.is_final() {
        return Err(NotEnded(status.phase));
    }
    let spec = &run.spec;
    Ok(RunRecord {
        run: RecordedRun {
            namespace: run.namespace().unwrap_or_default(),
            name: run.name_any(),
            uid: run.uid().unwrap_or_default(),
            action: spec.action.as_str().to_owned(),
            trigger: spec.trigger.as_str().to_owned(),
            attempt: spec.attempt,
            destroy: spec.destroy,
            created_at: run.creation_timestamp(),
        },
        stack: RecordedStack {
            name: spec.terraform.name.clone(),
            uid: spec.terraform.uid.clone(),
            generation: spec.terraform.generation,
        },
        source: source_of(&spec.source, &objects.source),
        inputs: RecordedInputs {
            digest: spec.inputs_digest.clone(),
            bundle_digest: spec.bundle_digest.clone(),
        },
        plan: plan_of(run, &status, objects.plan_run),
        approvals: approvals_of(run, &status),
        result: result_of(status),
    })
}

/// Returns the PlanApprovals that the apply counted; without any, what the controller wrote as the approver.
fn approvals_of(run: &TerraformRun, status: &TerraformRunStatus) -> Vec<RecordedApproval> {
    let counted = status.approvals.iter().map(|counted| RecordedApproval {
        approver: counted.approver.clone(),
        plan_approval: counted.name.clone(),
    });
    let written = Some(&run.spec.approved_by).filter(|by| status.approvals.is_empty() && !by.is_empty());
    let written = written.map(|by| RecordedApproval {
        approver: by.clone(),
        plan_approval: String::new(),
    });
    counted.chain(written).collect()
}

fn source_of(used: &RunSource, found: &Result<&GitRepository, String>) -> RecordedSource {
    let current = found
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|source| still_has(source, used));
    let repository = current.as_ref().map_or_else(
        |_| String::new(),
        |source| MaskedUrl::new(&source.spec.url).to_string(),
    );
    RecordedSource {
        kind: used.kind.clone(),
        namespace: used.namespace.clone(),
        name: used.name.clone(),
        repository,
        revision: used.revision.clone(),
        artifact_digest: used.digest.clone(),
        commit_signature: current.map_or_else(unknown, commit_signature),
    }
}

/// Returns the source if its status describes the artifact of the run and its present spec.
fn still_has<'a>(source: &'a GitRepository, used: &RunSource) -> Result<&'a GitRepository, String> {
    let status = source.status.as_ref();
    let artifact = status.and_then(|status| status.artifact.as_ref());
    let is_same =
        artifact.is_some_and(|artifact| artifact.digest == used.digest && artifact.revision == used.revision);
    if !is_same {
        return Err("the source has another artifact now".to_owned());
    }
    let observed = status.and_then(|status| status.observed_generation);
    if observed != source.metadata.generation {
        return Err("the source was edited and is not reconciled yet".to_owned());
    }
    Ok(source)
}

fn unknown(why: String) -> CommitSignature {
    CommitSignature {
        status: SignatureStatus::Unknown,
        mode: String::new(),
        message: why,
    }
}

fn commit_signature(source: &GitRepository) -> CommitSignature {
    if source.spec.verify.is_none() {
        return CommitSignature {
            status: SignatureStatus::NotRequested,
            mode: String::new(),
            message: String::new(),
        };
    }
    let status = source.status.clone().unwrap_or_default();
    let verified = find(&status.conditions, SourceCondition::SourceVerified)
        .filter(|condition| condition.status == "True")
        .filter(|condition| condition.observed_generation == source.metadata.generation);
    match verified {
        Some(condition) => CommitSignature {
            status: SignatureStatus::Verified,
            mode: status.source_verification_mode.unwrap_or_default(),
            message: condition.message.clone(),
        },
        None => unknown("the source has no successful verification now".to_owned()),
    }
}

/// Returns the plan that the run made, or the stored one that it applied.
fn plan_of(
    run: &TerraformRun,
    status: &TerraformRunStatus,
    plan_run: Option<&TerraformRun>,
) -> Option<RecordedPlan> {
    let Some(stored) = &run.spec.plan else {
        status.has_changes?;
        return Some(RecordedPlan {
            id: status.plan_id.clone(),
            run: run.name_any(),
            digest: status.plan_digest.clone(),
            effect_digest: status.effect_digest.clone(),
            summary: status.summary,
        });
    };
    let id = stored.id.parse::<PlanId>();
    let made_by = plan_run
        .and_then(|run| run.status.as_ref())
        .filter(|made| made.plan_id == stored.id && made.plan_digest == stored.digest);
    Some(RecordedPlan {
        id: stored.id.clone(),
        run: stored.run.clone(),
        digest: stored.digest.clone(),
        effect_digest: id.map(|id| id.effect().to_string()).unwrap_or_default(),
        summary: made_by.and_then(|made| made.summary),
    })
}

fn result_of(status: TerraformRunStatus) -> RecordedResult {
    RecordedResult {
        phase: status.phase.as_str().to_owned(),
        reason: status.reason,
        message: status.message,
        attempted_apply: status.attempted_apply,
        applied: status.applied,
        started_at: status.started_at,
        finished_at: status.finished_at,
        tool: status.tool,
        state: status.state.map(|state| RecordedState {
            lineage: state.lineage,
            serial: state.serial,
            resources: state.resources,
        }),
    }
}
