//! The model's state as the objects that the controller reads, so that its own code evaluates them.

use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use sluice_api::annotation::REQUESTED_AT;
use sluice_api::run::{
    Claim, Phase, PlanSource, RunSource, TerraformIdentity, TerraformRun, TerraformRunSpec,
    TerraformRunStatus,
};
use sluice_api::terraform::plan_id::{EffectDigest, PlanId};
use sluice_api::terraform::{Remediation, Terraform, TerraformStatus, run_name};

use super::state::{Approve, Effect, Inputs, Run, Stack, Stage, SystemState};
use crate::decide::{self, Dependencies, Facts, SourceFact};
use crate::reconcile::facts::{Outline, Settings, build_facts};
use crate::reconcile::observe::Observed;

const NAME: &str = "net";
const UID: &str = "5f3a7c1e";

static BLANK: LazyLock<Terraform> = LazyLock::new(|| {
    let object = json!({
        "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": { "name": NAME, "namespace": "team", "uid": UID },
        "spec": { "interval": "1h", "retryInterval": "15s", "sourceRef": { "kind": "GitRepository", "name": "code" } },
    });
    serde_json::from_value(object).unwrap()
});

/// Returns the time at which so many runs had ended.
fn at(ended: u8) -> Timestamp {
    Timestamp::from_second(1_000_000 + i64::from(ended)).unwrap()
}

pub(super) fn digest(inputs: Inputs) -> String {
    format!("inputs-{}-{}", inputs.code, inputs.vars)
}

pub(super) fn id(effect: Effect) -> String {
    let mut bytes = [0_u8; 20];
    let applied = effect
        .from
        .applied_inputs
        .map_or((255, 255), |applied| (applied.code, applied.vars));
    bytes[..7].copy_from_slice(&[
        effect.inputs.code,
        effect.inputs.vars,
        applied.0,
        applied.1,
        u8::from(effect.from.drifted),
        u8::from(effect.destroy),
        effect.last_apply,
    ]);
    PlanId::new("main@sha1:aaaaaaaaaaaa", EffectDigest::of_bytes(bytes)).to_string()
}

pub(super) fn terraform(stack: &Stack) -> Terraform {
    let mut object = BLANK.clone();
    let meta = &mut object.metadata;
    meta.generation = Some(stack.generation.into());
    meta.deletion_timestamp = stack.deleting.then(|| Time(at(0)));
    if stack.request > 0 {
        meta.annotations = Some([(REQUESTED_AT.to_owned(), token(stack.request))].into());
    }
    let spec = &mut object.spec;
    spec.approve_plan = match &stack.approve {
        Approve::Nothing => String::new(),
        Approve::Auto => "auto".to_owned(),
        Approve::Plan(effect) => id(*effect),
    };
    spec.plan_only = stack.plan_only;
    spec.suspend = stack.suspend;
    spec.destroy = stack.destroy;
    spec.destroy_resources_on_deletion = stack.destroy_on_deletion;
    spec.remediation = stack.retries.map(|retries| Remediation {
        retries: Some(retries.into()),
    });
    object.status = Some(TerraformStatus {
        last_handled_reconcile_at: if stack.handled > 0 {
            token(stack.handled)
        } else {
            String::new()
        },
        ..TerraformStatus::default()
    });
    object
}

fn token(request: u8) -> String {
    format!("request-{request}")
}

pub(super) fn terraform_run(run: &Run) -> TerraformRun {
    let spec = TerraformRunSpec {
        action: run.action,
        approved_by: String::new(),
        attempt: run.attempt.into(),
        deadline: sluice_api::interval::Interval::from_secs(7200),
        destroy: run.destroy,
        inputs_digest: digest(run.inputs),
        interruptions: 0,
        lock_identifier: String::new(),
        bundle_digest: String::new(),
        bundle_secrets: 0,
        plan: run.plan.as_ref().map(|(effect, from)| PlanSource {
            digest: String::new(),
            id: id(*effect),
            run: run_name(NAME, UID, (*from).into()),
            since: None,
        }),
        service_account_name: String::new(),
        source: RunSource::default(),
        terraform: TerraformIdentity {
            generation: run.generation.into(),
            name: NAME.to_owned(),
            uid: UID.to_owned(),
        },
        trigger: run.trigger,
    };
    let mut object = TerraformRun::new(&run_name(NAME, UID, run.number.into()), spec);
    if run.request > 0 {
        object.metadata.annotations = Some([(REQUESTED_AT.to_owned(), token(run.request))].into());
    }
    object.status = Some(status(run));
    object
}

fn status(run: &Run) -> TerraformRunStatus {
    TerraformRunStatus {
        attempted_apply: run.attempted,
        claim: (run.stage != Stage::Pending && run.stage != Stage::Superseded).then(Claim::default),
        finished_at: run.stage.is_final().then(|| Time(at(run.ended))),
        has_changes: run.has_changes,
        plan_id: run
            .stored
            .as_ref()
            .map(|stored| id(stored.effect))
            .unwrap_or_default(),
        phase: match run.stage {
            Stage::Pending => Phase::Pending,
            Stage::Claimed => Phase::Claimed,
            Stage::Planned => Phase::Planning,
            Stage::Applying => Phase::Applying,
            Stage::Succeeded => Phase::Succeeded,
            Stage::Failed | Stage::Stale => Phase::Failed,
            Stage::Superseded => Phase::Superseded,
            Stage::Lost => Phase::Lost,
        },
        reason: if run.stage == Stage::Stale {
            sluice_api::terraform::Reason::PlanStale.as_str().into()
        } else {
            String::new()
        },
        ..TerraformRunStatus::default()
    }
}

/// Returns the facts of a reconciliation that reads the runs and the source now, and this cached stack.
pub(super) fn facts(state: &SystemState, stack: &Stack) -> Facts {
    let object = terraform(stack);
    let observed = Observed {
        source: SourceFact::Found {
            revision: format!("main@sha1:{}", state.revision),
            digest: format!("sha256:{}", state.revision),
        },
        artifact: None,
        runs: state.runs.iter().map(terraform_run).collect(),
        unreadable: None,
        outputs_gone: false,
        approvals: Vec::new(),
    };
    let ended = state.runs.iter().map(|run| run.ended).max().unwrap_or(0);
    let wait = if state.timers_expired {
        SignedDuration::from_hours(2)
    } else {
        SignedDuration::ZERO
    };
    let settings = Settings {
        now: at(ended).saturating_add(wait).unwrap(),
        allows_break_glass: true,
        ignore_account: true,
        interval_offset: None,
    };
    let idle = stack.suspend || stack.deleting && !stack.destroy_on_deletion;
    let inputs = if idle {
        decide::Inputs::Unresolved
    } else {
        decide::Inputs::Known(digest(state.inputs(stack)))
    };
    let outline = Outline::new(&object, &observed, settings);
    build_facts(outline, &inputs.into(), None, Dependencies::Ready)
}
