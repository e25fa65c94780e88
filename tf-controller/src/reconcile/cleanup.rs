//! Deletes old runs, bundles of ended runs, and what the executor stores for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use sluice_api::annotation::{BREAK_THE_GLASS, REQUESTED_AT};
use sluice_api::run::{Phase, TerraformRun};
use sluice_api::terraform::{Reason, Terraform};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use sluice_tf_core::{bundle, errored_state};

use super::Context;
use super::history::{by_sequence, summarize};
use super::report::phase;
use crate::decide::History;
use crate::executor::{ExecutorError, RunRef};
use crate::memory::MeasuredMemory;

/// Runs that are retained besides the last plan and the last apply.
const RETAINED_RUNS: usize = 20;

/// Deletes an object that may already be gone.
pub(super) async fn remove<K>(api: &Api<K>, name: &str) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// The newest run of each stack whose bundle is known to be deleted.
#[derive(Default)]
pub(crate) struct DeletedBundles(Mutex<HashMap<ObjectKey, String>>);

impl DeletedBundles {
    /// Returns whether this is the newest run of the stack and its bundle is deleted.
    pub(crate) fn contains(&self, stack: &ObjectKey, run: &str) -> bool {
        let all = lock(&self.0);
        all.get(stack).is_some_and(|known| known == run)
    }

    fn insert(&self, stack: ObjectKey, run: String) {
        let mut all = lock(&self.0);
        all.insert(stack, run);
    }

    /// Removes a stack that is gone.
    pub(super) fn remove(&self, stack: &Terraform) {
        let mut all = lock(&self.0);
        all.remove(&ObjectKey::of(stack));
    }
}

/// Deletes the bundle of the newest run once it has ended: it holds variables and is not read again. Each
/// reconciliation retries until the bundle is gone, and each new controller tries once, since the one before may have
/// been killed in between. This comes before the next run is created, so that none is missed.
///
/// # Errors
/// When the API did not answer. A permanent rejection is only logged.
pub(super) async fn delete_bundle(
    stack: &Terraform,
    runs: &[TerraformRun],
    context: &Context,
) -> Result<(), kube::Error> {
    let Some(run) = by_sequence(runs).pop().filter(|run| phase(run).is_final()) else {
        return Ok(());
    };
    let (key, name) = (ObjectKey::of(stack), run.name_any());
    if context.deleted_bundles.contains(&key, &name) {
        return Ok(());
    }
    if phase(run) == Phase::Superseded && run.status.as_ref().is_some_and(|status| status.claim.is_none()) {
        // Its Job may be left, if the controller was killed after it ended the run.
        match context.executor.cancel(RunRef::of(run)).await {
            Err(ExecutorError::Api(error)) if !is_rejection(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(run = name, %error, "the runner of a superseded run could not be removed");
            }
            Ok(()) => {}
        }
    }
    let api: Api<Secret> = context.api_of(stack);
    for secret in bundle::secret_names(run) {
        match remove(&api, &secret).await {
            Ok(()) => {}
            Err(error) if is_rejection(&error) => {
                tracing::warn!(run = name, %error, "the bundle of an ended run could not be deleted");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    context.deleted_bundles.insert(key, name);
    Ok(())
}

/// Returns whether the API rejects a request for good: the same request fails again until something else changes.
fn is_rejection(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code < 500 && status.code != 429)
}

/// Deletes the oldest ended runs beyond [`RETAINED_RUNS`], except the last plan and the last apply. The next
/// reconciliation retries failures.
pub(super) async fn prune(stack: &Terraform, runs: &[TerraformRun], context: &Context) {
    let api: Api<TerraformRun> = context.api_of(stack);
    for name in prunable(stack, runs) {
        match remove(&api, &name).await {
            Ok(()) => forget_run(stack, name, context).await,
            Err(error) => tracing::debug!(run = name, %error, "an old run could not be deleted"),
        }
    }
}

/// Removes what the executor stores for a run that is deleted. The next start of a controller retries failures.
pub(super) async fn forget_run(stack: &Terraform, name: String, context: &Context) {
    let run = RunRef {
        namespace: stack.namespace().unwrap_or_default(),
        name,
    };
    if let Err(error) = context.executor.forget(run.clone()).await {
        tracing::warn!(
            run = run.name,
            error = &error as &dyn std::error::Error,
            "cannot remove the files of an old run"
        );
    }
}

/// Removes what the executor stores for a stack that this controller no longer sees. The next start of a controller
/// retries failures.
pub(crate) fn forget_stack(context: &Context, stack: ObjectKey) {
    // Only the cache: the executor may need this after the controller has stopped, which ends with its context.
    let (key, stacks) = (stack.clone(), context.stacks.clone());
    // A later stack of the same name has no run before it is in the cache.
    let is_gone = Arc::new(move || !stacks.contains(&key));
    context.executor.forget_stack(stack, is_gone);
}

/// Returns the names of the runs to delete. Without them, the history and the handled requests stay the same: no
/// session is opened again, and drift stays drift although the run that found it is old.
fn prunable(stack: &Terraform, runs: &[TerraformRun]) -> Vec<String> {
    let ordered = by_sequence(runs);
    let ended: Vec<_> = ordered
        .iter()
        .copied()
        .filter(|run| phase(run).is_final())
        .collect();
    let old = ended.len().saturating_sub(RETAINED_RUNS);
    if old == 0 {
        return Vec::new();
    }
    let retained = retained(stack, &ended);
    // An old peak of memory does not keep its run: the estimate follows the newest runs.
    let summarize = |runs: &[&TerraformRun]| History {
        memory: MeasuredMemory::default(),
        ..summarize(runs)
    };
    let summary = summarize(&ordered);
    let (mut rest, mut names) = (ordered, Vec::new());
    for name in ended.iter().take(old).map(|run| run.name_any()) {
        let others: Vec<_> = rest
            .iter()
            .copied()
            .filter(|run| run.name_any() != name)
            .collect();
        if !retained.contains(&name) && summarize(&others) == summary {
            rest = others;
            names.push(name);
        }
    }
    names
}

/// Returns the last plan, the last apply and the runs of the current annotations, which would otherwise run again.
/// Also the runs whose record is needed to use stored data: the last successful apply and errored states.
fn retained(stack: &Terraform, ended: &[&TerraformRun]) -> Vec<String> {
    let planned = |run: &TerraformRun| run.status.as_ref().is_some_and(|s| s.has_changes.is_some());
    // A stale plan applied nothing: plan ids are bound to the apply before it.
    let applied = |run: &TerraformRun| {
        run.status
            .as_ref()
            .is_some_and(|s| s.attempted_apply && s.reason != Reason::PlanStale)
    };
    let successful = |run: &TerraformRun| {
        run.status
            .as_ref()
            .is_some_and(|s| s.applied && !s.applied_digest.is_empty())
    };
    let is_run_of = |run: &TerraformRun, annotation: &str| {
        let token = stack.annotations().get(annotation);
        token.is_some() && run.annotations().get(annotation) == token && phase(run) != Phase::Superseded
    };
    let session = |run: &TerraformRun| is_run_of(run, BREAK_THE_GLASS);
    let request = |run: &TerraformRun| is_run_of(run, REQUESTED_AT);
    let last = |test: &dyn Fn(&TerraformRun) -> bool| {
        ended.iter().rev().find(|run| test(run)).map(|run| run.name_any())
    };
    let errored = errored_state::recording_runs(ended.iter().copied());
    let errored = errored.into_iter().map(ResourceExt::name_any);
    [
        last(&planned),
        last(&applied),
        last(&successful),
        last(&session),
        last(&request),
    ]
    .into_iter()
    .flatten()
    .chain(errored)
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::history::history;
    use super::*;

    fn run(number: usize, spec: &Value, status: &Value) -> TerraformRun {
        let mut run = json!({
            "metadata": { "name": format!("net-u1-{number}"), "namespace": "team" },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "2h", "trigger": "Interval", "inputsDigest": "i2",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u1", "generation": 1 } },
            "status": { "phase": "Succeeded", "hasChanges": false, "finishedAt": format!("2026-01-{number:02}T00:00:00Z") },
        });
        for (part, more) in [("spec", spec), ("status", status)] {
            let more = more.as_object().unwrap().clone();
            run[part].as_object_mut().unwrap().extend(more);
        }
        serde_json::from_value(run).unwrap()
    }

    fn checks(numbers: std::ops::Range<usize>, status: &Value) -> Vec<TerraformRun> {
        numbers.map(|number| run(number, &json!({}), status)).collect()
    }

    fn stack(annotations: &Value) -> Terraform {
        serde_json::from_value(
            json!({ "metadata": { "name": "net", "namespace": "team", "annotations": annotations },
            "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "code" } } }),
        )
        .unwrap()
    }

    /// Prunes the runs several times and returns the remaining ones.
    fn pruned(stack: &Terraform, mut runs: Vec<TerraformRun>) -> Vec<TerraformRun> {
        for _ in 0..3 {
            let gone = prunable(stack, &runs);
            runs.retain(|run| !gone.contains(&run.name_any()));
        }
        runs
    }

    fn apply() -> TerraformRun {
        let status = json!({ "attemptedApply": true, "applied": true });
        run(
            1,
            &json!({ "action": "PlanAndApply", "trigger": "Revision", "inputsDigest": "i1" }),
            &status,
        )
    }

    #[test]
    fn the_newest_runs_and_the_last_plan_and_apply_are_retained() {
        let mut runs = vec![apply()];
        runs.extend(checks(2..30, &json!({})));
        let remaining = pruned(&stack(&json!({})), runs);
        assert_eq!(remaining.len(), RETAINED_RUNS + 1);
        assert_eq!(remaining[0].name_any(), "net-u1-1");
    }

    #[test]
    fn an_old_peak_of_memory_does_not_keep_its_run() {
        let peak = |bytes: u64| json!({ "peakMemoryBytes": bytes });
        let mut runs = vec![apply()];
        runs.extend(checks(2..3, &peak(900)));
        runs.extend(checks(3..30, &peak(100)));
        assert_eq!(history(&runs).memory.peak, Some(900));
        let remaining = pruned(&stack(&json!({})), runs);
        assert_eq!(remaining.len(), RETAINED_RUNS + 1);
        assert_eq!(history(&remaining).memory.peak, Some(100));
    }

    #[test]
    fn disrupted_runs_are_pruned_like_others() {
        let retry = json!({ "trigger": "Retry" });
        let lost = json!({ "phase": "Lost", "reason": "Evicted", "hasChanges": null });
        let mut runs = vec![apply()];
        runs.extend((2..31).map(|number| run(number, &retry, &lost)));
        let before = history(&runs);
        let remaining = pruned(&stack(&json!({})), runs);
        assert_eq!(history(&remaining), before);
        assert_eq!(remaining.len(), RETAINED_RUNS + 1);
    }

    #[test]
    fn interrupted_runs_are_pruned_like_others() {
        let interrupted = json!({ "phase": "Superseded", "reason": "Interrupted", "hasChanges": null });
        let mut runs = vec![apply()];
        runs.extend((2..31).map(|number| run(number, &json!({}), &interrupted)));
        let before = history(&runs);
        let remaining = pruned(&stack(&json!({})), runs);
        assert_eq!(history(&remaining), before);
        assert_eq!(remaining.len(), RETAINED_RUNS + 1);
    }

    #[test]
    fn pruning_does_not_change_the_history() {
        let drifted = json!({ "hasChanges": true, "planId": "plan-main-aa-ee" });
        let plan = run(2, &json!({ "trigger": "Revision" }), &json!({}));
        let healthy = run(
            3,
            &json!({}),
            &json!({ "health": { "checks": "c", "passed": true } }),
        );
        let mut unhealthy = apply();
        unhealthy.status.as_mut().unwrap().health = Some(sluice_api::run::Health {
            checks: "c".to_owned(),
            passed: false,
        });
        // The apply had other inputs than the plan after it: without that plan, the drift checks would not count as such.
        let mut runs = vec![unhealthy, plan, healthy];
        runs.extend(checks(4..31, &drifted));
        let before = history(&runs);
        assert!(before.pending.as_ref().unwrap().drift && before.health.as_ref().unwrap().passed);
        let remaining = pruned(&stack(&json!({})), runs);
        assert_eq!(history(&remaining), before);
        assert!(remaining.len() <= RETAINED_RUNS + 4, "{}", remaining.len());
    }

    #[test]
    fn a_pending_plan_keeps_its_age_when_the_run_that_made_it_first_is_old() {
        let plan = |effect: &str| json!({ "hasChanges": true, "planId": effect, "effectDigest": effect });
        let mut runs = vec![
            apply(),
            run(2, &json!({}), &plan("aa")),
            run(3, &json!({}), &json!({})),
        ];
        runs.extend(checks(4..31, &plan("aa")));
        let before = history(&runs).planned_effect.unwrap();
        assert_eq!(before.since.to_string(), "2026-01-04T00:00:00Z");
        let remaining = pruned(&stack(&json!({})), runs);
        assert_eq!(history(&remaining).planned_effect, Some(before));
        assert!(remaining.len() <= RETAINED_RUNS + 4, "{}", remaining.len());
    }

    #[test]
    fn the_run_of_an_annotation_is_retained_while_the_annotation_is_set() {
        for (annotation, action) in [(BREAK_THE_GLASS, "BreakTheGlass"), (REQUESTED_AT, "Plan")] {
            let spec = json!({ "action": action, "trigger": "Request" });
            let mut first = run(1, &spec, &json!({ "hasChanges": null }));
            first
                .annotations_mut()
                .insert(annotation.to_owned(), "now".to_owned());
            let mut runs = vec![first];
            runs.extend(checks(2..31, &json!({})));
            let names = |stack: &Terraform| pruned(stack, runs.clone())[0].name_any();
            assert_eq!(names(&stack(&json!({ annotation: "now" }))), "net-u1-1");
            assert_ne!(names(&stack(&json!({ annotation: "later" }))), "net-u1-1");
            assert_ne!(names(&stack(&json!({}))), "net-u1-1");
        }
    }
}
