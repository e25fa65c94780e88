//! The object of a new run.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use sluice_api::annotation::{BREAK_THE_GLASS, REQUESTED_AT, TERRAFORM_LABEL};
use sluice_api::interval::Interval;
use sluice_api::run::{PlanSource, RunSource, TerraformIdentity, TerraformRun, TerraformRunSpec};
use sluice_api::terraform::{Terraform, label_value, run_name};

use super::Context;
use super::approvals::planned_since;
use super::history::find_run;
use super::resolve::Resolved;
use crate::decide::{History, NewRun, RunAction};

/// The parameters of a new run.
pub(super) struct RunRequest<'a> {
    pub(super) stack: &'a Terraform,
    pub(super) new: &'a NewRun,
    pub(super) history: &'a History,
    pub(super) resolved: &'a Resolved,
    pub(super) runs: &'a [TerraformRun],
    /// The reconcile request that the run handles.
    pub(super) reconcile_request: Option<&'a str>,
}

/// Returns the object of a new run. Its account and its bundle are not in it yet.
pub(super) fn run_object(request: &RunRequest<'_>, context: &Context) -> TerraformRun {
    let (stack, new) = (request.stack, request.new);
    let uid = stack.uid().unwrap_or_default();
    let name = run_name(&stack.name_any(), &uid, request.history.next_sequence);
    let source = &stack.spec.source_ref;
    let namespace = stack.namespace().unwrap_or_default();
    let artifact = &request.resolved.artifact;
    let spec = TerraformRunSpec {
        terraform: TerraformIdentity {
            name: stack.name_any(),
            uid,
            generation: stack.metadata.generation.unwrap_or(0),
        },
        action: new.action,
        destroy: new.destroy,
        trigger: new.trigger,
        source: RunSource {
            kind: source.kind.as_str().to_owned(),
            namespace: if source.namespace.is_empty() {
                namespace.clone()
            } else {
                source.namespace.clone()
            },
            name: source.name.clone(),
            revision: artifact.revision.clone(),
            digest: artifact.digest.clone(),
            url: artifact.url.clone(),
            size: artifact.size,
            author: artifact.commit_author().to_owned(),
            subject: artifact.commit_subject(),
        },
        inputs_digest: request.resolved.inputs.clone(),
        interruptions: request.history.interruptions,
        plan: new.plan.as_ref().map(|(id, run)| PlanSource {
            digest: plan_digest(request.runs, run),
            id: id.clone(),
            run: run.clone(),
            since: planned_since(request.runs, run).map(Time),
        }),
        bundle_digest: String::new(),
        bundle_secrets: 0,
        lock_identifier: match new.action {
            RunAction::Unlock => request.history.lock.clone().unwrap_or_default(),
            _ => String::new(),
        },
        approved_by: new.approved_by.clone().unwrap_or_default(),
        attempt: i32::try_from(new.attempt).unwrap_or(i32::MAX),
        deadline: deadline(stack, new.action, context),
        service_account_name: String::new(),
    };
    let mut run = TerraformRun::new(&name, spec);
    run.metadata = ObjectMeta {
        name: Some(name),
        namespace: Some(namespace),
        labels: Some([(TERRAFORM_LABEL.to_owned(), label_value(&stack.name_any()))].into()),
        annotations: annotations(request),
        owner_references: super::owner(stack).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    run
}

/// Returns the digest of a stored plan as its run recorded it; empty for a run of an older version.
fn plan_digest(runs: &[TerraformRun], name: &str) -> String {
    let status = find_run(runs, name).and_then(|run| run.status.as_ref());
    status
        .map(|status| status.plan_digest.clone())
        .unwrap_or_default()
}

/// Returns the annotations of the requests that the run handles.
fn annotations(request: &RunRequest<'_>) -> Option<BTreeMap<String, String>> {
    let reconcile = request
        .reconcile_request
        .map(|token| (REQUESTED_AT, token.to_owned()));
    let token = request.stack.annotations().get(BREAK_THE_GLASS);
    let session = token
        .filter(|_| request.new.action == RunAction::BreakTheGlass)
        .map(|token| (BREAK_THE_GLASS, token.clone()));
    let all: BTreeMap<_, _> = reconcile
        .into_iter()
        .chain(session)
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    (!all.is_empty()).then_some(all)
}

fn deadline(stack: &Terraform, action: RunAction, context: &Context) -> Interval {
    let of_session = context.break_glass_limit.as_ref();
    of_session
        .filter(|_| action == RunAction::BreakTheGlass)
        .or(stack.spec.run_deadline.as_ref())
        .unwrap_or(&context.run_deadline)
        .clone()
}
