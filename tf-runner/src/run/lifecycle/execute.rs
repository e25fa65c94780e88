//! A run as a whole: claimed, given what it needs, carried out in a directory of its own, and ended. Whatever happens is
//! reported with a reason and a message.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use sluice_api::run::{Phase, TerraformRun};
use sluice_runtime::failure::{Failure, chain};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::providers::{LockedProvider, ProviderCache};
use crate::run::apply;
use crate::run::apply::last_applied;
use crate::run::commands::state_secrets;
use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::claim::{ClaimError, claim};
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::identity::lock_holder;
use crate::run::lifecycle::inputs;
use crate::run::lifecycle::steps::{Success, in_workspace};
use crate::run::state_lock::leftover::LeftoverLock;
use crate::run::state_rescue::committed_state;
use crate::run::state_rescue::errored_tfstate;
use crate::run::status::writer::{Reporter, Times};
use crate::run::workdir::prepare;
use crate::run::workdir::providers;
use crate::run::workdir::run_environment;
use crate::run::workdir::{self, WorkDirectory};
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::process::Limits;
use sluice_tf_core::cli::text::{TEXT_LIMIT, truncate};
use sluice_tf_core::cli::tool;
use sluice_tf_core::plan::store::StoredPlan;
use sluice_tf_core::process_lock::ProcessLock;
use sluice_tf_core::workdir::{StackPaths, WorkdirOwner};

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

/// Carries out the run that the settings name, if nobody else has it.
///
/// # Errors
/// When the run was not taken; from then on every ending is reported in its status.
pub async fn execute(context: &Context, stop: CancellationToken) -> Result<Ending, ClaimError> {
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let alive = hold_run_lock(context, &stop).await?;
    let run = claim(&api, context).await?;
    // Also whoever ends the run in our place stops it.
    let stop = stop.child_token();
    let times = Times {
        heartbeat: context.settings.heartbeat,
        step: context.settings.step,
    };
    let reporter = Reporter::start(api, &run, times, stop.clone());
    let deadline = Instant::now() + run.spec.deadline.to_duration();
    let limits = Limits {
        stop,
        deadline,
        grace: context.settings.grace,
    };
    let carried = carry_out(context, &run, &reporter, (limits, alive.clone())).await;
    let ending = conclude(&reporter, carried.outcome);
    if let Err(error) = reporter.flush(context.settings.patience).await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "the end of the run is not on record"
        );
    }
    if let Some(left) = carried.left {
        left.tidy(providers::cache(context)).await;
    }
    drop(alive);
    Ok(ending)
}

/// The lock that tells the controller that this run lives. Somebody else's means that the run is taken.
async fn hold_run_lock(
    context: &Context,
    stop: &CancellationToken,
) -> Result<Option<Arc<ProcessLock>>, ClaimError> {
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
            // It may name addresses, whose keys come from values.
            let message = reporter.secrets().redact(&success.message).into_owned();
            tracing::info!(reason = success.reason.as_str(), message, "run succeeded");
            reporter.say(|status| {
                status.phase = Phase::Succeeded;
                status.reason = success.reason.into();
                status.message = message;
                status.finished_at = finished;
            });
            Ending::Succeeded
        }
        Err(error) => {
            let message = truncate(&reporter.secrets().redact(&chain(&error)), TEXT_LIMIT);
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

/// A run as it was carried out.
struct Carried {
    outcome: Result<Success, RunError>,
    /// What it leaves on disk, if it came so far.
    left: Option<Remains>,
}

/// What a run leaves on disk. It is put in order once the end of the run is on record: nobody waits for that.
struct Remains {
    directory: WorkDirectory,
    /// The directory stays as it is, for a person or for the next run.
    is_kept: bool,
    /// Packages of providers, with the place of each.
    providers: Vec<(LockedProvider, PathBuf)>,
}

impl Remains {
    async fn tidy(self, cache: Option<ProviderCache>) {
        let work = tokio::task::spawn_blocking(move || {
            if let Some(cache) = cache {
                providers::keep(&cache, &self.providers);
            }
            if self.is_kept {
                return Ok(());
            }
            self.directory.leave()
        });
        // The next run clears it or fails of it; how this one ended must not be forgotten over it.
        match work.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the working directory is left as it is"
            ),
            Err(error) => tracing::warn!(%error, "the working directory is left as it is"),
        }
    }
}

/// What a run takes before it prepares its directory.
struct Taken {
    bundle: Bundle,
    stored: Option<StoredPlan>,
    directory: WorkDirectory,
    limits: Limits,
}

async fn take(
    context: &Context,
    run: &TerraformRun,
    reporter: &Reporter,
    (mut limits, alive): (Limits, Option<Arc<ProcessLock>>),
) -> Result<Taken, RunError> {
    reporter.note(|status| status.phase = Phase::Preparing);
    let mut bundle = inputs::load_bundle(context, run).await?;
    let asked = Duration::from_secs(bundle.grace_seconds.unwrap_or(0).into());
    limits.grace = limits.grace.max(asked);
    let stored = inputs::approved_plan(context, run, &bundle).await?;
    if let Some(stored) = &stored {
        bundle = apply::bundle_of_plan(&stored.context, &bundle)?;
        reporter.secrets().add_stored_plan(&stored.context);
    }
    reporter.secrets().extend(bundle.secrets.clone());
    let settings = &context.settings;
    let places = StackPaths::new(
        settings.work_root.as_deref(),
        &bundle.stack.namespace,
        &bundle.stack.name,
    );
    let held = (settings.run.as_str(), alive);
    let directory = workdir::take(&places, held, settings.directory_wait, &limits.stop).await?;
    reporter.note(|status| status.log_path = directory.logs.display().to_string());
    errored_tfstate::rescue(context, reporter, &bundle.stack, &directory).await?;
    Ok(Taken {
        bundle,
        stored,
        directory,
        limits,
    })
}

async fn carry_out(
    context: &Context,
    run: &TerraformRun,
    reporter: &Reporter,
    given: (Limits, Option<Arc<ProcessLock>>),
) -> Carried {
    let taken = match take(context, run, reporter, given).await {
        Ok(taken) => taken,
        Err(error) => {
            return Carried {
                outcome: Err(error),
                left: None,
            };
        }
    };
    let Taken {
        bundle,
        stored,
        directory,
        limits,
    } = taken;
    let (keep_directory, stop) = (Cell::new(false), limits.stop.clone());
    let (outcome, installed) = match prepared(context, &bundle, &directory, limits, reporter).await {
        Ok(workspace) => {
            let done = in_workspace(
                context,
                &bundle,
                &workspace,
                run,
                stored.as_ref(),
                &keep_directory,
            );
            let outcome = match done.await {
                Err(error) => Err(state_secrets::learn(&workspace, error).await),
                done => done,
            };
            (outcome, providers::installed(&workspace))
        }
        // What was written before it failed is no less secret.
        Err(error) => (Err(error), Vec::new()),
    };
    Carried {
        outcome,
        left: Some(Remains {
            directory,
            is_kept: keep_directory.get(),
            // Whoever stops a run waits for its end.
            providers: if stop.is_cancelled() {
                Vec::new()
            } else {
                installed
            },
        }),
    }
}

/// The name by which a state lock of this run's CLI is known. The stack may set the variables that the name is taken from: then it
/// is put on record before the first command.
fn say_lock_holder(context: &Context, reporter: &Reporter, environment: &BTreeMap<String, String>) -> String {
    let named = |all: &BTreeMap<String, String>| ["USER", "HOME"].map(|name| all.get(name).cloned());
    if named(environment) == named(&context.environment) {
        return context.identity.who.clone();
    }
    let holder = lock_holder(environment);
    if holder != context.identity.who {
        reporter.say(|status| status.lock_holder.clone_from(&holder));
    }
    holder
}

/// The directory with all that the CLI needs: artifact, generated files, environment and program.
async fn prepared<'a>(
    context: &Context,
    bundle: &Bundle,
    directory: &'a WorkDirectory,
    limits: Limits,
    reporter: &'a Reporter,
) -> Result<Workspace<'a>, RunError> {
    directory.occupy(&WorkdirOwner {
        path: bundle.path.clone(),
        workspace: bundle.workspace.clone(),
        state_location: bundle.run_environment.state_location.clone(),
    })?;
    match &bundle.last_applied {
        None => prepare::fetch(context, &bundle.artifact, directory, &limits.stop).await?,
        Some(kept) => last_applied::unpack(context, bundle, kept, directory, &limits.stop).await?,
    }
    let module = prepare::module_directory(&directory.root, &bundle.path)?;
    errored_tfstate::disown(&module)?;
    committed_state::put_aside(&module, directory.scratch.path(), bundle)?;
    let environment = prepare::command_environment(context, bundle, &module, &directory.home)?;
    reporter.secrets().add_environment(&environment);
    prepare::write_generated(&module, &directory.home, bundle)?;
    let search = environment.get("PATH").map_or("", String::as_str);
    let found = match &bundle.selected_tool {
        Some(wanted) => tool::find_selected(search, context.settings.tools.as_deref(), wanted)?,
        None => tool::find(search, bundle.tool.as_deref())?,
    };
    let left = LeftoverLock::by(&say_lock_holder(context, reporter, &environment));
    let mut workspace = Workspace::new(found, directory, module, environment, limits, reporter, left);
    let api = run_environment::write_kubeconfig(context, bundle, &directory.root)?;
    workspace.init_arguments = run_environment::init_arguments(&bundle.run_environment, api.as_deref());
    Ok(workspace)
}
