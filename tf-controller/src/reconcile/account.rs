//! The ServiceAccount of a stack, under which its runs work and its inputs are read; and that of a destroy whose stack has lost its own.

use sluice_api::run::{TerraformRun, TerraformRunSpec, Trigger};
use sluice_api::terraform::{Reason, Terraform};

use super::Context;
use super::history::by_sequence;
use crate::decide::{NewRun, RunAction};

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

/// Returns whether a run is part of the deletion of its stack: the destroy, or the release of the state lock before it.
pub(super) fn is_of_deletion(run: &TerraformRunSpec, stack: &Terraform) -> bool {
    // The deletion increments the generation.
    let is_release = || run.action == RunAction::Unlock && is_current(run, stack);
    run.trigger == Trigger::Deletion || stack.metadata.deletion_timestamp.is_some() && is_release()
}

fn is_current(run: &TerraformRunSpec, stack: &Terraform) -> bool {
    Some(run.terraform.generation) == stack.metadata.generation
}

/// Returns the account of `--destroy-service-account` for a deletion whose last run had no ServiceAccount, and for the runs that follow
/// it. After an edit, the account of the stack comes first again.
pub(super) fn destroy_account<'a>(
    new: &NewRun,
    stack: &Terraform,
    runs: &[TerraformRun],
    account: Option<&'a str>,
) -> Option<&'a str> {
    let is_release = new.action == RunAction::Unlock && stack.metadata.deletion_timestamp.is_some();
    let account = account.filter(|_| new.trigger == Trigger::Deletion || is_release)?;
    let newest = by_sequence(runs).pop()?;
    let status = newest.status.as_ref();
    let had_none = status.is_some_and(|status| status.reason == Reason::ServiceAccountNotFound);
    let had_this = !newest.spec.service_account_name.is_empty();
    let is_same_deletion = is_of_deletion(&newest.spec, stack) && is_current(&newest.spec, stack);
    (is_same_deletion && (had_none || had_this)).then_some(account)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a stack that is being deleted.
    fn stack(generation: i64) -> Terraform {
        serde_json::from_value(
            json!({ "metadata": { "name": "net", "namespace": "team", "generation": generation,
                "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "code" } } }),
        )
        .unwrap()
    }

    fn run(number: u32, spec: &Value, reason: &str) -> TerraformRun {
        let mut full_spec = json!({ "action": "PlanAndApply", "attempt": 1, "deadline": "1h", "trigger": "Deletion",
            "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
            "terraform": { "name": "net", "uid": "u", "generation": 2 } });
        full_spec
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        serde_json::from_value(
            json!({ "metadata": { "name": format!("net-u-{number}") }, "spec": full_spec,
            "status": { "phase": "Superseded", "reason": reason } }),
        )
        .unwrap()
    }

    fn new_run(trigger: Trigger) -> NewRun {
        NewRun {
            action: RunAction::PlanAndApply,
            trigger,
            destroy: true,
            plan: None,
            approved_by: None,
            attempt: 1,
        }
    }

    #[test]
    fn a_destroy_has_the_other_account_once_its_own_is_missing() {
        let deletion = new_run(Trigger::Deletion);
        let account = |runs: &[TerraformRun]| destroy_account(&deletion, &stack(2), runs, Some("destroyer"));
        let none = json!({});
        assert_eq!(account(&[]), None, "the account of the stack comes first");
        let superseded = run(9, &none, "InputsChanged");
        assert_eq!(account(std::slice::from_ref(&superseded)), None);
        let missing = run(10, &none, "ServiceAccountNotFound");
        // The newest by its number, in any order.
        let both = [missing.clone(), superseded];
        assert_eq!(account(&both), Some("destroyer"));
        let failed = run(
            11,
            &json!({ "serviceAccountName": "destroyer" }),
            "TFExecDestroyFailed",
        );
        assert_eq!(account(&[missing.clone(), failed]), Some("destroyer"));
        assert_eq!(
            destroy_account(&deletion, &stack(2), &both, None),
            None,
            "the policy"
        );
    }

    #[test]
    fn the_release_of_a_lock_is_part_of_a_deletion() {
        let release = NewRun {
            action: RunAction::Unlock,
            destroy: false,
            ..new_run(Trigger::Retry)
        };
        let account = |new: &NewRun, newest: &TerraformRun, stack: &Terraform| {
            destroy_account(new, stack, std::slice::from_ref(newest), Some("destroyer")).is_some()
        };
        let other = json!({ "serviceAccountName": "destroyer" });
        let locked = run(1, &other, "TFExecPlanFailed");
        assert!(
            account(&release, &locked, &stack(2)),
            "after a destroy that met a lock"
        );
        let unlock = json!({ "action": "Unlock", "trigger": "Retry", "serviceAccountName": "destroyer" });
        let released = run(2, &unlock, "");
        assert!(
            account(&new_run(Trigger::Deletion), &released, &stack(2)),
            "the destroy after it"
        );
        let missing = json!({ "action": "Unlock", "trigger": "Retry" });
        let missing = run(3, &missing, "ServiceAccountNotFound");
        assert!(account(&release, &missing, &stack(2)));
        assert!(!account(&release, &missing, &stack(3)), "after an edit");
        let mut kept = stack(2);
        kept.metadata.deletion_timestamp = None;
        for newest in [&locked, &released, &missing] {
            assert!(!account(&release, newest, &kept), "no deletion");
        }
    }

    #[test]
    fn neither_an_edited_stack_nor_another_run_has_the_other_account() {
        let missing = run(1, &json!({}), "ServiceAccountNotFound");
        let account = |trigger, generation| {
            let runs = std::slice::from_ref(&missing);
            destroy_account(&new_run(trigger), &stack(generation), runs, Some("destroyer"))
        };
        assert_eq!(account(Trigger::Deletion, 2), Some("destroyer"));
        assert_eq!(account(Trigger::Deletion, 3), None);
        assert_eq!(account(Trigger::Revision, 2), None);
        // A run before the deletion cannot have that reason; its account would not follow from the policy.
        let before = run(1, &json!({ "trigger": "Revision" }), "ServiceAccountNotFound");
        let runs = std::slice::from_ref(&before);
        assert_eq!(
            destroy_account(&new_run(Trigger::Deletion), &stack(2), runs, Some("d")),
            None
        );
    }
}
