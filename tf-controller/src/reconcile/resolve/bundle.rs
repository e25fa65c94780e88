//! Builds the bundle of a stack from its spec. Pure.

use kube::ResourceExt;
use sluice_api::interval::Interval;
use sluice_api::source::Artifact;
use sluice_api::terraform::{
    self, HealthCheckKind as Kind, IgnoredDrift, ReadablePlan, Terraform, TerraformSpec, WebhookStage,
};
use sluice_tf_core::bundle::{self, Bundle, HealthCheck, HealthCheckKind, PostApply};

use crate::inputs::closure::Closure;

/// Returns the artifact as a run fetches it.
pub(super) fn artifact_of(artifact: &Artifact) -> bundle::Artifact {
    bundle::Artifact {
        url: artifact.url.clone(),
        digest: artifact.digest.clone(),
        size: artifact.size.and_then(|size| u64::try_from(size).ok()),
        revision: artifact.revision.clone(),
    }
}

/// Returns what is not reported as drift; nothing if drift detection is disabled.
fn ignored_drift(spec: &TerraformSpec) -> Vec<IgnoredDrift> {
    if spec.disable_drift_detection {
        Vec::new()
    } else {
        spec.ignore_drift.clone()
    }
}

/// Returns namespace, name and uid of a stack.
pub(super) fn identity(stack: &Terraform) -> bundle::Stack {
    bundle::Stack {
        namespace: stack.namespace().unwrap_or_default(),
        name: stack.name_any(),
        uid: stack.uid().unwrap_or_default(),
    }
}

/// Builds the bundle except what has to be read.
pub(super) fn bundle_of(stack: &Terraform, artifact: &Artifact, variables: String) -> Bundle {
    let spec = &stack.spec;
    let lock_timeout = spec.tfstate.as_ref().map(|state| &state.lock_timeout);
    Bundle {
        version: bundle::VERSION,
        backend: None,
        stack: identity(stack),
        artifact: artifact_of(artifact),
        path: spec.path.clone(),
        workspace: spec.workspace_name().to_owned(),
        tool: None,
        selected_tool: None,
        variables,
        variable_files: spec.tf_vars_files.clone(),
        pod_environment: std::collections::BTreeMap::new(),
        environment: std::collections::BTreeMap::new(),
        run_environment: bundle::RunEnvironment::default(),
        grace_seconds: u32::try_from(spec.runner_termination_grace_period_seconds).ok(),
        options: bundle::Options {
            targets: spec.targets.clone(),
            lock_timeout: lock_timeout
                .map_or_else(String::new, |timeout: &Interval| timeout.as_str().to_owned()),
            parallelism: u32::try_from(spec.parallelism).unwrap_or(0),
            plan_lock: spec.plan.as_ref().and_then(|plan| plan.lock).unwrap_or(true),
            upgrade_on_init: spec.upgrade_on_init,
        },
        outputs: spec
            .write_outputs_to_secret
            .as_ref()
            .map(|target| bundle::OutputsTarget {
                name: target.name.clone(),
                outputs: target.outputs.clone(),
                labels: target.labels.clone(),
                annotations: target.annotations.clone(),
            }),
        post_apply: post_apply(stack),
        readable_plan: match spec.store_readable_plan {
            ReadablePlan::None => bundle::ReadablePlan::None,
            ReadablePlan::Json => bundle::ReadablePlan::Json,
            ReadablePlan::Human => bundle::ReadablePlan::Human,
        },
        ignored_drift: ignored_drift(spec),
        inputs_digest: String::new(),
        last_apply: None,
        last_rejected: None,
        key: String::new(),
        plan_keys: Vec::new(),
        file_keys: Vec::new(),
        webhooks: webhooks(spec),
        secrets: Vec::new(),
        closure: Vec::new(),
        last_applied: None,
        files_limit: None,
        state_copies: bundle::StateCopies::default(),
        state_check: bundle::StateCheck::default(),
        nothing_stored: is_unplanned(stack),
    }
}

/// Returns whether the stack has no plan yet, by its status.
fn is_unplanned(stack: &Terraform) -> bool {
    stack.status.as_ref().is_none_or(|status| {
        status.plan.is_none() && status.last_planned_revision.is_empty() && status.last_plan_at.is_none()
    })
}

/// Returns the files of the artifact that the stack reads; empty: all of it.
pub(super) fn reads(closure: &Closure, bundle: &Bundle) -> Vec<String> {
    if closure.wide.is_some() || closure.reads.is_empty() {
        return Vec::new();
    }
    let files = bundle.variable_files.iter();
    closure.reads.iter().chain(files).cloned().collect()
}

/// Returns what a run of this stack does after its apply.
fn post_apply(stack: &Terraform) -> PostApply {
    let has_inventory = stack
        .status
        .as_ref()
        .is_some_and(|status| status.inventory.is_some());
    PostApply {
        inventory: stack.spec.enable_inventory,
        inventory_due: !has_inventory,
        health_checks: stack.spec.health_checks.iter().map(check).collect(),
        health_due: false,
    }
}

fn check(check: &terraform::HealthCheck) -> HealthCheck {
    let (kind, target) = match check.kind {
        Kind::Tcp => (HealthCheckKind::Tcp, &check.address),
        Kind::Http => (HealthCheckKind::Http, &check.url),
    };
    HealthCheck {
        name: check.name.clone(),
        kind,
        target: target.clone(),
        timeout_millis: u64::try_from(check.timeout.to_duration().as_millis()).unwrap_or(u64::MAX),
    }
}

/// Returns the enabled webhooks after a plan, in order.
fn webhooks(spec: &TerraformSpec) -> Vec<bundle::Webhook> {
    let enabled = spec
        .webhooks
        .iter()
        .filter(|webhook| webhook.enabled && webhook.stage == WebhookStage::PostPlanning);
    enabled
        .map(|webhook| bundle::Webhook {
            url: webhook.url.clone(),
            payload: webhook.payload_type.clone(),
            test_expression: webhook.test_expression.clone(),
            error_message_template: webhook.error_message_template.clone(),
        })
        .collect()
}
