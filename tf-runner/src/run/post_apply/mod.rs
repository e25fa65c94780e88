//! The steps after an apply, or after a plan without changes: outputs, inventory, health checks.

mod encoding;
pub(crate) mod health;
pub(crate) mod inventory;
pub(crate) mod outputs;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use sluice_api::run::{Health, Phase};
use sluice_tf_core::cli::output::{self, Output};

use crate::run::cli::{Cli, arguments};
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::state;
use crate::run::workdir::directory_error;

/// The outputs of the root module.
#[derive(Default)]
struct Outputs {
    by_name: BTreeMap<String, Output>,
    /// Whether a Secret contains them.
    are_written: bool,
}

/// Writes the outputs, lists the resources and checks the health. `apply_stdout` is the output of the apply, if there was one.
/// Returns whether a Secret contains the outputs.
pub(crate) async fn follow_up(
    session: &RunSession<'_>,
    apply_stdout: Option<&Path>,
) -> Result<bool, RunError> {
    let was_applied = apply_stdout.is_some();
    let outputs = record_outputs(session, apply_stdout).await?;
    list_resources(session, was_applied).await;
    if was_applied || session.bundle.post_apply.health_due {
        check_health(session, &outputs.by_name).await?;
    }
    Ok(outputs.are_written)
}

/// Records the names of the outputs. Reads their values only if a Secret or a health check needs them.
async fn record_outputs(session: &RunSession<'_>, apply_stdout: Option<&Path>) -> Result<Outputs, RunError> {
    let RunSession { bundle, cli, .. } = session;
    let post_apply = &bundle.post_apply;
    let checks_health =
        !post_apply.health_checks.is_empty() && (apply_stdout.is_some() || post_apply.health_due);
    if bundle.outputs.is_some() || checks_health {
        return read_and_write_outputs(session).await;
    }
    let Some(apply_stdout) = apply_stdout else {
        return Ok(Outputs::default()); // unchanged: the names are recorded since the last apply
    };
    let names = File::open(apply_stdout)
        .ok()
        .and_then(|file| output::names_from_apply(file).ok());
    match names.flatten() {
        Some(names) => {
            cli.status.buffer(|status| status.outputs = names);
            Ok(Outputs::default())
        }
        None => read_and_write_outputs(session).await,
    }
}

async fn read_and_write_outputs(session: &RunSession<'_>) -> Result<Outputs, RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    cli.status
        .write_soon(|status| status.phase = Phase::WritingOutputs);
    let args = arguments(&["output", "-no-color", "-json"]);
    let file = cli.capture_object(Step::Output, &args).await?;
    let file = File::open(file).map_err(|source| directory_error("read the outputs", source))?;
    let by_name = output::parse(file)?;
    for output in by_name.values().filter(|output| output.sensitive) {
        let mut secrets = cli.status.secrets();
        secrets.add_json(&output.json());
        output.long_numbers().for_each(|number| secrets.add_text(number));
    }
    cli.status
        .buffer(|status| status.outputs = by_name.keys().cloned().collect());
    let target = bundle.outputs.as_ref().filter(|_| !by_name.is_empty());
    if let Some(target) = target {
        let data = encoding::encode(&by_name, &target.outputs)?;
        let changed = outputs::write(context, target, &bundle.stack, &data).await?;
        cli.status.buffer(|status| status.outputs_written = changed);
    }
    Ok(Outputs {
        are_written: target.is_some(),
        by_name,
    })
}

/// Lists the resources of the state if the spec asks for it. A failure is only logged.
pub(crate) async fn list_resources(session: &RunSession<'_>, was_applied: bool) {
    let post_apply = &session.bundle.post_apply;
    if !post_apply.inventory || !was_applied && !post_apply.inventory_due {
        return;
    }
    if let Err(error) = record_inventory(&session.cli).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the state's resources could not be listed"
        );
    }
}

/// Reads the state and records its resources.
async fn record_inventory(cli: &Cli<'_>) -> Result<(), RunError> {
    let answer = state::pull(cli).await?;
    let file = File::open(answer).map_err(|source| directory_error("read the state", source))?;
    let secrets = cli.status.secrets().clone();
    let inventory = tokio::task::spawn_blocking(move || inventory::parse(file, &secrets))
        .await
        .map_err(|error| directory_error("read the state", std::io::Error::other(error)))??;
    cli.status.buffer(|status| status.inventory = Some(inventory));
    Ok(())
}

/// Makes the health checks in order, and records the result.
async fn check_health(session: &RunSession<'_>, found: &BTreeMap<String, Output>) -> Result<(), RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    let checks = &bundle.post_apply.health_checks;
    if checks.is_empty() {
        return Ok(());
    }
    cli.status
        .write_soon(|status| status.phase = Phase::CheckingHealth);
    let selection = bundle.outputs.as_ref().map(|target| target.outputs.as_slice());
    let selection = selection.unwrap_or_default();
    let data = health::template_data(found, selection)?;
    let redacted_data = health::template_data(&health::without_sensitive(found), selection)?;
    let mut outcome = Ok(());
    for check in checks {
        outcome = tokio::select! {
            result = health::check_one(check, &data, &redacted_data, context, cli.limits.deadline) => result,
            () = cli.limits.stop.cancelled() => Ok(()),
        };
        // A check that was interrupted or not started did not pass.
        if outcome.is_ok()
            && let Some(stopped) = cli.stop_error(Step::Health)
        {
            return Err(stopped);
        }
        if outcome.is_err() {
            break;
        }
    }
    cli.status.write_soon(|status| {
        status.health = Some(Health {
            checks: bundle.post_apply.checks_digest(),
            passed: outcome.is_ok(),
        });
    });
    outcome.map_err(|error| error.redact(&cli.status.secrets()).into())
}
