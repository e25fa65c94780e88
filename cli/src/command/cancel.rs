//! `sluice cancel`: interrupts an active run, as its deadline does.

use kube::ResourceExt as _;
use serde_json::json;
use sluice_api::annotation::CANCEL;
use sluice_api::run::{Phase, TerraformRun};
use sluice_api::terraform::Terraform;

use super::Context;
use super::history::runs_of;
use crate::change::{annotation, merge, token};
use crate::cluster::{ConnectionArgs, describe};
use crate::wait::{self, Progress, Target, WaitArgs};
use crate::{CliError, ExitStatus, run};

/// Arguments of `sluice cancel`.
#[derive(clap::Args, Debug)]
pub struct CancelArgs {
    /// The run, or a stack whose active run is meant.
    #[arg(value_name = "RUN")]
    pub name: String,
    /// Suspend the stack first: otherwise it tries again after its retry interval.
    #[arg(long)]
    pub suspend: bool,
    /// Do not ask.
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// How long to wait for the end of the run.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Interrupts a run.
pub(super) async fn cancel(context: &Context, args: &CancelArgs) -> Result<ExitStatus, CliError> {
    let run = active_run(context, &args.name).await?;
    let (name, namespace) = (run.name_any(), context.cluster.namespace());
    let phase = run::phase(&run);
    let stack = &run.spec.terraform.name;
    let console = context.console;
    console.note(&consequences(&run));
    if !args.yes && !console.confirm(&format!("Cancel run {name}?"), "--yes")? {
        console.note("Nothing was cancelled.");
        return Ok(ExitStatus::Failed);
    }
    if args.suspend {
        let patch = json!({ "spec": { "suspend": true } });
        merge::<Terraform>(&context.cluster, namespace, stack, &patch).await?;
        console.note(&format!("terraform {namespace}/{stack} is suspended."));
    }
    let request = annotation(CANCEL, Some(&token()));
    merge::<TerraformRun>(&context.cluster, namespace, &name, &request).await?;
    if phase == Phase::Pending && !args.suspend {
        console.note(&format!(
            "Run {name} has not begun, and ends when it begins; `sluice suspend {stack}` ends it at once."
        ));
    } else {
        console.note(&format!("Run {name} is being interrupted."));
    }
    if !args.suspend {
        console.note(&format!(
            "The stack tries again after its retry interval, unless `sluice suspend {stack}` comes first."
        ));
    }
    if !args.wait.wait {
        return Ok(ExitStatus::Success);
    }
    let target = Target {
        namespace: namespace.to_owned(),
        name: name.clone(),
        timeout: args.wait.timeout,
        return_command: format!("sluice get runs {name} -n {namespace}"),
    };
    let phase = wait::until(&context.cluster, &target, |found: Option<&TerraformRun>| {
        Ok(end_of(found))
    })
    .await?;
    console.note(&format!("Run {name} has ended: {}.", phase.as_str()));
    Ok(ExitStatus::Success)
}

/// Reads the run, or the active run of the stack with this name.
async fn active_run(context: &Context, name: &str) -> Result<TerraformRun, CliError> {
    let namespace = context.cluster.namespace();
    let runs = context.cluster.objects::<TerraformRun>();
    let found = runs.get_opt(name).await.map_err(|source| CliError::Api {
        action: "get",
        object: describe::<TerraformRun>(namespace, name),
        source: Box::new(source),
    })?;
    if let Some(run) = found {
        return check_active(run);
    }
    let stack: Terraform = context.cluster.get(name).await?;
    let runs = runs_of(&context.cluster, &stack).await?;
    let active = runs.into_iter().find(|run| !run::phase(run).is_final());
    active.ok_or_else(|| CliError::Refused {
        object: describe::<Terraform>(namespace, name),
        cause: "it has no active run".to_owned(),
        next_command: format!("sluice history {name}"),
    })
}

/// Refuses a run that has ended.
fn check_active(run: TerraformRun) -> Result<TerraformRun, CliError> {
    let phase = run::phase(&run);
    if !phase.is_final() {
        return Ok(run);
    }
    Err(CliError::Refused {
        object: describe::<TerraformRun>(&run.namespace().unwrap_or_default(), &run.name_any()),
        cause: format!("it has ended: {}", phase.as_str()),
        next_command: format!("sluice history {}", run.spec.terraform.name),
    })
}

/// Returns what the interruption of a run means. Pure.
#[must_use]
fn consequences(run: &TerraformRun) -> String {
    let phase = run::phase(run);
    let name = run.name_any();
    let effect = match phase {
        Phase::Applying => {
            "the CLI completes the operations in progress and writes the state; the rest of the plan is not applied"
        }
        Phase::WritingOutputs | Phase::CheckingHealth => {
            "the plan is applied already; outputs or health checks are not completed"
        }
        Phase::BreakingTheGlass => "the session is closed",
        _ => "nothing has been changed",
    };
    format!("Run {name} is {}: {effect}.", phase.as_str())
}

/// Returns whether a run has ended, in whatever way; a cancelled run ends as failed. Pure.
fn end_of(found: Option<&TerraformRun>) -> Progress<Phase> {
    let phase = found.map_or(Phase::Lost, run::phase);
    if phase.is_final() {
        Progress::Done(phase)
    } else {
        Progress::Waiting(phase.as_str().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn run(phase: &str) -> TerraformRun {
        fixture::run(4, &json!({ "phase": phase }))
    }

    #[test]
    fn only_an_active_run_is_cancelled() {
        assert!(check_active(run("Planning")).is_ok());
        assert_eq!(
            check_active(run("Failed")).unwrap_err().to_string(),
            "terraformrun team/app-0123456789-4: it has ended: Failed"
        );
    }

    #[test]
    fn the_question_says_what_an_interruption_leaves_behind() {
        for (phase, part) in [
            ("Pending", "nothing has been changed"),
            ("Planning", "nothing has been changed"),
            ("Applying", "the rest of the plan is not applied"),
            ("CheckingHealth", "the plan is applied already"),
            ("BreakingTheGlass", "the session is closed"),
        ] {
            let text = consequences(&run(phase));
            assert!(
                text.starts_with(&format!("Run app-0123456789-4 is {phase}: ")),
                "{text}"
            );
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_cancelled_run_has_ended_as_failed() {
        assert_eq!(end_of(Some(&run("Failed"))), Progress::Done(Phase::Failed));
        let waiting = Progress::Waiting("Applying".to_owned());
        assert_eq!(end_of(Some(&run("Applying"))), waiting);
        assert_eq!(end_of(None), Progress::Done(Phase::Lost));
    }
}
