//! The order of a run, and its end: whatever happens is reported with a reason and a message.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use sluice_api::run::gate::Hold;
use sluice_api::run::{Action, Phase, TerraformRun};
use sluice_api::terraform::plan_id::PlanId;
use sluice_runtime::failure::{Failure, chain};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::claim::{ClaimError, claim};
use super::context::Context;
use super::error::{RunError, Step};
use super::errored::Belongs;
use super::patience::patiently;
use super::report::Reporter;
use super::workdir::{self, Places, Tenant};
use super::workspace::Workspace;
use super::{
    apply, errored, gate, glass, kept, lasting, plan, prepare, release, remembered, standing, stored,
    surroundings, unlock, version, webhook,
};
use crate::bundle::{self, Bundle};
use crate::cli::process::Limits;
use crate::cli::text::{TEXT_LIMIT, bounded};
use crate::cli::{argv, tool};
use crate::plan::store::{PlanName, StoredPlan};

/// How long a held run lock is waited for: whoever asks whether the run lives holds it for a moment.
const RUN_LOCK_WAIT: Duration = Duration::from_secs(2);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Succeeded,
    /// With an error, which is reported.
    Failed,
    /// Not carried out: its inputs changed before it began.
    Superseded,
}

/// What a run that ended well says.
pub(super) struct Success {
    reason: &'static str,
    message: String,
}

impl Success {
    pub(super) fn new(reason: &'static str, message: &str) -> Self {
        Self {
            reason,
            message: message.to_owned(),
        }
    }
}

/// Carries out the run that the settings name, if nobody else has it.
///
/// # Errors
/// When the run was not taken; from then on every ending is reported in its status.
pub async fn execute(context: &Context, stop: CancellationToken) -> Result<Ending, ClaimError> {
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let alive = hold_run_lock(context, &stop).await?;
    let run = claim(&api, context).await?;
    let held = run.status.clone().unwrap_or_default();
    let reporter = Reporter::start(api, context.settings.run.clone(), held);
    let deadline = Instant::now() + run.spec.deadline.to_duration();
    let limits = Limits {
        stop,
        deadline,
        grace: context.settings.grace,
    };
    let outcome = carry_out(context, &run, &reporter, limits).await;
    let ending = conclude(&reporter, outcome);
    if let Err(error) = reporter.flush(context.settings.patience).await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "the end of the run is not on record"
        );
    }
    drop(alive);
    Ok(ending)
}

/// The lock that tells the controller that this run lives. Somebody else's means that the run is taken.
async fn hold_run_lock(
    context: &Context,
    stop: &CancellationToken,
) -> Result<Option<workdir::Lock>, ClaimError> {
    let Some(path) = &context.settings.lock_file else {
        return Ok(None);
    };
    let lock = workdir::lock(path, RUN_LOCK_WAIT, stop).await;
    lock.map(Some).map_err(|error| ClaimError::Taken {
        run: context.settings.run.clone(),
        phase: "running",
        holder: chain(&error),
    })
}

fn conclude(reporter: &Reporter, outcome: Result<Success, RunError>) -> Ending {
    let finished = Some(Time(jiff::Timestamp::now()));
    match outcome {
        Ok(success) => {
            tracing::info!(
                reason = success.reason,
                message = success.message,
                "run succeeded"
            );
            reporter.say(|status| {
                status.phase = Phase::Succeeded;
                success.reason.clone_into(&mut status.reason);
                status.message = success.message;
                status.finished_at = finished;
            });
            Ending::Succeeded
        }
        Err(error) => {
            let message = bounded(&reporter.secrets().hide(&chain(&error)), TEXT_LIMIT);
            tracing::error!(reason = error.reason(), message, "run failed");
            reporter.say(|status| {
                status.phase = error.phase();
                error.reason().clone_into(&mut status.reason);
                status.message = message;
                status.finished_at = finished;
            });
            if error.phase() == Phase::Superseded {
                Ending::Superseded
            } else {
                Ending::Failed
            }
        }
    }
}

async fn carry_out(
    context: &Context,
    run: &TerraformRun,
    reporter: &Reporter,
    mut limits: Limits,
) -> Result<Success, RunError> {
    reporter.say(|status| status.phase = Phase::Preparing);
    let mut bundle = load_bundle(context, run).await?;
    let asked = Duration::from_secs(bundle.grace_seconds.unwrap_or(0).into());
    limits.grace = limits.grace.max(asked);
    let stored = approved_plan(context, run, &bundle).await?;
    if let Some(stored) = &stored {
        bundle = apply::bundle_of_plan(&stored.context, &bundle)?;
        reporter.secrets().extend(stored.context.secrets.clone());
    }
    reporter.secrets().extend(bundle.secrets.clone());
    let settings = &context.settings;
    let places = Places::of(
        settings.work_root.as_deref(),
        &bundle.stack.namespace,
        &bundle.stack.name,
    );
    let directory = workdir::take(&places, &settings.run, settings.directory_wait, &limits.stop).await?;
    reporter.say(|status| status.log_path = directory.logs.display().to_string());
    errored::rescue(context, &bundle.stack, &directory).await?;
    directory.occupy(&Tenant {
        path: bundle.path.clone(),
        workspace: bundle.workspace.clone(),
        place: bundle.surroundings.state_place.clone(),
    })?;
    match &bundle.kept {
        None => prepare::fetch(context, &bundle.artifact, &directory, &limits.stop).await?,
        Some(kept) => kept::unpack(context, &bundle, kept, &directory, &limits.stop).await?,
    }
    let module = prepare::module_directory(&directory.root, &bundle.path)?;
    errored::disown(&module)?;
    let environment = prepare::command_environment(context, &bundle, &module, &directory.home)?;
    reporter.secrets().learn_environment(&environment);
    prepare::write_generated(&module, &directory.home, &bundle)?;
    let search = environment.get("PATH").map_or("", String::as_str);
    let found = match &bundle.selected_tool {
        Some(wanted) => tool::selected(search, settings.tools.as_deref(), wanted)?,
        None => tool::find(search, bundle.tool.as_deref())?,
    };
    let mut workspace = Workspace::new(found, &directory, module, environment, limits, reporter);
    workspace.init_arguments = surroundings::init_arguments(&bundle.surroundings);
    let keep_directory = Cell::new(false);
    let outcome = in_workspace(
        context,
        &bundle,
        &workspace,
        run,
        stored.as_ref(),
        &keep_directory,
    )
    .await;
    if let Err(error) = &outcome {
        remembered::learn(&workspace, error).await;
    }
    if !keep_directory.get() {
        directory.clear()?;
    }
    outcome
}

/// The plan that the run is to apply, with exactly the effect that was approved.
async fn approved_plan(
    context: &Context,
    run: &TerraformRun,
    bundle: &Bundle,
) -> Result<Option<StoredPlan>, RunError> {
    match (run.spec.action, &run.spec.plan) {
        (Action::Apply, Some(plan)) => {
            let name = PlanName {
                stack: bundle.stack.clone(),
                workspace: bundle.workspace.clone(),
                id: plan.id.clone(),
                run: plan.run.clone(),
            };
            let loaded = stored::load(context, &name, &bundle.plan_keys).await?;
            let approved: Result<PlanId, _> = plan.id.parse();
            if approved.map_or(true, |id| id.effect().as_str() != loaded.context.effect) {
                return Err(RunError::NotExact(
                    "the stored plan has another effect than the approved".to_owned(),
                ));
            }
            if loaded.context.destroy != run.spec.destroy {
                let text = "of the run and the stored plan one is to destroy, and the other is not";
                return Err(RunError::NotExact(text.to_owned()));
            }
            Ok(Some(loaded))
        }
        (Action::Apply, None) => Err(RunError::Incomplete {
            action: run.spec.action.as_str(),
            what: "a stored plan",
        }),
        (Action::Plan | Action::PlanAndApply | Action::Unlock | Action::BreakTheGlass, _) => Ok(None),
    }
}

/// The bundle of the run, which has to be about exactly what the run was decided for.
async fn load_bundle(context: &Context, run: &TerraformRun) -> Result<Bundle, RunError> {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let name = bundle::secret_name(&context.settings.run);
    let secret = patiently(context.settings.patience, || api.get(&name)).await;
    let secret = secret.map_err(|source| RunError::Api {
        doing: "read the run's bundle",
        source,
    })?;
    let bundle = Bundle::from_secret(&secret)?;
    let spec = &run.spec;
    let about = [
        (bundle.stack.uid == spec.terraform.uid, "Terraform object"),
        (bundle.stack.name == spec.terraform.name, "Terraform object"),
        (bundle.stack.namespace == context.settings.namespace, "namespace"),
        (bundle.inputs_digest == spec.inputs_digest, "inputs"),
        (bundle.artifact.digest == spec.source.digest, "artifact"),
    ];
    match about.iter().find(|(same, _)| !same) {
        None => Ok(bundle),
        Some((_, what)) => Err(RunError::Superseded(format!(
            "the bundle is about another {what} than the run: it changed in between"
        ))),
    }
}

async fn in_workspace(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    stored: Option<&StoredPlan>,
    keep_directory: &Cell<bool>,
) -> Result<Success, RunError> {
    workspace
        .reporter
        .say(|status| status.phase = Phase::Initializing);
    if let Some(stored) = stored {
        apply::restore(workspace, stored)?;
    }
    let may_copy = !bundle.surroundings.backend_off;
    let init = if stored.is_some() {
        argv::init_exact(may_copy)
    } else {
        argv::init(bundle.options.upgrade_on_init, may_copy)
    };
    let first = version::comes_first(bundle, run.spec.action);
    if first {
        version::tell(bundle, workspace).await?;
    }
    match run.spec.action {
        Action::Unlock => {
            let id = &run.spec.lock_identifier;
            return release::carry_out(context, bundle, workspace, id, &init).await;
        }
        Action::BreakTheGlass => {
            keep_directory.set(true); // the next run looks for a state that was left in it
            return glass::session(context, bundle, workspace, run, &init).await;
        }
        Action::Plan | Action::Apply | Action::PlanAndApply => {}
    }
    let initializing = unlock::retrying(context, workspace, Step::Init, &init, &[0]);
    let telling = async {
        if first {
            return Ok(());
        }
        version::tell(bundle, workspace).await
    };
    let (told, initialized) = tokio::join!(telling, initializing);
    told?;
    initialized.map_err(RunError::naming_the_field)?;
    select_workspace(bundle, workspace).await?;
    errored::push(context, bundle, workspace).await?;
    match stored {
        Some(stored) => {
            apply::prove(context, bundle, workspace, &stored.context).await?;
            standing::prove(context, run).await?;
            apply_and_write(context, bundle, workspace, run, keep_directory).await
        }
        None => plan_and_maybe_apply(context, bundle, workspace, run, keep_directory).await,
    }
}

pub(super) async fn select_workspace(bundle: &Bundle, workspace: &Workspace<'_>) -> Result<(), RunError> {
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
    let made = workspace
        .must(Step::Workspace, &argv::workspace_new(&bundle.workspace))
        .await;
    if let Err(stopped @ RunError::Stopped { .. }) = made {
        return Err(stopped);
    }
    workspace
        .must(Step::Workspace, &argv::workspace_select(&bundle.workspace))
        .await
        .map(drop)
}

async fn plan_and_maybe_apply(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    keep_directory: &Cell<bool>,
) -> Result<Success, RunError> {
    workspace.reporter.say(|status| status.phase = Phase::Planning);
    let file = Path::new(argv::PLAN_FILE);
    let planned = plan::make(context, bundle, workspace, run.spec.destroy, file).await?;
    if planned.has_changes {
        webhook::ask(context, bundle, run, planned.json()).await?;
    }
    plan::keep(context, bundle, workspace, run, &planned).await?;
    if !planned.has_changes {
        if !run.spec.destroy {
            apply::follow_up(context, bundle, workspace, None).await?;
        }
        return Ok(Success::new("TerraformPlannedNoChanges", planned.nothing()));
    }
    if let Some(why) = gate::holds(context, workspace.reporter, run).await? {
        let message = match why {
            Hold::NotAsked => "Plan generated".to_owned(),
            why => format!("Plan generated, and not applied: {why}"),
        };
        return Ok(Success::new("TerraformPlannedWithChanges", &message));
    }
    apply_and_write(context, bundle, workspace, run, keep_directory).await
}

async fn apply_and_write(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    keep_directory: &Cell<bool>,
) -> Result<Success, RunError> {
    if !run.spec.destroy {
        kept::keep(context, bundle, workspace, run).await?;
    }
    let applied = apply::apply(context, bundle, workspace, run).await;
    keep_directory.set(true); // until it is certain that no state is left in it
    let belongs = Belongs {
        workspace: &bundle.workspace,
        place: &bundle.surroundings.state_place,
    };
    errored::keep(context, &bundle.stack, belongs, &workspace.module).await?;
    keep_directory.set(false);
    let applied = applied?;
    workspace.reporter.say(|status| status.applied = true);
    if run.spec.destroy {
        apply::list_state(bundle, workspace, true).await;
        return Ok(Success::new(
            "TerraformAppliedSucceed",
            "Destroy applied successfully",
        ));
    }
    kept::settle(context, &bundle.stack, run).await;
    let written = apply::follow_up(context, bundle, workspace, Some(&applied.stdout)).await?;
    let mut success = if written {
        Success::new("TerraformOutputsWritten", "Outputs written")
    } else {
        Success::new("TerraformAppliedSucceed", "Applied successfully")
    };
    if !lasting::lasts(&workspace.module, &bundle.workspace) {
        success.message = format!("{}. {}", success.message, lasting::CAUTION);
    }
    Ok(success)
}
