//! Letting go of runs that nobody needs any more, and of what they were given.

use super::{
    Context,
    history::{STALE, in_order, sum_up},
    report::phase,
};
use crate::executor::RunRef;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::DeleteParams};
use sluice_api::{
    annotation::{BREAK_THE_GLASS, REQUESTED_AT},
    run::{Phase, TerraformRun},
    terraform::Terraform,
};
use sluice_runtime::schedule::ObjectKey;
use sluice_tf_runner::{bundle, run::errored_state_recorders};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Runs that are kept beside the last plan and the last apply.
const KEPT_RUNS: usize = 20;

/// Deletes an object that may be gone already.
pub(super) async fn remove<K>(api: &Api<K>, name: &str) -> Result<(), kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// The newest run of each stack whose bundle is known to be gone.
#[derive(Default)]
pub(crate) struct Spent(Mutex<HashMap<ObjectKey, String>>);

impl Spent {
    /// Whether this is the newest run of the stack, and nothing of its end is left to do but to tell it.
    pub(crate) fn is(&self, stack: &ObjectKey, run: &str) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(stack).is_some_and(|known| known == run)
    }

    fn note(&self, stack: ObjectKey, run: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(stack, run);
    }

    /// The stack is gone.
    pub(super) fn forget(&self, stack: &Terraform) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&ObjectKey::of(stack));
    }
}

/// Deletes the bundle of the newest run, once it has ended: it holds variables, and nobody reads it any more. That is tried
/// again by each pass until it is known to be gone, and once by each controller that starts: the one before may have been
/// killed when it had told the end and not yet done this. It comes before the next run is made, so that none is missed.
///
/// # Errors
/// When the API did not answer. What it refuses for good stands in nobody's way.
pub(super) async fn drop_bundle(
    stack: &Terraform,
    runs: &[TerraformRun],
    context: &Context,
) -> Result<(), kube::Error> {
    let Some(run) = in_order(runs).pop().filter(|run| phase(run).is_final()) else {
        return Ok(());
    };
    let (key, name) = (ObjectKey::of(stack), run.name_any());
    if context.spent.is(&key, &name) {
        return Ok(());
    }
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &key.namespace);
    for secret in bundle::secret_names(run) {
        match remove(&api, &secret).await {
            Ok(()) => {}
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                tracing::warn!(
                    run = name,
                    status = status.message,
                    "the bundle of an ended run could not be deleted"
                );
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    context.spent.note(key, name);
    Ok(())
}

/// Deletes the oldest ended runs beyond [`KEPT_RUNS`]; the last plan and the last apply stay always. A failure is tried
/// again by the next pass.
pub(super) async fn prune(stack: &Terraform, runs: &[TerraformRun], context: &Context) {
    let api: Api<TerraformRun> =
        Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    for name in superfluous(stack, runs) {
        match remove(&api, &name).await {
            Ok(()) => forget(stack, name, context).await,
            Err(error) => tracing::debug!(run = name, %error, "an old run could not be deleted"),
        }
    }
}

/// Removes what the executor keeps of a run that is gone, or goes with its stack. What stays is found when a controller begins.
pub(super) async fn forget(stack: &Terraform, name: String, context: &Context) {
    let run = RunRef {
        namespace: stack.namespace().unwrap_or_default(),
        name,
    };
    if let Err(error) = context.executor.forget(run.clone()).await {
        tracing::warn!(
            run = run.name,
            error = &error as &dyn std::error::Error,
            "files of an old run stay for now"
        );
    }
}

/// Removes what the executor keeps of a stack that this controller does not see any more. What stays is found when a controller
/// begins.
pub(crate) fn forget_stack(context: &Arc<Context>, stack: ObjectKey) {
    let (key, around) = (stack.clone(), Arc::clone(context));
    // One of the same name that is made later has no run before it is seen.
    let is_gone = Arc::new(move || !around.stacks.has(&key));
    context.executor.forget_stack(stack, is_gone);
}

/// The names of the runs that go. What the runs amount to, and what a session was asked for by, is the same without them: a
/// session is not opened anew, and drift stays drift, because what told so has grown old.
fn superfluous(stack: &Terraform, runs: &[TerraformRun]) -> Vec<String> {
    let ordered = in_order(runs);
    let ended: Vec<_> = ordered
        .iter()
        .copied()
        .filter(|run| phase(run).is_final())
        .collect();
    let old = ended.len().saturating_sub(KEPT_RUNS);
    if old == 0 {
        return Vec::new();
    }
    let stays = kept(stack, &ended);
    let whole = sum_up(&ordered);
    let (mut rest, mut names) = (ordered, Vec::new());
    for name in ended.iter().take(old).map(|run| run.name_any()) {
        let others: Vec<_> = rest
            .iter()
            .copied()
            .filter(|run| run.name_any() != name)
            .collect();
        if !stays.contains(&name) && sum_up(&others) == whole {
            rest = others;
            names.push(name);
        }
    }
    names
}

/// The last plan, the last apply, and what the object's annotations asked for: without these runs it would be owed once more.
/// And those without whose record nothing is taken from what is kept: of the last good apply, and of states that are to be pushed.
fn kept(stack: &Terraform, ended: &[&TerraformRun]) -> Vec<String> {
    let planned = |run: &TerraformRun| run.status.as_ref().is_some_and(|s| s.has_changes.is_some());
    // One whose plan was stale applied nothing: plan ids are bound to the one before it.
    let applied = |run: &TerraformRun| {
        run.status
            .as_ref()
            .is_some_and(|s| s.attempted_apply && s.reason != STALE)
    };
    let good = |run: &TerraformRun| {
        run.status
            .as_ref()
            .is_some_and(|s| s.applied && !s.applied_digest.is_empty())
    };
    let took_up = |run: &TerraformRun, asked: &str| {
        let token = stack.annotations().get(asked);
        token.is_some() && run.annotations().get(asked) == token && phase(run) != Phase::Superseded
    };
    let session = |run: &TerraformRun| took_up(run, BREAK_THE_GLASS);
    let request = |run: &TerraformRun| took_up(run, REQUESTED_AT);
    let last = |test: &dyn Fn(&TerraformRun) -> bool| {
        ended.iter().rev().find(|run| test(run)).map(|run| run.name_any())
    };
    let unwritten = errored_state_recorders(ended.iter().copied());
    let unwritten = unwritten.into_iter().map(ResourceExt::name_any);
    [
        last(&planned),
        last(&applied),
        last(&good),
        last(&session),
        last(&request),
    ]
    .into_iter()
    .flatten()
    .chain(unwritten)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::history::history;
    use super::*;
    use serde_json::{Value, json};

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

    /// What is left of the runs, as often as they are looked at.
    fn left(stack: &Terraform, mut runs: Vec<TerraformRun>) -> Vec<TerraformRun> {
        for _ in 0..3 {
            let gone = superfluous(stack, &runs);
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
    fn the_newest_and_the_last_plan_and_apply_stay() {
        let mut runs = vec![apply()];
        runs.extend(checks(2..30, &json!({})));
        let left = left(&stack(&json!({})), runs);
        assert_eq!(left.len(), KEPT_RUNS + 1);
        assert_eq!(left[0].name_any(), "net-u1-1");
    }

    #[test]
    fn what_the_runs_amount_to_is_the_same_without_the_old_ones() {
        let drifted = json!({ "hasChanges": true, "planId": "plan-main-aa-ee" });
        let plan = run(2, &json!({ "trigger": "Revision" }), &json!({}));
        let healthy = run(
            3,
            &json!({}),
            &json!({ "health": { "checks": "c", "passed": true } }),
        );
        let mut sick = apply();
        sick.status.as_mut().unwrap().health = Some(sluice_api::run::Health {
            checks: "c".to_owned(),
            passed: false,
        });
        // The apply was of other inputs than the plan behind it: without that plan the checks would be no checks.
        let mut runs = vec![sick, plan, healthy];
        runs.extend(checks(4..31, &drifted));
        let before = history(&runs);
        assert!(before.pending.as_ref().unwrap().drift && before.health.as_ref().unwrap().passed);
        let left = left(&stack(&json!({})), runs);
        assert_eq!(history(&left), before);
        assert!(left.len() <= KEPT_RUNS + 4, "{}", left.len());
    }

    #[test]
    fn what_an_annotation_asked_for_stays_as_long_as_it_asks() {
        for (asked, action) in [(BREAK_THE_GLASS, "BreakTheGlass"), (REQUESTED_AT, "Plan")] {
            let spec = json!({ "action": action, "trigger": "Request" });
            let mut first = run(1, &spec, &json!({ "hasChanges": null }));
            first.annotations_mut().insert(asked.to_owned(), "now".to_owned());
            let mut runs = vec![first];
            runs.extend(checks(2..31, &json!({})));
            let names = |stack: &Terraform| left(stack, runs.clone())[0].name_any();
            assert_eq!(names(&stack(&json!({ asked: "now" }))), "net-u1-1");
            assert_ne!(names(&stack(&json!({ asked: "later" }))), "net-u1-1");
            assert_ne!(names(&stack(&json!({}))), "net-u1-1");
        }
    }
}
