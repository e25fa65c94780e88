//! The ServiceAccount of a stack, under which its runs work and its inputs are read; and that of a destroy whose stack has lost its own.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use sluice_api::run::{TerraformRun, TerraformRunSpec, Trigger};
use sluice_api::terraform::Terraform;
use sluice_runtime::client::is_account_name;

use super::Context;
use crate::decide::RunAction;

/// The account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

impl Context {
    /// Returns the ServiceAccount of a stack; empty: that of pods without one.
    pub(super) fn account_of<'a>(&'a self, stack: &'a Terraform) -> &'a str {
        let own = stack.spec.service_account_name.as_str();
        if own.is_empty() {
            self.default_account.as_deref().unwrap_or_default()
        } else {
            own
        }
    }

    /// Returns the name of the ServiceAccount under which the pods of a stack run.
    pub(super) fn account_of_pods<'a>(&'a self, stack: &'a Terraform) -> &'a str {
        match self.account_of(stack) {
            "" => DEFAULT_ACCOUNT,
            named => named,
        }
    }
}

/// Returns the ServiceAccount of a run: its own, if it has one, and otherwise that of its stack.
pub(super) fn account_of_run<'a>(
    run: &'a TerraformRun,
    stack: &'a Terraform,
    context: &'a Context,
) -> &'a str {
    if run.spec.service_account_name.is_empty() {
        context.account_of(stack)
    } else {
        &run.spec.service_account_name
    }
}

/// Returns the account of `--destroy-service-account` for a run of a deletion, if the ServiceAccount of the stack does not exist. Asks the
/// API: what a run reports is written by the code of its module.
pub(super) async fn replacement<'a>(
    run: &TerraformRunSpec,
    stack: &Terraform,
    context: &'a Context,
) -> Result<Option<&'a str>, kube::Error> {
    let own = context.account_of_pods(stack);
    let Some(other) = candidate(run, stack, own, context.destroy_account.as_deref()) else {
        return Ok(None);
    };
    let accounts: Api<ServiceAccount> = context.api_of(stack);
    let exists = is_account_name(own) && accounts.get_metadata_opt(own).await?.is_some();
    Ok((!exists).then_some(other))
}

/// Returns the account that a run has if that of its stack does not exist. Pure.
fn candidate<'a>(
    run: &TerraformRunSpec,
    stack: &Terraform,
    own: &str,
    other: Option<&'a str>,
) -> Option<&'a str> {
    let is_replaceable = run.service_account_name.is_empty() && is_of_deletion(run, stack);
    other.filter(|other| is_replaceable && *other != own)
}

/// Returns whether a run is part of the deletion of its stack: the destroy, or the release of the state lock before it.
fn is_of_deletion(run: &TerraformRunSpec, stack: &Terraform) -> bool {
    // The deletion increments the generation.
    let is_current = Some(run.terraform.generation) == stack.metadata.generation;
    let is_release = run.action == RunAction::Unlock && is_current;
    run.trigger == Trigger::Deletion || stack.metadata.deletion_timestamp.is_some() && is_release
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_destroy_may_have_another_account_and_only_one() {
        let stack = |deleted: Value| -> Terraform {
            serde_json::from_value(
                json!({ "metadata": { "name": "net", "generation": 2, "deletionTimestamp": deleted },
                "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "code" } } }),
            )
            .unwrap()
        };
        let run = |fields: Value| -> TerraformRunSpec {
            let mut spec = json!({ "action": "PlanAndApply", "attempt": 1, "deadline": "1h", "trigger": "Deletion",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u", "generation": 2 } });
            let fields = fields.as_object().unwrap().clone();
            spec.as_object_mut().unwrap().extend(fields);
            serde_json::from_value(spec).unwrap()
        };
        let release = |generation: u32| {
            run(json!({ "action": "Unlock", "trigger": "Retry",
                "terraform": { "name": "net", "uid": "u", "generation": generation } }))
        };
        let deleted = stack(json!("2026-01-01T00:00:00Z"));
        let of = |run: &TerraformRunSpec, stack: &Terraform| candidate(run, stack, "own", Some("destroyer"));
        let destroy = run(json!({}));
        assert_eq!(of(&destroy, &deleted), Some("destroyer"));
        assert_eq!(of(&release(2), &deleted), Some("destroyer"));
        assert_eq!(candidate(&destroy, &deleted, "own", None), None, "the policy");
        assert_eq!(
            candidate(&destroy, &deleted, "own", Some("own")),
            None,
            "the same"
        );
        assert_eq!(of(&release(1), &deleted), None, "before the deletion");
        assert_eq!(of(&release(2), &stack(Value::Null)), None, "no deletion");
        for fields in [
            json!({ "trigger": "Revision" }),
            // `spec.destroy` of a stack that is not deleted.
            json!({ "trigger": "Spec", "destroy": true }),
            json!({ "serviceAccountName": "destroyer" }),
        ] {
            assert_eq!(of(&run(fields.clone()), &deleted), None, "{fields}");
        }
    }
}
