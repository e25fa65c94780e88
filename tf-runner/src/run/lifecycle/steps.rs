//! What a run does once its directory stands: init, workspace, plan, the gate, apply, outputs. The order of these steps stands
//! here, and nowhere else.

use sluice_api::terraform::Reason;
use std::cell::Cell;
use std::path::Path;

use sluice_api::run::gate::WaitReason;
use sluice_api::run::{Action, Phase, TerraformRun};

use crate::run::apply;
use crate::run::apply::last_applied;
use crate::run::commands::version;
use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::approval;
use crate::run::lifecycle::break_glass;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::plan;
use crate::run::plan::module_reads;
use crate::run::plan::state_persistence;
use crate::run::plan::webhook;
use crate::run::state_lock::release;
use crate::run::state_lock::unlock;
use crate::run::state_rescue::committed_state;
use crate::run::state_rescue::errored_tfstate;
use crate::run::workdir::providers;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::argv;
use sluice_tf_core::errored_state::StateLocation;
use sluice_tf_core::plan::store::StoredPlan;

/// What a run that ended well says.
pub(crate) struct Success {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Success {
    pub(crate) fn new(reason: Reason, message: &str) -> Self {
        Self {
            reason,
            message: message.to_owned(),
        }
    }
}

pub(crate) async fn in_workspace(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    stored: Option<&StoredPlan>,
    keep_directory: &Cell<bool>,
) -> Result<Success, RunError> {
    // To a reader of the stack this is the same step as the one before.
    workspace
        .reporter
        .note(|status| status.phase = Phase::Initializing);
    if let Some(stored) = stored {
        apply::restore(workspace, stored)?;
    }
    let may_copy = !bundle.run_environment.backend_off;
    let init = if stored.is_some() {
        argv::init_readonly(may_copy)
    } else {
        argv::init(bundle.options.upgrade_on_init, may_copy)
    };
    let first = version::comes_first(bundle, run.spec.action);
    if first {
        version::tell(context, bundle, workspace).await?;
    }
    match run.spec.action {
        Action::Unlock => {
            let id = &run.spec.lock_identifier;
            return release::carry_out(context, bundle, workspace, id, &init).await;
        }
        Action::BreakTheGlass => {
            let ended = break_glass::session(context, bundle, workspace, run, &init).await;
            keep_left_state(context, bundle, workspace, keep_directory).await?;
            // The person may still be at work in it; the next run clears it.
            errored_tfstate::drop_kept(&workspace.module);
            keep_directory.set(true);
            return ended;
        }
        Action::Plan | Action::Apply | Action::PlanAndApply => {}
    }
    let initializing = providers::init(context, bundle, workspace, &init, stored.is_some());
    let telling = async {
        if first {
            return Ok(());
        }
        version::tell(context, bundle, workspace).await
    };
    let (told, initialized) = tokio::join!(telling, initializing);
    told?;
    initialized.map_err(RunError::naming_the_field)?;
    module_reads::note(workspace).await?;
    select_workspace(context, bundle, workspace).await?;
    errored_tfstate::push(context, bundle, workspace).await?;
    if let Some(stored) = stored {
        apply::prove(context, bundle, workspace, &stored.context).await?;
        approval::recheck_approval(context, run).await?;
        apply_and_write(context, bundle, workspace, run, keep_directory).await
    } else {
        committed_state::take_over(context, bundle, workspace).await?;
        plan_and_maybe_apply(context, bundle, workspace, run, keep_directory).await
    }
}

/// After `init`: the workspace of the spec, with the state that it has in the module's directory, if its backend is one of files.
pub(crate) async fn select_workspace(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
) -> Result<(), RunError> {
    committed_state::put_back(workspace, &bundle.workspace)?;
    if bundle.workspace == "default" {
        return Ok(());
    }
    if bundle.workspace.starts_with('-') {
        // The CLI would take it for an option.
        return Err(RunError::WorkspaceName {
            name: bundle.workspace.clone(),
        });
    }
    // It may be there already: selecting it tells.
    let new = argv::workspace_new(&bundle.workspace);
    let made = unlock::retrying(context, workspace, Step::Workspace, &new, &[0]).await;
    if let Err(stopped @ RunError::Stopped { .. }) = made {
        return Err(stopped);
    }
    let is_locked = workspace.left.borrow().somebodys().is_some();
    let selected = workspace
        .must(Step::Workspace, &argv::workspace_select(&bundle.workspace))
        .await;
    match (made, selected) {
        (_, Ok(_)) => Ok(()),
        // Why there is none tells more than that there is none.
        (Err(locked), Err(_)) if is_locked => Err(locked),
        (_, Err(error)) => Err(error),
    }
}

async fn plan_and_maybe_apply(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    keep_directory: &Cell<bool>,
) -> Result<Success, RunError> {
    workspace.reporter.say_soon(|status| {
        status.phase = Phase::Planning;
        status.workspace.clone_from(&bundle.workspace);
    });
    let file = Path::new(argv::PLAN_FILE);
    let planned = plan::make(context, bundle, workspace, run.spec.destroy, file).await?;
    if planned.has_changes {
        let secrets = workspace.reporter.secrets().clone();
        webhook::ask(context, bundle, run, planned.json(), &secrets).await?;
    }
    plan::keep(context, bundle, workspace, run, &planned).await?;
    if !planned.has_changes {
        if !run.spec.destroy {
            apply::follow_up(context, bundle, workspace, None).await?;
        }
        return Ok(Success::new(Reason::TerraformPlannedNoChanges, planned.nothing()));
    }
    if let Some(why) = approval::wait_reason(context, workspace.reporter, run).await? {
        let message = match why {
            WaitReason::PlanOnlyRun => "Plan generated".to_owned(),
            why => format!("Plan generated, and not applied: {why}"),
        };
        return Ok(Success::new(Reason::TerraformPlannedWithChanges, &message));
    }
    apply_and_write(context, bundle, workspace, run, keep_directory).await
}

/// Keeps a state that the CLI left in the directory. Of one that cannot be kept the directory is all there is.
async fn keep_left_state(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    keep_directory: &Cell<bool>,
) -> Result<(), RunError> {
    keep_directory.set(true);
    let belongs = StateLocation {
        workspace: &bundle.workspace,
        location: &bundle.run_environment.state_location,
    };
    let reporter = workspace.reporter;
    errored_tfstate::keep(context, reporter, &bundle.stack, belongs, &workspace.module).await?;
    keep_directory.set(false);
    Ok(())
}

async fn apply_and_write(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    keep_directory: &Cell<bool>,
) -> Result<Success, RunError> {
    if !run.spec.destroy {
        last_applied::keep(context, bundle, workspace, run).await?;
    }
    let applied = apply::apply(context, bundle, workspace, run).await;
    keep_left_state(context, bundle, workspace, keep_directory).await?;
    let applied = applied?;
    workspace.reporter.say_soon(|status| status.applied = true);
    if bundle.files_limit.is_some() {
        // What goes now is kept of the last apply that is on record.
        drop(workspace.reporter.flush(context.settings.patience).await);
    }
    if run.spec.destroy {
        apply::list_state(bundle, workspace, true).await;
        return Ok(Success::new(
            Reason::TerraformAppliedSucceed,
            "Destroy applied successfully",
        ));
    }
    last_applied::settle(context, bundle, run).await;
    let written = apply::follow_up(context, bundle, workspace, Some(&applied.stdout)).await?;
    let mut success = if written {
        Success::new(Reason::TerraformOutputsWritten, "Outputs written")
    } else {
        Success::new(Reason::TerraformAppliedSucceed, "Applied successfully")
    };
    if !state_persistence::lasts(&workspace.module, &bundle.workspace) {
        success.message = format!("{}. {}", success.message, state_persistence::CAUTION);
    }
    Ok(success)
}
