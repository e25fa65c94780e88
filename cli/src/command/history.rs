//! `sluice history`: the runs of one stack.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ListParams;
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{Terraform, label_value};
use sluice_runtime::clock::{Clock as _, SystemClock};

use super::Context;
use crate::cluster::{Cluster, ConnectionArgs};
use crate::output::{Cell, OutputFormat, Table, age, duration, lines, to_json, to_yaml};
use crate::{CliError, ExitStatus, run};

/// Arguments of `sluice history`.
#[derive(clap::Args, Debug)]
pub struct HistoryArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: OutputFormat,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Prints the runs of a stack, newest first.
pub(super) async fn history(context: &Context, args: &HistoryArgs) -> Result<ExitStatus, CliError> {
    let stack: Terraform = context.cluster.get(&args.name).await?;
    let runs = runs_of(&context.cluster, &stack).await?;
    let console = context.console;
    match args.output {
        OutputFormat::Json => console.data(&to_json(&runs)?)?,
        OutputFormat::Yaml => console.data(&to_yaml(&runs)?)?,
        OutputFormat::Name => {
            console.data(&lines(runs.iter().map(ResourceExt::name_any)))?;
        }
        OutputFormat::Table | OutputFormat::Wide => console.table(&table(&runs, SystemClock.now()))?,
    }
    Ok(ExitStatus::Success)
}

/// Reads the runs of a stack, newest first. The API selects them by their label; a namesake of another uid is left out.
///
/// # Errors
/// The API rejects the request.
pub(super) async fn runs_of(cluster: &Cluster, stack: &Terraform) -> Result<Vec<TerraformRun>, CliError> {
    let label = format!("{TERRAFORM_LABEL}={}", label_value(&stack.name_any()));
    let params = ListParams::default().labels(&label);
    let mut runs = cluster
        .list_with(&cluster.objects::<TerraformRun>(), params)
        .await?;
    let uid = stack.uid().unwrap_or_default();
    runs.retain(|run| run.spec.terraform.uid == uid);
    run::sort_newest_first(&mut runs);
    Ok(runs)
}

/// Returns who approved: the users of its PlanApprovals, or else what the run records of `spec.approvePlan`.
fn approvers(run: &TerraformRun) -> String {
    let approvals = run.status.iter().flat_map(|status| &status.approvals);
    let users: Vec<_> = approvals.map(|approval| approval.approver.as_str()).collect();
    if users.is_empty() {
        run.spec.approved_by.clone()
    } else {
        users.join(", ")
    }
}

/// Builds the table of runs, in their order.
#[must_use]
pub(super) fn table(runs: &[TerraformRun], now: Timestamp) -> Table {
    let mut table = Table::new(&[
        "RUN",
        "AGE",
        "ACTION",
        "TRIGGER",
        "REVISION",
        "PHASE",
        "CHANGES",
        "DURATION",
        "APPROVED BY",
        "MESSAGE",
    ]);
    for run in runs {
        let status = run.status.clone().unwrap_or_default();
        let phase = run::phase(run);
        let created = run.metadata.creation_timestamp.as_ref();
        table.push(vec![
            run::number(run).to_string().into(),
            created
                .map(|created| age(created.0, now))
                .unwrap_or_default()
                .into(),
            run.spec.action.as_str().into(),
            run.spec.trigger.as_str().into(),
            run.spec.source.revision.as_str().into(),
            Cell::new(phase.as_str(), run::tone(phase)),
            status.changes.as_str().into(),
            run::lasted(run, now).map(duration).unwrap_or_default().into(),
            approvers(run).into(),
            status.message.as_str().into(),
        ]);
    }
    table
}
