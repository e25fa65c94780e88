//! The apply step: applies exactly the stored plan, in the directory where it was created, with its generated files.
//!
//! An apply that could not lock the state because its backend was unreachable is repeated. Otherwise it would use up the approval
//! without any effect. It is repeated only if it is certain to have done nothing: the CLI reports that it could not acquire the
//! lock, or not load the state, which it does first; it names a failed connection and no holder; it reported no step; and it left no
//! state behind.

pub(crate) mod last_applied;
pub(crate) mod shared_files;

use std::path::Path;
use std::time::Duration;

use kube::Api;
use sluice_api::run::{Action, Phase, TerraformRun};
use sluice_tf_core::bundle::{Bundle, Options, SelectedTool};
use sluice_tf_core::cli::process::CommandExit;
use sluice_tf_core::cli::text::strip_formatting;
use sluice_tf_core::cli::{lock, tool};
use sluice_tf_core::errored_state;
use sluice_tf_core::plan::store::{PlanContext, StoredPlan};
use tokio::time::Instant;

use crate::run::cli::raw_output::RawOutput;
use crate::run::cli::{Cli, arguments};
use crate::run::lifecycle::approval;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::plan::{self, generated_files, module_digest};
use crate::run::state_lock::retry_after_unlock;
use crate::run::workdir::{dependency_lock, directory_error, prepare, run_environment, write_private};

/// The CLI's error for a stale plan.
const STALE_PLAN: &str = "Saved plan is stale";
/// Upstream's variable, of the runner or of the stack's runner pod, that logs the plan before its apply.
const LOG_PLAN_VARIABLE: &str = "LOG_HUMAN_READABLE_PLAN";

const MAX_REPETITIONS: u32 = 5;
/// Delay before the first repetition. It doubles each time. The backend may be another service than the API that is polled.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The CLI's errors for a lock that it could not acquire, and for a state that it could not load before.
const LOCK_ERRORS: [&str; 2] = ["Error acquiring the state lock", "Error: error loading state:"];
/// Connection errors of Go and of the API server.
const CONNECTION_ERRORS: [&str; 12] = [
    "connection refused",
    "connection reset",
    "connection timed out",
    "no route to host",
    "network is unreachable",
    "no such host",
    "i/o timeout",
    "handshake timeout",
    "context deadline exceeded",
    "Client.Timeout exceeded",
    "currently unable to handle the request",
    "EOF",
];

/// The bundle of a stored plan, with the current artifact URL, credentials, keys and outputs. None of these is part of a plan. `tools`:
/// the directory of the installed versions of the CLI.
pub(crate) fn bundle_of_plan(
    stored: &PlanContext,
    current: &Bundle,
    tools: Option<&Path>,
) -> Result<Bundle, RunError> {
    if stored.bundle.inputs_digest != current.inputs_digest {
        return Err(RunError::Superseded(
            "the inputs changed since the plan".to_owned(),
        ));
    }
    Ok(Bundle {
        artifact: current.artifact.clone(),
        environment: current.environment.clone(),
        run_environment: current.run_environment.clone(),
        grace_seconds: current.grace_seconds,
        files_limit: current.files_limit,
        state_copies: current.state_copies.clone(),
        state_check: current.state_check.clone(),
        outputs: current.outputs.clone(),
        plan_keys: current.plan_keys.clone(),
        file_keys: current.file_keys.clone(),
        post_apply: current.post_apply.clone(),
        tool: Some(stored.tool.clone()),
        selected_tool: stored
            .bundle
            .selected_tool
            .clone()
            .map(|selected| pin(selected, &stored.tool_version, tools)),
        ..stored.bundle.clone()
    })
}

/// Replaces a constraint by the version that created the plan: an image may have got a newer one since. Without a constraint that
/// version may be the one on `PATH`, so it is pinned only if it is installed.
fn pin(selected: SelectedTool, of_plan: &str, tools: Option<&Path>) -> SelectedTool {
    let is_installed = |tools| tool::is_installed(tools, &selected.name, of_plan);
    if selected.version.is_empty() && !tools.is_some_and(is_installed) {
        return selected;
    }
    SelectedTool {
        version: of_plan.to_owned(),
        ..selected
    }
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
    write_private(&cli.plan_file(), &stored.plan)
}

/// Verifies, after `init`, that nothing that the plan depends on has changed. Plans again if the plan could not be saved or its
/// generated files are too large to be stored, and compares the effect.
pub(crate) async fn verify(session: &RunSession<'_>, stored: &PlanContext) -> Result<(), RunError> {
    let cli = &session.cli;
    let tool = cli.status.snapshot().tool.unwrap_or_default();
    if tool.version != stored.tool_version {
        let text = format!(
            "the plan was created with {} {}, but its version is now {}: a new plan is required",
            stored.tool, stored.tool_version, tool.version
        );
        return Err(RunError::PlanMismatch(text));
    }
    let modules =
        module_digest::digest(&cli.module).map_err(|source| directory_error("read the modules", source))?;
    if modules != stored.modules {
        return Err(RunError::PlanMismatch(
            "a module that init downloads changed since the plan".to_owned(),
        ));
    }
    if stored.files_omitted || cli.is_unsaved.get() {
        let file = cli.directory.scratch.path().join("again.tfplan");
        let repeated = plan::create(session, stored.destroy, &file).await?;
        if repeated.digest.as_str() != stored.effect {
            return Err(RunError::PlanMismatch(
                "the new plan has a different effect than the approved plan".to_owned(),
            ));
        }
        // An older controller stored no digests of omitted files.
        let different = generated_files::first_difference(&stored.omitted_files, &repeated.generated.omitted);
        if let Some(path) = different.filter(|_| !stored.omitted_files.is_empty()) {
            return Err(RunError::PlanMismatch(format!(
                "the new plan generated a file that differs from the approved plan: {path:?}; a file that is too large to \
                 be stored must be reproducible; remove what varies, such as a timestamp"
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

/// Applies the plan file, after the start of the apply is recorded. The approval was checked at `checked_at`.
pub(crate) async fn apply(session: &RunSession<'_>, checked_at: Instant) -> Result<CommandExit, RunError> {
    let RunSession { run, cli, .. } = session;
    let step = if run.spec.destroy {
        Step::Destroy
    } else {
        Step::Apply
    };
    log_plan(cli).await;
    let args = begin(session, step, checked_at)
        .await
        // The CLI is not started: the approval is not used up.
        .inspect_err(|_| cli.status.buffer(|status| status.attempted_apply = false))?;
    match retry_unreachable_backend(session, step, &args).await {
        Err(RunError::Command { text, raw_output, .. })
            if !raw_output.may_report_a_step() && raw_output.errors_match(reports_stale_plan) =>
        {
            Err(RunError::StalePlan { text })
        }
        applied => applied,
    }
}

/// Records the start of the apply, and returns the arguments of its command.
async fn begin(session: &RunSession<'_>, step: Step, checked_at: Instant) -> Result<Vec<String>, RunError> {
    let RunSession { context, cli, .. } = session;
    if let Some(stopped) = cli.stop_error(step) {
        return Err(stopped);
    }
    cli.status.write(|status| {
        status.phase = Phase::Applying;
        status.attempted_apply = true;
    });
    let recorded = cli.status.flush(context.settings.api_timeout).await;
    recorded.map_err(|_| RunError::Unreported)?;
    if let Some(stopped) = cli.stop_error(step) {
        return Err(stopped);
    }
    // The approval may have been withdrawn while the API was away.
    if checked_at.elapsed() > context.settings.heartbeat {
        recheck(session).await?;
    }
    apply_args(session)
}

fn apply_args(session: &RunSession<'_>) -> Result<Vec<String>, RunError> {
    let RunSession { run, bundle, cli, .. } = session;
    let is_unsaved = cli.is_unsaved.get();
    // terraform refuses variable files beside a plan file
    let variables = if is_unsaved || cli.tool.name == "tofu" {
        prepare::variable_file_arguments(&cli.directory.root, bundle)?
    } else {
        Vec::new()
    };
    let plan = (!is_unsaved).then(|| cli.plan_file());
    Ok(if is_unsaved && run.spec.destroy {
        destroy_arguments(&variables, &bundle.options)
    } else {
        apply_arguments(plan.as_deref(), &variables, &bundle.options)
    })
}

/// `apply`, of a stored plan if there is one. The plan file has the targets, but OpenTofu requires the variable files again.
fn apply_arguments(plan: Option<&Path>, variables: &[String], options: &Options) -> Vec<String> {
    let mut apply = arguments(&[
        "apply",
        "-no-color",
        "-auto-approve",
        "-input=false",
        "-lock=true",
    ]);
    let parallelism = if options.parallelism == 0 {
        10
    } else {
        options.parallelism
    };
    apply.push(format!("-parallelism={parallelism}"));
    apply.push("-refresh=true".to_owned());
    apply.extend_from_slice(variables);
    match plan {
        Some(plan) => apply.push(plan.display().to_string()),
        None => apply.extend(plan::target_arguments(options)),
    }
    apply
}

/// `destroy` without a plan file.
fn destroy_arguments(variables: &[String], options: &Options) -> Vec<String> {
    let mut destroy = arguments(&[
        "destroy",
        "-no-color",
        "-auto-approve",
        "-input=false",
        "-lock-timeout=0s",
        "-lock=true",
        "-parallelism=10",
        "-refresh=true",
    ]);
    destroy.extend_from_slice(variables);
    destroy.extend(plan::target_arguments(options));
    destroy
}

/// Runs the apply, and repeats it while its backend is unreachable and nothing was done.
async fn retry_unreachable_backend(
    session: &RunSession<'_>,
    step: Step,
    args: &[String],
) -> Result<CommandExit, RunError> {
    let mut delay = FIRST_DELAY;
    for _ in 0..MAX_REPETITIONS {
        let applied = retry_after_unlock(session, step, args, &[0]).await;
        let Err(RunError::Command { raw_output, .. }) = &applied else {
            return applied;
        };
        if !did_nothing(&session.cli, raw_output) || !wait_for_api(session, delay).await {
            return applied;
        }
        delay *= 2;
        // The approval may have been withdrawn meanwhile.
        recheck(session).await?;
        tracing::warn!(
            "the apply changed nothing: it could not lock the state, because the backend was unreachable; it is repeated"
        );
    }
    retry_after_unlock(session, step, args, &[0]).await
}

fn did_nothing(cli: &Cli<'_>, raw_output: &RawOutput) -> bool {
    let has_errored_state = cli.module.join(errored_state::FILE).exists();
    !cli.is_unsaved.get()
        && !has_errored_state
        && raw_output.reports_nothing()
        && raw_output.errors_match(is_unreachable)
}

/// Whether an error is about a lock that could not be requested, and not about one that is held (pure).
fn is_unreachable(text: &str) -> bool {
    let plain = strip_formatting(text);
    // The CLI wraps long lines.
    let words: Vec<_> = plain.split_whitespace().collect();
    let words = words.join(" ");
    LOCK_ERRORS.iter().any(|error| words.contains(error))
        && lock::parse(text).is_none()
        && !words.contains("Lock Info:")
        && CONNECTION_ERRORS.iter().any(|error| words.contains(error))
}

/// Waits until the API answers, and at least for the delay; `false` when the run has to end before.
async fn wait_for_api(session: &RunSession<'_>, delay: Duration) -> bool {
    let RunSession { context, cli, .. } = session;
    let api: Api<TerraformRun> = context.api();
    let until = Instant::now() + delay;
    let answers = async {
        // The run itself, because limited credentials permit nothing else.
        let answer = context.retry(|| api.get_metadata(&context.settings.run)).await;
        tokio::time::sleep_until(until).await;
        answer.is_ok()
    };
    tokio::select! {
        answered = answers => answered,
        () = cli.limits.stop.cancelled() => false,
        () = tokio::time::sleep_until(cli.limits.deadline) => false,
    }
}

async fn recheck(session: &RunSession<'_>) -> Result<(), RunError> {
    if session.run.spec.action == Action::Apply {
        return approval::recheck_approval(session).await;
    }
    match approval::wait_reason(session).await? {
        None => Ok(()),
        Some(reason) => Err(RunError::Superseded(format!("not applied: {reason}"))),
    }
}

/// Logs the plan if [`LOG_PLAN_VARIABLE`] is set. A plan that cannot be shown is applied nevertheless.
async fn log_plan(cli: &Cli<'_>) {
    if !run_environment::is_enabled(&cli.environment, LOG_PLAN_VARIABLE) {
        return;
    }
    match plan_text(cli).await {
        Ok(text) => tracing::info!("applying this plan:\n{text}"),
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the plan cannot be shown in the log"
        ),
    }
}

/// The CLI's text of the plan, redacted.
async fn plan_text(cli: &Cli<'_>) -> Result<String, RunError> {
    if cli.is_unsaved.get() {
        return Ok("the CLI could not save it; see the output of the plan".to_owned());
    }
    plan::show(cli).await
}

#[cfg(test)]
mod tests;
