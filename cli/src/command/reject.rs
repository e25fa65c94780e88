//! `sluice reject`: shows the plan, asks, and writes the annotation that rejects it, with who, when and why.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use sluice_api::annotation::REJECTED_PLAN;
use sluice_api::run::{Action, Phase, PlanRejection, TerraformRun, rejection_request};
use sluice_api::terraform::Terraform;
use sluice_runtime::clock::{Clock as _, SystemClock};

use super::approve::{refused, waiting_plan};
use super::history::runs_of;
use super::plan::{describe_plan, shown_run};
use super::{Context, plan_approval};
use crate::change::{annotation, merge};
use crate::cluster::{Cluster, ConnectionArgs};
use crate::{CliError, ExitStatus, run, stack};

/// Arguments of `sluice reject`.
#[derive(clap::Args, Debug)]
pub struct RejectArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Reject only the plan with this id.
    #[arg(long, value_name = "PLAN")]
    pub id: Option<String>,
    /// Why you reject it.
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// Do not ask.
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Rejects the plan that waits.
pub(super) async fn reject(context: &Context, args: &RejectArgs) -> Result<ExitStatus, CliError> {
    let stack: Terraform = context.cluster.get(&args.name).await?;
    let plan = plan_to_reject(&stack, args.id.as_deref())?;
    let runs = runs_of(&context.cluster, &stack).await?;
    check_not_applied(&stack, plan, &runs)?;
    let console = context.console;
    if !args.yes {
        let made_by = shown_run(&stack, &runs)?;
        console.note(&describe_plan(&stack, made_by, console));
        if !console.confirm(&format!("Reject {plan}?"), "--yes")? {
            console.note("Nothing was rejected.");
            return Ok(ExitStatus::Failed);
        }
    }
    let rejection = PlanRejection {
        comment: args.comment.clone().unwrap_or_default(),
        rejected_at: Some(Time(SystemClock.now())),
        rejected_by: user_name(context).await,
    };
    write(&context.cluster, &stack, plan, &rejection).await?;
    let name = stack.name_any();
    console.note(&format!(
        "Rejected {plan}. A change of what the stack reads, or `sluice replan {name}`, makes a new plan."
    ));
    if stack.spec.suspend {
        console.note("The stack is suspended: it shows the rejection after its resume.");
    }
    Ok(ExitStatus::Success)
}

/// Rejects the plan with this id without a question and without a comment. `cluster` has the namespace of the stack.
///
/// # Errors
/// Another plan waits or none, its apply has begun, or the API rejects the patch.
pub async fn reject_plan(cluster: &Cluster, stack: &Terraform, plan: &str) -> Result<(), CliError> {
    let plan = plan_to_reject(stack, Some(plan))?;
    check_not_applied(stack, plan, &runs_of(cluster, stack).await?)?;
    // A rejection is only a brake, so it is possible without a name.
    let user = plan_approval::who_am_i(cluster.client()).await;
    let rejection = PlanRejection {
        comment: String::new(),
        rejected_at: Some(Time(SystemClock.now())),
        rejected_by: user.ok().and_then(|user| user.username).unwrap_or_default(),
    };
    write(cluster, stack, plan, &rejection).await
}

/// Returns the id of the plan that waits; it must be `id`, if there is one. Pure.
///
/// # Errors
/// Another plan waits or none, it was rejected, its plans are never applied, or the stack is being deleted.
pub fn plan_to_reject<'a>(stack: &'a Terraform, id: Option<&str>) -> Result<&'a str, CliError> {
    if stack.metadata.deletion_timestamp.is_some() {
        let cause =
            "it is being deleted, and its destroy needs no approval; a suspended stack is not destroyed";
        return Err(refused(stack, cause.to_owned(), "suspend"));
    }
    waiting_plan(stack, id)
}

/// Refuses a plan that a run applies already. Pure.
fn check_not_applied(stack: &Terraform, plan: &str, runs: &[TerraformRun]) -> Result<(), CliError> {
    let applies = |run: &&TerraformRun| {
        let names_plan = run.spec.plan.as_ref().is_some_and(|source| source.id == plan);
        let has_begun = matches!(
            run::phase(run),
            Phase::Applying | Phase::WritingOutputs | Phase::CheckingHealth
        );
        run.spec.action == Action::Apply && names_plan && has_begun
    };
    let Some(applying) = runs.iter().find(applies) else {
        return Ok(());
    };
    let cause = format!("run {} applies {plan} already", applying.name_any());
    Err(refused(stack, cause, "cancel"))
}

/// Returns the name of the user as the API server knows it; empty if it does not say. A rejection is only a brake, so it is possible
/// without a name.
async fn user_name(context: &Context) -> String {
    match plan_approval::who_am_i(context.cluster.client()).await {
        Ok(user) => user.username.unwrap_or_default(),
        Err(error) => {
            context.report(&error);
            context.console.note("The rejection names no user.");
            String::new()
        }
    }
}

/// Writes the annotation. It names the plan, so it has no effect if another plan waits meanwhile.
async fn write(
    cluster: &Cluster,
    stack: &Terraform,
    plan: &str,
    rejection: &PlanRejection,
) -> Result<(), CliError> {
    let request = rejection_request(plan, rejection).map_err(|error| CliError::Format(error.to_string()))?;
    let patch = annotation(REJECTED_PLAN, Some(&request));
    let written: Terraform = merge(cluster, cluster.namespace(), &stack.name_any(), &patch).await?;
    if stack::pending_plan(&written) == Some(plan) && written.uid() == stack.uid() {
        return Ok(());
    }
    let cause = format!("{plan} does not wait any more: nothing was rejected");
    Err(refused(stack, cause, "plan show"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PLAN: &str = "plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567";
    const OTHER: &str = "plan-main-b8e362c206-1123456789abcdef0123456789abcdef01234567";

    /// A stack whose plan [`PLAN`] waits, with these changes.
    fn waiting(changes: &[(&str, Value)]) -> Terraform {
        let mut object = json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": "app", "namespace": "default", "generation": 1 },
            "spec": { "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "repo" } },
            "status": { "observedGeneration": 1, "plan": { "pending": PLAN }, "conditions": [condition("Unknown", "TerraformPlannedWithChanges", "m")] },
        });
        for (pointer, value) in changes {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn condition(status: &str, reason: &str, message: &str) -> Value {
        json!({ "type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" })
    }

    fn refusal(stack: &Terraform, id: Option<&str>) -> (String, String) {
        let error = plan_to_reject(stack, id).unwrap_err();
        (error.to_string(), error.advice())
    }

    #[test]
    fn only_the_plan_that_waits_is_rejected() {
        assert_eq!(plan_to_reject(&waiting(&[]), None).unwrap(), PLAN);
        assert_eq!(plan_to_reject(&waiting(&[]), Some(PLAN)).unwrap(), PLAN);
        let suspended = waiting(&[("/spec/suspend", json!(true))]);
        assert_eq!(plan_to_reject(&suspended, None).unwrap(), PLAN);
        let (cause, _) = refusal(&waiting(&[]), Some(OTHER));
        assert!(
            cause.ends_with(&format!("the plan that waits is {PLAN}")),
            "{cause}"
        );
        for (change, part) in [
            (("/status/plan", json!({})), "no plan waits for an approval"),
            (
                ("/spec/approvePlan", json!("disable")),
                "its plans are never applied",
            ),
            (
                ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
                "it is being deleted",
            ),
        ] {
            let (cause, _) = refusal(&waiting(std::slice::from_ref(&change)), None);
            assert!(cause.contains(part), "{cause}");
        }
    }

    #[test]
    fn a_rejected_plan_is_neither_rejected_again_nor_approved() {
        let rejection = PlanRejection {
            rejected_by: "alice".to_owned(),
            ..PlanRejection::default()
        };
        let annotations = json!({ REJECTED_PLAN: rejection_request(PLAN, &rejection).unwrap() });
        let seen_later = waiting(&[("/metadata/annotations", annotations)]);
        let message = format!("Plan {PLAN} was rejected by alice. A request makes a new plan");
        let seen = waiting(&[
            ("/status/plan", json!({})),
            (
                "/status/conditions",
                json!([condition("False", "PlanRejected", &message)]),
            ),
        ]);
        for stack in [seen_later, seen] {
            let (cause, next) = refusal(&stack, None);
            assert!(
                cause.contains(&format!("{PLAN} was rejected by alice")),
                "{cause}"
            );
            assert_eq!(next, "sluice replan app");
            let approval = super::super::approve::plan_to_approve(&stack, None).unwrap_err();
            assert_eq!(approval.to_string(), cause);
        }
        // Of another plan.
        let stale = json!({ REJECTED_PLAN: OTHER });
        let stale = waiting(&[("/metadata/annotations", stale)]);
        assert_eq!(plan_to_reject(&stale, None).unwrap(), PLAN);
    }

    #[test]
    fn an_apply_that_has_begun_is_for_cancel() {
        let run = |action: &str, phase: &str, plan: &str| -> TerraformRun {
            serde_json::from_value(json!({
                "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
                "metadata": { "name": "app-0123456789-4", "namespace": "default" },
                "spec": { "action": action, "attempt": 1, "deadline": "1h", "trigger": "Approval", "plan": { "id": plan, "run": "app-0123456789-3" },
                    "source": { "kind": "GitRepository", "name": "repo", "namespace": "default" },
                    "terraform": { "generation": 1, "name": "app", "uid": "u" } },
                "status": { "phase": phase },
            }))
            .unwrap()
        };
        let check = |run: TerraformRun| check_not_applied(&waiting(&[]), PLAN, &[run]);
        for stopped in [
            run("Apply", "Pending", PLAN),
            run("Apply", "Initializing", PLAN),
            run("Apply", "Applying", OTHER),
        ] {
            assert!(check(stopped).is_ok());
        }
        let error = check(run("Apply", "Applying", PLAN)).unwrap_err();
        assert!(
            error.to_string().contains("run app-0123456789-4 applies"),
            "{error}"
        );
        assert_eq!(error.advice(), "sluice cancel app");
    }
}
