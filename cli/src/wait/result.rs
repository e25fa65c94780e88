//! When a source, a stack or a run is done, and what its result is. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use sluice_api::condition::{SourceCondition, find};
use sluice_api::run::{Phase, TerraformRun};
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

use super::Progress;
use crate::stack::{self, StackState};
use crate::{CliError, run};

/// The request has not been seen by the controller.
const UNSEEN: &str = "the controller has not seen the request yet";

/// Returns whether a stack is done, with the text of its result. `request` is the value of the annotation that asked for a
/// reconciliation; without it the state counts as it is.
///
/// # Errors
/// The stack failed, is suspended, does not exist any more, or its plan waits for an approval.
pub fn stack_result(found: Option<&Terraform>, request: Option<&str>) -> Result<Progress<String>, CliError> {
    let stack = found.ok_or_else(|| gone("the stack"))?;
    let object = format!("terraform {}", stack::full_name(stack));
    // For the next command: the stack may be in another namespace than that of the context.
    let name = format!(
        "{} -n {}",
        stack.name_any(),
        stack.namespace().unwrap_or_default()
    );
    let status = stack.status.as_ref();
    let is_handled = |token: &str| status.is_some_and(|status| status.last_handled_reconcile_at == token);
    let state = stack::state(stack);
    if state == StackState::Suspended {
        return Err(CliError::Refused {
            object,
            cause: "it is suspended".to_owned(),
            next_command: format!("sluice resume {name}"),
        });
    }
    if request.is_some_and(|token| !is_handled(token)) {
        let text = stack::progress(stack).unwrap_or(UNSEEN);
        return Ok(Progress::Waiting(text.to_owned()));
    }
    let message = stack::message(stack).to_owned();
    // The request was seen, and no run handles it yet: the state is that of the time before.
    let is_pending = status.is_some_and(|status| !status.pending_reconcile_request.is_empty());
    match state {
        _ if request.is_some() && is_pending => Ok(Progress::Waiting(message)),
        StackState::Ready | StackState::Planned => Ok(Progress::Done(message)),
        StackState::Drifted if stack::pending_plan(stack).is_some() => Ok(Progress::Done(message)),
        StackState::AwaitsApproval => Err(CliError::AwaitsApproval {
            object,
            plan: stack::pending_plan(stack).unwrap_or_default().to_owned(),
            next_command: format!("sluice approve {name}"),
        }),
        StackState::Failed => Err(CliError::Failed {
            object,
            cause: message,
            next_command: format!("sluice history {name}"),
        }),
        StackState::Rejected => Err(CliError::Failed {
            object,
            cause: message,
            next_command: format!("sluice replan {name}"),
        }),
        StackState::Drifted
        | StackState::Deleting
        | StackState::Running
        | StackState::Waiting
        | StackState::Suspended => Ok(Progress::Waiting(message)),
    }
}

/// Returns whether a source is done, with the revision of its artifact. `request` is as for [`stack_result`].
///
/// # Errors
/// The source failed, is suspended, or does not exist any more.
pub fn source_result(
    found: Option<&GitRepository>,
    request: Option<&str>,
) -> Result<Progress<String>, CliError> {
    let source = found.ok_or_else(|| gone("the source"))?;
    let (name, namespace) = (source.name_any(), source.namespace().unwrap_or_default());
    let object = format!("gitrepository {namespace}/{name}");
    if source.spec.suspend {
        return Err(CliError::Refused {
            object,
            cause: "it is suspended".to_owned(),
            next_command: format!("sluice resume source {name} -n {namespace}"),
        });
    }
    let status = source.status.clone().unwrap_or_default();
    let is_handled = request.is_none_or(|token| status.last_handled_reconcile_at.as_deref() == Some(token));
    let generation = source.metadata.generation;
    let is_observed = generation.is_none_or(|now| status.observed_generation.is_some_and(|seen| seen >= now));
    if !is_handled || !is_observed {
        return Ok(Progress::Waiting(UNSEEN.to_owned()));
    }
    let condition = |kind: SourceCondition| find(&status.conditions, kind);
    // With a failure it says when the next attempt is.
    let is_busy = condition(SourceCondition::Reconciling).is_some_and(|reconciling| {
        reconciling.status == "True" && reconciling.reason != "ProgressingWithRetry"
    });
    let ready = condition(SourceCondition::Ready);
    match ready.map(|ready| ready.status.as_str()) {
        Some("True") if !is_busy => {
            let artifact = status.artifact.as_ref();
            let revision = artifact.map(|artifact| artifact.revision.clone());
            Ok(Progress::Done(revision.unwrap_or_default()))
        }
        Some("False") if !is_busy => Err(CliError::Failed {
            object,
            cause: text_of(ready),
            next_command: format!("sluice get sources {name} -n {namespace}"),
        }),
        _ => Ok(Progress::Waiting(text_of(ready))),
    }
}

/// Returns whether a run has ended, with its phase.
///
/// # Errors
/// The run failed or was lost, or does not exist any more.
pub fn run_result(found: Option<&TerraformRun>) -> Result<Progress<Phase>, CliError> {
    let record = found.ok_or_else(|| gone("the run"))?;
    let status = record.status.clone().unwrap_or_default();
    match run::phase(record) {
        Phase::Failed | Phase::Lost => Err(CliError::Failed {
            object: format!(
                "terraformrun {}/{}",
                record.namespace().unwrap_or_default(),
                record.name_any()
            ),
            cause: format!("{}: {}", status.reason, status.message),
            next_command: format!(
                "sluice history {} -n {}",
                record.spec.terraform.name,
                record.namespace().unwrap_or_default()
            ),
        }),
        phase if phase.is_final() => Ok(Progress::Done(phase)),
        phase if status.message.is_empty() => Ok(Progress::Waiting(phase.as_str().to_owned())),
        phase => Ok(Progress::Waiting(format!(
            "{}: {}",
            phase.as_str(),
            status.message
        ))),
    }
}

fn gone(object: &str) -> CliError {
    CliError::Failed {
        object: object.to_owned(),
        cause: "it does not exist any more".to_owned(),
        next_command: String::new(),
    }
}

fn text_of(condition: Option<&Condition>) -> String {
    condition.map_or_else(
        || "no controller has reconciled it yet".to_owned(),
        |condition| format!("{}: {}", condition.reason, condition.message),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::ExitStatus;
    use crate::fixture::{self, condition, merge, ready};

    /// The word for a result: `done`, `waiting`, or the exit code of the error.
    fn word<T>(result: &Result<Progress<T>, CliError>) -> String {
        match result {
            Ok(Progress::Done(_)) => "done".to_owned(),
            Ok(Progress::Waiting(_)) => "waiting".to_owned(),
            Err(error) => format!("{:?}", error.exit_status()),
        }
    }

    fn stack(spec: &Value, status: &Value) -> Terraform {
        let mut changes = json!({ "spec": spec, "status": { "lastHandledReconcileAt": "now" } });
        merge(&mut changes["status"], status);
        fixture::stack(&changes)
    }

    #[test]
    fn the_result_of_a_stack_follows_its_state() {
        let with = |mut status: Value, field: &str, value: Value| {
            status[field] = value;
            status
        };
        let plan = json!({"pending": "plan-main-0123456789-x"});
        let planned = with(
            ready("Unknown", "TerraformPlannedWithChanges"),
            "plan",
            plan.clone(),
        );
        let drifted = with(ready("False", "DriftDetected"), "plan", plan);
        let pending = with(
            ready("False", "TFExecPlanFailed"),
            "pendingReconcileRequest",
            json!("now"),
        );
        let unseen = with(
            ready("True", "TerraformAppliedSucceed"),
            "lastHandledReconcileAt",
            json!("old"),
        );
        for (spec, status, expected) in [
            (json!({}), ready("True", "TerraformAppliedSucceed"), "done"),
            (json!({}), ready("Unknown", "Progressing"), "waiting"),
            (json!({}), ready("False", "ArtifactFailed"), "waiting"),
            (json!({}), ready("False", "TFExecPlanFailed"), "Failed"),
            // A correction of the drift follows, unless plans are never applied.
            (json!({}), ready("False", "DriftDetected"), "waiting"),
            (json!({"approvePlan": "disable"}), drifted, "done"),
            (json!({"planOnly": true}), planned.clone(), "done"),
            (json!({}), planned, "AwaitsApproval"),
            (json!({}), pending, "waiting"),
            (json!({}), unseen, "waiting"),
            (json!({"suspend": true}), json!({}), "Failed"),
        ] {
            let result = stack_result(Some(&stack(&spec, &status)), Some("now"));
            assert_eq!(word(&result), expected, "{spec} {status}");
        }
        assert_eq!(word(&stack_result(None, None)), "Failed");
    }

    #[test]
    fn without_a_request_the_state_counts_as_it_is() {
        let status = json!({"lastHandledReconcileAt": "old", "conditions": [condition("Ready", "True", "TerraformAppliedSucceed")]});
        let stack = stack(&json!({}), &status);
        assert_eq!(
            stack_result(Some(&stack), None).unwrap(),
            Progress::Done("m".to_owned())
        );
    }

    #[test]
    fn a_source_is_done_when_it_has_handled_the_request() {
        let source = |spec_suspend: bool, handled: &str, conditions: Vec<Value>| -> GitRepository {
            serde_json::from_value(json!({
                "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
                "metadata": {"name": "repo", "namespace": "default", "generation": 1},
                "spec": {"interval": "1m", "url": "https://example.com/a", "suspend": spec_suspend},
                "status": {"observedGeneration": 1, "lastHandledReconcileAt": handled, "conditions": conditions},
            }))
            .unwrap()
        };
        let ready = |status| condition("Ready", status, "Succeeded");
        let busy = |reason| condition("Reconciling", "True", reason);
        for (source, expected) in [
            (source(false, "now", vec![ready("True")]), "done"),
            (source(false, "old", vec![ready("True")]), "waiting"),
            (
                source(false, "now", vec![ready("True"), busy("Progressing")]),
                "waiting",
            ),
            (
                source(false, "now", vec![ready("False"), busy("ProgressingWithRetry")]),
                "Failed",
            ),
            (source(false, "now", vec![ready("Unknown")]), "waiting"),
            (source(false, "now", vec![]), "waiting"),
            (source(true, "now", vec![ready("True")]), "Failed"),
        ] {
            assert_eq!(
                word(&source_result(Some(&source), Some("now"))),
                expected,
                "{source:?}"
            );
        }
    }

    #[test]
    fn the_result_of_a_run_follows_its_phase() {
        for (phase, expected) in [
            ("Pending", "waiting"),
            ("Applying", "waiting"),
            ("Succeeded", "done"),
            ("Superseded", "done"),
            ("Failed", "Failed"),
            ("Lost", "Failed"),
        ] {
            let run = fixture::run(4, &json!({"phase": phase, "reason": "R", "message": "m"}));
            assert_eq!(word(&run_result(Some(&run))), expected, "{phase}");
        }
        let exit = run_result(None).unwrap_err().exit_status();
        assert_eq!(exit, ExitStatus::Failed);
    }
}
