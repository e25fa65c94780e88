//! The apply step: exactly the stored plan, in the place where it was made, with what lay around it.

pub(crate) mod last_applied;
pub(crate) mod shared_files;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use sluice_api::run::{Phase, TerraformRun};

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::plan;
use crate::run::plan::generated_files;
use crate::run::plan::module_digest;
use crate::run::plan::plan_log;
use crate::run::plan::unsaved_plan;
use crate::run::post_apply::health;
use crate::run::post_apply::inventory;
use crate::run::post_apply::outputs;
use crate::run::state_rescue::unreachable_backend;
use crate::run::workdir::failed;
use crate::run::workdir::lock_file;
use crate::run::workdir::prepare;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::argv;
use sluice_tf_core::cli::output::{self, Output};
use sluice_tf_core::cli::process::CommandExit;
use sluice_tf_core::cli::text::strip_formatting;
use sluice_tf_core::plan::store::{PlanContext, StoredPlan};

/// The CLI's words for a plan whose state has moved on.
const STALE: &str = "Saved plan is stale";

/// The bundle that a stored plan is applied with: the plan's, but fetched from where the artifact is now, with the credentials
/// of now and the outputs as they are wanted now. None of these is part of a plan.
pub(crate) fn bundle_of_plan(stored: &PlanContext, now: &Bundle) -> Result<Bundle, RunError> {
    if stored.bundle.inputs_digest != now.inputs_digest {
        return Err(RunError::Superseded(
            "the inputs changed since the plan was made".to_owned(),
        ));
    }
    Ok(Bundle {
        artifact: now.artifact.clone(),
        environment: now.environment.clone(),
        run_environment: now.run_environment.clone(),
        grace_seconds: now.grace_seconds,
        files_limit: now.files_limit,
        outputs: now.outputs.clone(),
        plan_keys: now.plan_keys.clone(),
        file_keys: now.file_keys.clone(),
        post_apply: now.post_apply.clone(),
        tool: Some(stored.tool.clone()),
        ..stored.bundle.clone()
    })
}

/// Puts back what lay around the plan, before `init`.
pub(crate) fn restore(workspace: &Workspace<'_>, stored: &StoredPlan) -> Result<(), RunError> {
    generated_files::restore(&workspace.directory.root, &stored.context.files)?;
    if let Some(lock) = &stored.context.provider_lock {
        lock_file::write(&workspace.module, lock)?;
    }
    if stored.plan.is_empty() {
        workspace.is_unsaved.set(true);
        return Ok(());
    }
    prepare::write_private(&workspace.plan_file(), &stored.plan)
}

/// Proves, after `init`, that what the plan depends on is still the same; makes again what was too large to store, and a
/// plan that its CLI could not save.
pub(crate) async fn prove(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    stored: &PlanContext,
) -> Result<(), RunError> {
    let tool = workspace.reporter.said().tool.unwrap_or_default();
    if tool.version != stored.tool_version {
        let text = format!(
            "the plan was made with {} {}, which is now {}: a new plan is needed",
            stored.tool, stored.tool_version, tool.version
        );
        return Err(RunError::NotExact(text));
    }
    let found =
        module_digest::digest(&workspace.module).map_err(|source| failed("read the modules", source))?;
    if found != stored.modules {
        return Err(RunError::NotExact(
            "a module that init downloads changed since the plan was made".to_owned(),
        ));
    }
    if stored.files_omitted || workspace.is_unsaved.get() {
        let scratch = workspace.directory.scratch.path().join("again.tfplan");
        let again = plan::make(context, bundle, workspace, stored.destroy, &scratch).await?;
        if again.digest.as_str() != stored.effect {
            return Err(RunError::NotExact(
                "planning again gave another effect than the one approved".to_owned(),
            ));
        }
        // A plan that was stored without them has none.
        let other = generated_files::differing(&stored.omitted_files, &again.made.omitted);
        if let Some(path) = other.filter(|_| !stored.omitted_files.is_empty()) {
            return Err(RunError::NotExact(format!(
                "planning again made another file than the one of the approved plan: {path:?}; a file that is too large to be \
                 stored has to come out the same each time, so take out of it what differs, a time for example"
            )));
        }
    }
    Ok(())
}

/// Whether the CLI itself says that the plan is stale: by the title of its first error. What a step runs may say these words
/// too, inside the error of the step, which may be longer than what is looked at.
fn says_it_is_stale(said: &str) -> bool {
    let said = strip_formatting(said);
    let mut titles = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Error: "));
    titles.next().is_some_and(|title| title.starts_with(STALE))
}

/// Applies the plan file. That the apply starts is on record before it does.
pub(crate) async fn apply(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
) -> Result<CommandExit, RunError> {
    let step = if run.spec.destroy {
        Step::Destroy
    } else {
        Step::Apply
    };
    plan_log::show(workspace).await;
    if let Some(stopped) = workspace.too_late(step) {
        return Err(stopped);
    }
    workspace.reporter.say(|status| {
        status.phase = Phase::Applying;
        status.attempted_apply = true;
    });
    let recorded = workspace.reporter.flush(context.settings.patience).await;
    recorded.map_err(|_| RunError::Unreported)?;
    let words = apply_words(bundle, workspace, run.spec.destroy)?;
    match unreachable_backend::outlasting(context, workspace, run, step, &words).await {
        Err(RunError::Command { text, raw_output, .. })
            if !raw_output.told_of_a_step() && raw_output.is(says_it_is_stale) =>
        {
            Err(RunError::Stale { text })
        }
        applied => applied,
    }
}

fn apply_words(bundle: &Bundle, workspace: &Workspace<'_>, destroy: bool) -> Result<Vec<String>, RunError> {
    let is_unsaved = workspace.is_unsaved.get();
    // terraform takes no variables beside a plan file
    let variables = if is_unsaved || workspace.tool.name == "tofu" {
        prepare::variable_files(&workspace.directory.root, bundle)?
    } else {
        Vec::new()
    };
    Ok(if is_unsaved {
        unsaved_plan::apply_words(destroy, &variables, bundle)
    } else {
        argv::apply(&workspace.plan_file(), &variables, &plan::argv_options(bundle))
    })
}

/// The outputs of the root module.
#[derive(Default)]
struct Outputs {
    /// By name.
    found: BTreeMap<String, Output>,
    /// Whether a Secret holds them.
    written: bool,
}

/// Says which outputs there are; reads them where somebody wants their values, and writes them where they are wanted.
/// `said` is what the apply said, if there was one.
async fn read_outputs(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    said: Option<&Path>,
) -> Result<Outputs, RunError> {
    let health = &bundle.post_apply;
    let checked = !health.health_checks.is_empty() && (said.is_some() || health.health_due);
    if bundle.outputs.is_some() || checked {
        return write_outputs(context, bundle, workspace).await;
    }
    let Some(said) = said else {
        return Ok(Outputs::default()); // nothing changed: those of the last apply are known
    };
    let names = File::open(said)
        .ok()
        .and_then(|file| output::names_from_apply(file).ok());
    match names.flatten() {
        Some(names) => {
            workspace.reporter.note(|status| status.outputs = names);
            Ok(Outputs::default())
        }
        None => write_outputs(context, bundle, workspace).await,
    }
}

async fn write_outputs(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
) -> Result<Outputs, RunError> {
    workspace
        .reporter
        .say_soon(|status| status.phase = Phase::WritingOutputs);
    let file = workspace.capture_object(Step::Output, &argv::output()).await?;
    let file = File::open(file).map_err(|source| failed("read the outputs", source))?;
    let found = output::parse(file)?;
    for output in found.values().filter(|output| output.sensitive) {
        let mut secrets = workspace.reporter.secrets();
        secrets.add_json(&output.json());
        output.long_numbers().for_each(|number| secrets.add_text(number));
    }
    workspace
        .reporter
        .note(|status| status.outputs = found.keys().cloned().collect());
    let target = bundle.outputs.as_ref().filter(|_| !found.is_empty());
    if let Some(target) = target {
        let data = outputs::encode(&found, &target.outputs)?;
        let changed = outputs::write(context, target, &bundle.stack, &data).await?;
        workspace.reporter.note(|status| status.outputs_written = changed);
    }
    Ok(Outputs {
        written: target.is_some(),
        found,
    })
}

/// What follows an apply, or a plan without changes, that is no destroy: outputs, inventory, health checks. `said` is the
/// file with what the apply said, if there was one.
pub(crate) async fn follow_up(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    said: Option<&Path>,
) -> Result<bool, RunError> {
    let applied = said.is_some();
    let outputs = read_outputs(context, bundle, workspace, said).await?;
    list_state(bundle, workspace, applied).await;
    if applied || bundle.post_apply.health_due {
        health::check(context, bundle, workspace, &outputs.found).await?;
    }
    Ok(outputs.written)
}

/// Lists what the state holds, where that is wanted. It informs: a list that cannot be had fails nothing.
pub(crate) async fn list_state(bundle: &Bundle, workspace: &Workspace<'_>, applied: bool) {
    let wanted = bundle.post_apply.inventory && (applied || bundle.post_apply.inventory_due);
    if !wanted {
        return;
    }
    if let Err(error) = inventory::tell(workspace).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the state's resources could not be listed"
        );
    }
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
            assert!(says_it_is_stale(said), "{said}");
        }
        let step = format!("\nError: local-exec provisioner error\n\nOutput: {stale}");
        for said in [
            step.as_str(),
            "",
            "the words Saved plan is stale",
            "Error: Other: Saved plan is stale",
        ] {
            assert!(!says_it_is_stale(said), "{said}");
        }
    }
}
