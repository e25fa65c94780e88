//! The steps of a run inside its prepared directory, in their order.

use std::path::Path;

use sluice_api::run::gate::WaitReason;
use sluice_api::run::{Action, Phase, Trigger};
use sluice_api::terraform::Reason;
use sluice_tf_core::bundle::{Bundle, Options};
use sluice_tf_core::cli::process::CommandExit;
use sluice_tf_core::errored_state::StateLocation;
use sluice_tf_core::plan::store::StoredPlan;
use tokio::time::Instant;

use crate::run::apply::{self, last_applied};
use crate::run::cli::{PLAN_FILE, arguments, version};
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::{RunSession, StepsOutcome, Success};
use crate::run::lifecycle::stop::RunStop;
use crate::run::lifecycle::{approval, break_glass};
use crate::run::plan::{self, module_reads, webhook};
use crate::run::post_apply;
use crate::run::state::{self, committed_state, errored_tfstate, identity, labels, state_copy};
use crate::run::state_lock::release;
use crate::run::workdir::providers;

/// The step after `init` and the plan.
enum Next {
    End(Success),
    Apply {
        /// The plan was made from an empty state. The CLI rejects it as stale if the state has changed since.
        from_empty_state: bool,
    },
    /// A break-glass session, with the arguments of its `init`.
    BreakGlass(Vec<String>),
}

/// Runs the steps of a run in its prepared directory.
pub(crate) async fn run_steps(
    session: &RunSession<'_>,
    stored: Option<&StoredPlan>,
    stop: &RunStop,
) -> StepsOutcome {
    match run_until_apply(session, stored, stop).await {
        Ok(Next::Apply { from_empty_state }) => apply_and_follow_up(session, from_empty_state).await,
        Ok(Next::BreakGlass(init)) => run_break_glass(session, &init).await,
        Ok(Next::End(success)) => Ok(success).into(),
        Err(error) => Err(error).into(),
    }
}

async fn run_until_apply(
    session: &RunSession<'_>,
    stored: Option<&StoredPlan>,
    stop: &RunStop,
) -> Result<Next, RunError> {
    let RunSession { run, bundle, cli, .. } = session;
    // Buffered: for a reader of the stack this is the same step as the preparation.
    cli.status.buffer(|status| status.phase = Phase::Initializing);
    if let Some(stored) = stored {
        apply::restore(cli, stored)?;
    }
    let may_copy = !bundle.run_environment.backend_off;
    let init = init_arguments(&bundle.options, may_copy, stored.is_some());
    let version_first = must_precede_init(bundle, run.spec.action);
    if version_first {
        version::record(session).await?;
    }
    if run.spec.action != Action::BreakTheGlass {
        labels::check(session).await?;
    }
    if matches!(run.spec.action, Action::Unlock | Action::BreakTheGlass) {
        begin_work(stop, Step::Init)?;
    }
    match run.spec.action {
        Action::Unlock => return release::release_lock(session, &init).await.map(Next::End),
        Action::BreakTheGlass => return Ok(Next::BreakGlass(init)),
        Action::Plan | Action::Apply | Action::PlanAndApply => {}
    }
    let record = async {
        if version_first {
            return Ok(());
        }
        version::record(session).await
    };
    let initialize = providers::init(session, &init, stored.is_some());
    let (recorded, initialized) = tokio::join!(record, initialize);
    recorded?;
    initialized.map_err(RunError::with_field_name)?;
    module_reads::record(cli).await?;
    state::select_workspace(session).await?;
    let next = if stored.is_some() { Step::Apply } else { Step::Plan };
    begin_work(stop, next)?;
    errored_tfstate::push(session).await?;
    if let Some(stored) = stored {
        apply::verify(session, &stored.context).await?;
        approval::recheck_approval(session).await?;
        return Ok(Next::Apply {
            from_empty_state: false,
        });
    }
    committed_state::adopt(session).await?;
    plan_and_store(session).await
}

/// Begins the work of a run: from here on a request to end waits for it, or interrupts it.
fn begin_work(stop: &RunStop, next: Step) -> Result<(), RunError> {
    if stop.begin() {
        return Ok(());
    }
    Err(RunError::Stopped {
        step: next,
        why: "was not started, because the runner was terminated".to_owned(),
        text: String::new(),
    })
}

/// The arguments of `init`. `may_copy`: Sluice configures the backend, so the state may be migrated to it. `is_exact`: before the
/// apply of a stored plan, providers and the dependency lock file may not change.
fn init_arguments(options: &Options, may_copy: bool, is_exact: bool) -> Vec<String> {
    let mut init = arguments(&["init", "-no-color", "-input=false", "-backend=true", "-get=true"]);
    init.push(format!("-upgrade={}", options.upgrade_on_init && !is_exact));
    if may_copy {
        init.push("-force-copy".to_owned());
    }
    if is_exact {
        init.push("-lockfile=readonly".to_owned());
    }
    init
}

/// Whether the version has to be known before `init`: if one is selected, no other may run. Otherwise a plan or an apply
/// determines it in parallel with `init`, which is faster.
const fn must_precede_init(bundle: &Bundle, action: Action) -> bool {
    bundle.selected_tool.is_some() || matches!(action, Action::Unlock | Action::BreakTheGlass)
}

async fn plan_and_store(session: &RunSession<'_>) -> Result<Next, RunError> {
    let RunSession { run, bundle, cli, .. } = session;
    cli.status.write_soon(|status| {
        status.phase = Phase::Planning;
        status.workspace.clone_from(&bundle.workspace);
    });
    let planned = plan::create(session, run.spec.destroy, Path::new(PLAN_FILE)).await?;
    check_state(session, planned.has_changes).await?;
    if planned.has_changes {
        let secrets = cli.status.secrets().clone();
        webhook::call_all(session, planned.json(), &secrets).await?;
    }
    plan::store(session, &planned).await?;
    if !planned.has_changes {
        if !run.spec.destroy {
            identity::record_unchanged(session).await;
            post_apply::follow_up(session, None).await?;
        }
        let message = planned.no_changes_message();
        return Ok(Next::End(Success::new(
            Reason::TerraformPlannedNoChanges,
            message,
        )));
    }
    let Some(reason) = approval::wait_reason(session).await? else {
        return Ok(Next::Apply {
            from_empty_state: planned.has_empty_state(),
        });
    };
    let message = match reason {
        WaitReason::PlanOnlyRun => "Plan generated".to_owned(),
        // Nothing else names the plan while the object is being deleted.
        reason @ WaitReason::OnHold(_) if run.spec.trigger == Trigger::Deletion => format!(
            "Plan generated, and not applied: {reason}. Set approvePlan: \"{}\" to approve this plan",
            cli.status.snapshot().plan_id
        ),
        reason => format!("Plan generated, and not applied: {reason}"),
    };
    Ok(Next::End(Success::new(
        Reason::TerraformPlannedWithChanges,
        &message,
    )))
}

/// Checks that the plan is made from the state that the last apply left. A plan with changes is held otherwise. A destroy without
/// changes would release the object whose resources are in another state.
async fn check_state(session: &RunSession<'_>, has_changes: bool) -> Result<(), RunError> {
    let is_deletion = session.run.spec.trigger == Trigger::Deletion;
    if !has_changes && !is_deletion {
        return Ok(());
    }
    match identity::check(session, has_changes).await? {
        Some(mismatch) if !has_changes => Err(RunError::OtherState {
            difference: mismatch.difference(),
        }),
        _ => Ok(()),
    }
}

async fn run_break_glass(session: &RunSession<'_>, init: &[String]) -> StepsOutcome {
    let ended = break_glass::run_session(session, init).await;
    let result = match store_errored_state(session).await {
        Ok(()) => {
            errored_tfstate::remove_stored(&session.cli.module);
            ended
        }
        Err(error) => Err(error),
    };
    // The user may still work in the directory. The next run clears it.
    StepsOutcome {
        result,
        keeps_directory: true,
    }
}

/// Stores a state that the CLI left in the directory because it could not write it to its backend.
async fn store_errored_state(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    let belongs = StateLocation {
        workspace: &bundle.workspace,
        location: &bundle.run_environment.state_location,
    };
    errored_tfstate::store(context, cli.status, &bundle.stack, belongs, &cli.module).await
}

/// Applies the plan whose approval was just checked, and does what follows an apply.
async fn apply_and_follow_up(session: &RunSession<'_>, from_empty_state: bool) -> StepsOutcome {
    let checked_at = Instant::now();
    if !session.run.spec.destroy
        && let Err(error) = last_applied::store(session).await
    {
        return Err(error).into();
    }
    if !from_empty_state && let Err(error) = state_copy::store(session).await {
        return Err(error).into();
    }
    let applied = apply::apply(session, checked_at).await;
    if let Err(error) = store_errored_state(session).await {
        // The directory holds the only copy of the state.
        return StepsOutcome {
            result: Err(error),
            keeps_directory: true,
        };
    }
    match applied {
        Ok(applied) => follow_up(session, &applied).await.into(),
        Err(error) => {
            identity::record_failed(session, &error).await;
            Err(error).into()
        }
    }
}

async fn follow_up(session: &RunSession<'_>, applied: &CommandExit) -> Result<Success, RunError> {
    let RunSession {
        context,
        run,
        bundle,
        cli,
    } = session;
    cli.status.write_soon(|status| status.applied = true);
    if bundle.files_limit.is_some() {
        // The older records are deleted next: the status has to name the new one before.
        drop(cli.status.flush(context.settings.api_timeout).await);
    }
    identity::record_applied(session).await;
    if run.spec.destroy {
        post_apply::list_resources(session, true).await;
        return Ok(Success::new(
            Reason::TerraformAppliedSucceed,
            "Destroy applied successfully",
        ));
    }
    last_applied::delete_others(session).await;
    let written = post_apply::follow_up(session, Some(&applied.stdout)).await?;
    let mut success = if written {
        Success::new(Reason::TerraformOutputsWritten, "Outputs written")
    } else {
        Success::new(Reason::TerraformAppliedSucceed, "Applied successfully")
    };
    if !state::outlives_run(&cli.module, &bundle.workspace) {
        success.message = format!("{}. {}", success.message, state::EPHEMERAL_STATE_NOTE);
    }
    Ok(success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_upstream() {
        let line = |arguments: Vec<String>| arguments.join(" ");
        assert_eq!(
            line(init_arguments(&Options::default(), true, false)),
            "init -no-color -input=false -backend=true -get=true -upgrade=true -force-copy"
        );
        assert_eq!(
            line(init_arguments(&Options::default(), false, true)),
            "init -no-color -input=false -backend=true -get=true -upgrade=false -lockfile=readonly"
        );
    }
}
