//! What happens to a Terraform object of tofu-controller when tf-controller takes it over. Pure; the rules are those of
//! docs/guides/migrating-from-tofu-controller.md.

use serde::Serialize;
use sluice_api::condition::{TerraformCondition, find};
use sluice_api::terraform::plan_id::PlanId;
use sluice_api::terraform::{ForceUnlockMode, Terraform};

use crate::output::Tone;
use crate::stack;

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Fate {
    /// The API does not accept the object any more when it is written.
    Rejected,
    /// tofu-controller works on it now.
    Busy,
    /// Its plan is replaced by a new one, which needs an approval.
    Replanned,
    /// It is planned, and applied without an approval.
    Applied,
    /// It is planned.
    Planned,
    /// It is being deleted.
    Deleted,
    /// It continues without a plan, if its source has not changed.
    ContinuesIfUnchanged,
    /// It continues without a plan.
    Continues,
    /// It stays suspended.
    Suspended,
    /// It has runs of Sluice already.
    Migrated,
}

impl Fate {
    /// Describes what happens.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Rejected => "its next write is rejected: correct it first",
            Self::Busy => "tofu-controller works on it now: wait until it has finished",
            Self::Replanned => "a new plan replaces the one that waits, and needs an approval",
            Self::Applied => "is planned, and applied without an approval",
            Self::Planned => "is planned",
            Self::Deleted => "is being deleted, and Sluice continues that",
            Self::ContinuesIfUnchanged => {
                "continues without a plan if its source still has the applied revision"
            }
            Self::Continues => "continues without a plan",
            Self::Suspended => "stays suspended, and is not planned",
            Self::Migrated => "has runs of Sluice already",
        }
    }

    /// Returns the colour of the text.
    pub(super) const fn tone(self) -> Tone {
        match self {
            Self::Rejected | Self::Busy => Tone::Bad,
            Self::Replanned | Self::Applied | Self::Planned | Self::Deleted => Tone::Attention,
            Self::ContinuesIfUnchanged | Self::Suspended => Tone::Plain,
            Self::Continues | Self::Migrated => Tone::Good,
        }
    }
}

/// The revision of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceRevision<'a> {
    /// The source has an artifact of this revision.
    Known(&'a str),
    /// The source has no artifact, or does not exist.
    Absent,
    /// The kind of the source is not read.
    NotRead,
}

/// Returns what happens to an object that tofu-controller has reconciled.
#[must_use]
pub(super) fn of(stack: &Terraform, source: SourceRevision<'_>, has_runs: bool) -> Fate {
    if has_runs {
        return Fate::Migrated;
    }
    if is_busy(stack) {
        return Fate::Busy;
    }
    if stack.metadata.deletion_timestamp.is_some() {
        return Fate::Deleted;
    }
    if stack.spec.suspend {
        return Fate::Suspended;
    }
    let is_applied = stack.spec.approve_plan == "auto" && !stack.spec.plan_only;
    if stack::pending_plan(stack).is_some() && !is_applied {
        return Fate::Replanned;
    }
    let attempted = stack
        .status
        .as_ref()
        .map(|status| status.last_attempted_revision.as_str());
    match source {
        SourceRevision::Known(revision) if is_in_sync(stack, revision) => Fate::Continues,
        SourceRevision::NotRead if attempted.is_some_and(|revision| is_in_sync(stack, revision)) => {
            Fate::ContinuesIfUnchanged
        }
        _ if is_applied => Fate::Applied,
        _ => Fate::Planned,
    }
}

/// Returns whether tofu-controller reports that it initialises, plans or applies.
fn is_busy(stack: &Terraform) -> bool {
    let Some(ready) = stack::ready(stack) else {
        return false;
    };
    ready.status == "Unknown" && stack::pending_plan(stack).is_none() && !stack.spec.suspend
}

/// The rule of the tf-controller (`reconcile::adopt`): revision, generation and conditions are those of the last success.
fn is_in_sync(stack: &Terraform, revision: &str) -> bool {
    let Some(status) = stack.status.as_ref() else {
        return false;
    };
    let known = [
        status.last_applied_revision.as_str(),
        status.last_planned_revision.as_str(),
    ];
    let is_ready =
        find(&status.conditions, TerraformCondition::Ready).is_some_and(|ready| ready.status == "True");
    let has_time = status.last_successful_reconcile_at.is_some() || status.last_plan_at.is_some();
    is_ready
        && has_time
        && status.observed_generation == stack.metadata.generation
        && status.last_attempted_revision == revision
        && known.contains(&revision)
        && stack::pending_plan(stack).is_none()
}

/// Returns what the user has to do or to know before.
#[must_use]
pub(super) fn preparations(stack: &Terraform, fate: Fate) -> Vec<String> {
    let spec = &stack.spec;
    let mut texts = Vec::new();
    if fate == Fate::Replanned
        && let Some(plan) = stack::pending_plan(stack)
    {
        texts.push(format!("approve {plan} now, if it should be applied as it is"));
    }
    if is_old_id(&spec.approve_plan) {
        texts.push(format!(
            "approvePlan {:?} approves nothing: ids of Sluice name an effect",
            spec.approve_plan
        ));
    }
    let pod = spec.runner_pod_template.as_ref();
    let image = pod
        .and_then(|pod| pod.spec.as_ref())
        .map(|pod| pod.image.as_str());
    if let Some(image) = image.filter(|image| !image.is_empty()) {
        texts.push(format!(
            "runnerPodTemplate: the image {image} must contain Sluice's tf-runner"
        ));
    }
    let mode = spec.tfstate.as_ref().map(|state| state.force_unlock);
    if mode == Some(ForceUnlockMode::Auto) {
        texts.push("tfstate.forceUnlock auto releases only locks of runs that are provably dead".to_owned());
    }
    let backend = spec.backend_config.as_ref();
    if backend.is_some_and(|backend| !backend.labels.is_empty()) {
        texts.push(
            "backendConfig.labels: the Secrets of the state need these labels with Terraform 1.6 and newer"
                .to_owned(),
        );
    }
    let is_plain = |url: &str| url.starts_with("http://");
    if spec
        .webhooks
        .iter()
        .any(|webhook| webhook.enabled && is_plain(&webhook.url))
    {
        texts.push("a webhook over http:// needs DISABLE_WEBHOOK_TLS_VERIFY=1".to_owned());
    }
    texts
}

/// Returns whether `approvePlan` has the id of a plan of tofu-controller, which names a commit and no effect.
fn is_old_id(approval: &str) -> bool {
    approval.starts_with("plan-") && approval.parse::<PlanId>().is_err()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const REVISION: &str = "main@sha1:b8e362c206f0d1c9a7e5b3d1f9e7c5a3b1d9f7e5";

    fn stack(spec: &Value, status: &Value) -> Terraform {
        let mut object = json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": {"name": "app", "namespace": "default", "generation": 2},
            "spec": {"interval": "1m", "sourceRef": {"kind": "GitRepository", "name": "infra"}},
            "status": {"observedGeneration": 2, "lastAppliedRevision": REVISION, "lastAttemptedRevision": REVISION,
                "lastPlanAt": "2026-01-01T00:00:00Z", "conditions": [{"type": "Ready", "status": "True", "reason": "TerraformAppliedSucceed",
                    "message": "Applied", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        for (part, changes) in [("spec", spec), ("status", status)] {
            for (key, value) in changes.as_object().unwrap() {
                object[part][key] = value.clone();
            }
        }
        serde_json::from_value(object).unwrap()
    }

    fn fate(spec: &Value, status: &Value) -> Fate {
        of(&stack(spec, status), SourceRevision::Known(REVISION), false)
    }

    #[test]
    fn an_applied_stack_continues_and_any_other_is_planned() {
        let none = json!({});
        assert_eq!(fate(&none, &none), Fate::Continues);
        for status in [
            json!({"observedGeneration": 1}),
            json!({"lastAttemptedRevision": "main@sha1:0"}),
            json!({"lastAppliedRevision": ""}),
            json!({"lastPlanAt": null}),
        ] {
            assert_eq!(fate(&none, &status), Fate::Planned, "{status}");
            assert_eq!(
                fate(&json!({"approvePlan": "auto"}), &status),
                Fate::Applied,
                "{status}"
            );
        }
        let stack = stack(&none, &none);
        let other = SourceRevision::Known("main@sha1:1");
        assert_eq!(of(&stack, other, false), Fate::Planned);
        assert_eq!(of(&stack, SourceRevision::Absent, false), Fate::Planned);
        assert_eq!(
            of(&stack, SourceRevision::NotRead, false),
            Fate::ContinuesIfUnchanged
        );
        assert_eq!(of(&stack, other, true), Fate::Migrated);
    }

    #[test]
    fn a_plan_that_waits_is_replaced() {
        let waits = json!({"plan": {"pending": "plan-main-b8e362c206"}});
        assert_eq!(fate(&json!({}), &waits), Fate::Replanned);
        assert_eq!(fate(&json!({"approvePlan": "auto"}), &waits), Fate::Applied);
        let texts = preparations(&stack(&json!({}), &waits), Fate::Replanned);
        assert_eq!(
            texts,
            ["approve plan-main-b8e362c206 now, if it should be applied as it is"]
        );
    }

    #[test]
    fn work_in_progress_and_suspension_come_first() {
        let condition = json!({"type": "Ready", "status": "Unknown", "reason": "Progressing", "message": "Applying",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let busy = json!({"conditions": [condition]});
        assert_eq!(fate(&json!({}), &busy), Fate::Busy);
        assert_eq!(fate(&json!({"suspend": true}), &busy), Fate::Suspended);
    }

    #[test]
    fn what_has_to_be_prepared_is_named() {
        let spec = json!({"approvePlan": "plan-main-b8e362c206", "tfstate": {"forceUnlock": "auto"},
            "runnerPodTemplate": {"spec": {"image": "ghcr.io/own:1"}}, "backendConfig": {"labels": {"team": "net"}},
            "webhooks": [{"url": "http://hook", "testExpression": "yes"}]});
        let texts = preparations(&stack(&spec, &json!({})), Fate::Planned).join("\n");
        for part in [
            "approves nothing",
            "ghcr.io/own:1",
            "forceUnlock",
            "labels",
            "DISABLE_WEBHOOK_TLS_VERIFY",
        ] {
            assert!(texts.contains(part), "{part}: {texts}");
        }
        let own = format!("plan-main-b8e362c206-{}", "a".repeat(40));
        assert!(!is_old_id(&own) && !is_old_id("auto") && !is_old_id(""));
    }
}
