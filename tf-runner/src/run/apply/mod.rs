//! The apply step: applies exactly the stored plan, in the directory where it was created, with its generated files.

pub(crate) mod last_applied;
pub(crate) mod shared_files;
pub(crate) mod unreachable_backend;

use sluice_api::run::Phase;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::argv;
use sluice_tf_core::cli::process::CommandExit;
use sluice_tf_core::cli::text::strip_formatting;
use sluice_tf_core::plan::readable;
use sluice_tf_core::plan::store::{PlanContext, StoredPlan};
use unreachable_backend::retry_unreachable_backend;

use crate::run::cli::Cli;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::plan::{self, generated_files, module_digest, unsaved_plan};
use crate::run::workdir::{dependency_lock, directory_error, prepare};

/// The CLI's error for a stale plan.
const STALE_PLAN: &str = "Saved plan is stale";
/// Upstream's variable, of the runner or of the stack's runner pod, that logs the plan before its apply.
const LOG_PLAN_VARIABLE: &str = "LOG_HUMAN_READABLE_PLAN";

/// The bundle of a stored plan, with the current artifact URL, credentials, keys and outputs. None of these is part of a plan.
pub(crate) fn bundle_of_plan(stored: &PlanContext, current: &Bundle) -> Result<Bundle, RunError> {
    if stored.bundle.inputs_digest != current.inputs_digest {
        return Err(RunError::Superseded(
            "the inputs changed since the plan was made".to_owned(),
        ));
    }
    Ok(Bundle {
        artifact: current.artifact.clone(),
        environment: current.environment.clone(),
        run_environment: current.run_environment.clone(),
        grace_seconds: current.grace_seconds,
        files_limit: current.files_limit,
        outputs: current.outputs.clone(),
        plan_keys: current.plan_keys.clone(),
        file_keys: current.file_keys.clone(),
        post_apply: current.post_apply.clone(),
        tool: Some(stored.tool.clone()),
        ..stored.bundle.clone()
    })
}

/// Restores the plan file, the generated files and the dependency lock file, before `init`.
pub(crate) fn restore(cli: &Cli<'_>, stored: &StoredPlan) -> Result<(), RunError> {
    generated_files::restore(&cli.directory.root, &stored.context.files)?;
    if let Some(lock) = &stored.context.provider_lock {
        dependency_lock::write(&cli.module, lock)?;
    }
    if stored.plan.is_empty() {
        cli.is_unsaved.set(true);
        return Ok(());
    }
    prepare::write_private(&cli.plan_file(), &stored.plan)
}

/// Verifies, after `init`, that nothing that the plan depends on has changed. Plans again if the plan could not be saved or its
/// generated files are too large to be stored, and compares the effect.
pub(crate) async fn verify(session: &RunSession<'_>, stored: &PlanContext) -> Result<(), RunError> {
    let cli = &session.cli;
    let tool = cli.status.snapshot().tool.unwrap_or_default();
    if tool.version != stored.tool_version {
        let text = format!(
            "the plan was made with {} {}, which is now {}: a new plan is needed",
            stored.tool, stored.tool_version, tool.version
        );
        return Err(RunError::PlanMismatch(text));
    }
    let modules =
        module_digest::digest(&cli.module).map_err(|source| directory_error("read the modules", source))?;
    if modules != stored.modules {
        return Err(RunError::PlanMismatch(
            "a module that init downloads changed since the plan was made".to_owned(),
        ));
    }
    if stored.files_omitted || cli.is_unsaved.get() {
        let file = cli.directory.scratch.path().join("again.tfplan");
        let repeated = plan::create(session, stored.destroy, &file).await?;
        if repeated.digest.as_str() != stored.effect {
            return Err(RunError::PlanMismatch(
                "planning again gave another effect than the one approved".to_owned(),
            ));
        }
        // An older controller stored no digests of omitted files.
        let different = generated_files::first_difference(&stored.omitted_files, &repeated.generated.omitted);
        if let Some(path) = different.filter(|_| !stored.omitted_files.is_empty()) {
            return Err(RunError::PlanMismatch(format!(
                "planning again made another file than the one of the approved plan: {path:?}; a file that is too large to be \
                 stored has to come out the same each time, so take out of it what differs, a time for example"
            )));
        }
    }
    Ok(())
}

/// Whether the title of the first error is that of a stale plan. The error of a step may quote the same text further down.
fn reports_stale_plan(errors: &str) -> bool {
    let errors = strip_formatting(errors);
    let mut titles = errors
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Error: "));
    titles.next().is_some_and(|title| title.starts_with(STALE_PLAN))
}

/// Applies the plan file, after the start of the apply is recorded.
pub(crate) async fn apply(session: &RunSession<'_>) -> Result<CommandExit, RunError> {
    let RunSession {
        context, run, cli, ..
    } = session;
    let step = if run.spec.destroy {
        Step::Destroy
    } else {
        Step::Apply
    };
    log_plan(cli).await;
    if let Some(stopped) = cli.stop_error(step) {
        return Err(stopped);
    }
    cli.status.write(|status| {
        status.phase = Phase::Applying;
        status.attempted_apply = true;
    });
    let recorded = cli.status.flush(context.settings.api_timeout).await;
    recorded.map_err(|_| RunError::Unreported)?;
    let args = apply_args(session)?;
    match retry_unreachable_backend(session, step, &args).await {
        Err(RunError::Command { text, raw_output, .. })
            if !raw_output.may_report_a_step() && raw_output.errors_match(reports_stale_plan) =>
        {
            Err(RunError::StalePlan { text })
        }
        applied => applied,
    }
}

fn apply_args(session: &RunSession<'_>) -> Result<Vec<String>, RunError> {
    let RunSession { run, bundle, cli, .. } = session;
    let is_unsaved = cli.is_unsaved.get();
    // terraform refuses variable files beside a plan file
    let variables = if is_unsaved || cli.tool.name == "tofu" {
        prepare::variable_files(&cli.directory.root, bundle)?
    } else {
        Vec::new()
    };
    Ok(if is_unsaved {
        unsaved_plan::apply_args(run.spec.destroy, &variables, bundle)
    } else {
        argv::apply(&cli.plan_file(), &variables, &plan::argv_options(bundle))
    })
}

/// Logs the plan if [`LOG_PLAN_VARIABLE`] is set. A plan that cannot be shown is applied nevertheless.
async fn log_plan(cli: &Cli<'_>) {
    let value = cli.environment.get(LOG_PLAN_VARIABLE).map(String::as_str);
    if !value.is_some_and(is_enabled) {
        return;
    }
    match plan_text(cli).await {
        Ok(text) => tracing::info!("the plan that is applied:\n{text}"),
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the plan cannot be shown in the log"
        ),
    }
}

fn is_enabled(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("true")
}

/// The CLI's text of the plan, redacted.
async fn plan_text(cli: &Cli<'_>) -> Result<String, RunError> {
    if cli.is_unsaved.get() {
        return Ok("the CLI could not save it; see the output of the plan".to_owned());
    }
    let file = cli.capture(Step::Show, &argv::show(&cli.plan_file())).await?;
    let text = plan::read_text(&file, readable::TEXT_LIMIT)?;
    Ok(cli.status.secrets().redact(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_stale_by_the_title_of_the_first_error() {
        let stale = "\nError: Saved plan is stale\n\nThe given plan file can no longer be applied.\n";
        let warned = format!("\nWarning: Deprecated Parameter\n\nUse use_lockfile.\n{stale}");
        let boxed = "\u{2577}\n\u{2502} Error: Saved plan is stale\n\u{2502} \n\u{2575}\n";
        for said in [stale, &warned, boxed] {
            assert!(reports_stale_plan(said), "{said}");
        }
        let step = format!("\nError: local-exec provisioner error\n\nOutput: {stale}");
        for said in [
            step.as_str(),
            "",
            "the words Saved plan is stale",
            "Error: Other: Saved plan is stale",
        ] {
            assert!(!reports_stale_plan(said), "{said}");
        }
    }

    #[test]
    fn upstreams_one_and_true_ask_for_it() {
        assert!(is_enabled("1") && is_enabled("true") && is_enabled("True"));
        assert!(!is_enabled("") && !is_enabled("0") && !is_enabled("false"));
    }
}
