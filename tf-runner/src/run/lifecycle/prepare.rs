//! The inputs of a run, which have to match its spec, and the directory that is prepared with them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use sluice_api::run::{Action, Phase, TerraformRun};
use sluice_api::terraform::plan_id::PlanId;
use sluice_tf_core::bundle::{self, Bundle, SelectedTool};
use sluice_tf_core::cli::process::Limits;
use sluice_tf_core::cli::tool::{self, Tool};
use sluice_tf_core::plan::store::{PlanName, StoredPlan};
use sluice_tf_core::process_lock::{Holder, ProcessLock};
use sluice_tf_core::workdir::{StackPaths, WorkdirOwner};

use crate::run::apply::{self, last_applied};
use crate::run::cli::Cli;
use crate::run::cli::memory::ContainerMemory;
use crate::run::lifecycle::claim::JOB_NAME;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::identity::lock_holder;
use crate::run::lifecycle::session::RunSession;
use crate::run::lifecycle::stop::read_until;
use crate::run::log::{DISABLE_VARIABLE, RunLog};
use crate::run::plan::plan_store;
use crate::run::state::{committed_state, errored_tfstate};
use crate::run::state_lock::leftover::LeftoverLock;
use crate::run::status::StatusWriter;
use crate::run::workdir::{self, WorkDirectory, prepare, run_environment};

/// The variable with the image of the runner's pod, which its Job sets.
const IMAGE: &str = "RUNNER_POD_IMAGE";

/// What a run needs before it prepares its directory.
pub(crate) struct RunInputs {
    pub(crate) bundle: Bundle,
    /// The plan that the run applies.
    pub(crate) stored: Option<StoredPlan>,
    pub(crate) directory: WorkDirectory,
    pub(crate) limits: Limits,
}

impl RunInputs {
    /// Loads bundle and stored plan, and opens the directory of the stack.
    pub(crate) async fn load(
        context: &Context,
        run: &TerraformRun,
        status: &StatusWriter,
        mut limits: Limits,
        run_lock: Option<Arc<ProcessLock>>,
    ) -> Result<Self, RunError> {
        status.buffer(|status| status.phase = Phase::Preparing);
        let reads = async {
            let bundle = load_bundle(context, run).await?;
            let stored = load_approved_plan(context, run, &bundle).await?;
            Ok::<_, RunError>((bundle, stored))
        };
        let (mut bundle, stored) = read_until(&limits.stop, reads).await?;
        let grace = Duration::from_secs(bundle.grace_seconds.unwrap_or(0).into());
        limits.grace = limits.grace.max(grace);
        if let Some(stored) = &stored {
            let tools = context.settings.tools_dir.as_deref();
            bundle = apply::bundle_of_plan(&stored.context, &bundle, tools)?;
            status.secrets().add_stored_plan(&stored.context);
        }
        status.secrets().extend(bundle.secrets.clone());
        let (settings, stack) = (&context.settings, &bundle.stack);
        let paths = StackPaths::new(settings.work_root.as_deref(), &stack.namespace, &stack.name);
        let report = |holder: &Holder| {
            let message = format!("waiting for the working directory of the stack: {holder} uses it");
            status.write(|status| status.message = message);
        };
        let timeout = settings.directory_wait;
        let lock = workdir::lock(&paths, &settings.run, timeout, &limits.stop, report).await?;
        let directory = WorkDirectory::open(&paths, &settings.run, lock, run_lock)?;
        status.buffer(|status| {
            status.log_path = directory.logs.display().to_string();
            status.message.clear();
        });
        errored_tfstate::store_leftover(context, status, stack, &directory).await?;
        Ok(Self {
            bundle,
            stored,
            directory,
            limits,
        })
    }
}

/// Loads the bundle of the run, and verifies that it matches the spec.
async fn load_bundle(context: &Context, run: &TerraformRun) -> Result<Bundle, RunError> {
    let bundle = if run.spec.bundle_secrets == 0 {
        Bundle::from_input(context.bundle.as_deref(), run)?
    } else {
        stored_bundle(context, run).await?
    };
    let spec = &run.spec;
    let checks = [
        (bundle.stack.uid == spec.terraform.uid, "Terraform object"),
        (bundle.stack.name == spec.terraform.name, "Terraform object"),
        (bundle.stack.namespace == context.settings.namespace, "namespace"),
        (bundle.inputs_digest == spec.inputs_digest, "inputs"),
        (bundle.artifact.digest == spec.source.digest, "artifact"),
    ];
    match checks.iter().find(|(same, _)| !same) {
        None => Ok(bundle),
        Some((_, what)) => Err(RunError::Superseded(format!(
            "the bundle and the run differ in {what}: it changed in the meantime"
        ))),
    }
}

/// Loads the bundle from the run's Secrets.
async fn stored_bundle(context: &Context, run: &TerraformRun) -> Result<Bundle, RunError> {
    let api = context.api::<Secret>();
    let mut secrets = Vec::new();
    for name in bundle::secret_names(run) {
        let secret = context.retry(|| api.get(&name)).await;
        secrets.push(secret.map_err(RunError::api("read the run's bundle"))?);
    }
    Ok(Bundle::from_secrets(&secrets, run)?)
}

/// Loads the plan that the run applies, and verifies that its effect is the approved one.
async fn load_approved_plan(
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
            let loaded = plan_store::load(context, &name, &plan.digest, &bundle.plan_keys).await?;
            let approved: Result<PlanId, _> = plan.id.parse();
            if approved.map_or(true, |id| id.effect().as_str() != loaded.context.effect) {
                return Err(RunError::PlanMismatch(
                    "the stored plan has a different effect than the approved plan".to_owned(),
                ));
            }
            if loaded.context.destroy != run.spec.destroy {
                let text = "the run and the stored plan differ in destroy";
                return Err(RunError::PlanMismatch(text.to_owned()));
            }
            Ok(Some(loaded))
        }
        (Action::Apply, None) => Err(RunError::IncompleteSpec {
            action: run.spec.action.as_str(),
            what: "a stored plan",
        }),
        (Action::Plan | Action::PlanAndApply | Action::Unlock | Action::BreakTheGlass, _) => Ok(None),
    }
}

/// Prepares the directory: artifact or last applied files, generated files, environment and program.
pub(crate) async fn prepare_session<'a>(
    context: &'a Context,
    run: &'a TerraformRun,
    bundle: Bundle,
    directory: &'a WorkDirectory,
    limits: Limits,
    status: &'a StatusWriter,
    log: &'a RunLog,
) -> Result<RunSession<'a>, RunError> {
    directory.clear_for(&WorkdirOwner {
        path: bundle.path.clone(),
        workspace: bundle.workspace.clone(),
        state_location: bundle.run_environment.state_location.clone(),
    })?;
    match &bundle.last_applied {
        None => prepare::fetch(context, &bundle.artifact, directory, &limits.stop, status).await?,
        Some(kept) => last_applied::unpack(context, &bundle, kept, directory, &limits.stop).await?,
    }
    let module = prepare::module_directory(&directory.root, &bundle.path)?;
    errored_tfstate::remove_committed(&module)?;
    committed_state::move_out(&module, directory.scratch.path(), &bundle)?;
    let environment = run_environment::command_environment(context, &bundle, &module, &directory.home)?;
    status.secrets().add_environment(&environment);
    if run_environment::is_enabled(&environment, DISABLE_VARIABLE) {
        log.disable();
    }
    prepare::write_generated(&module, &directory.home, &bundle)?;
    let search_path = environment.get("PATH").map_or("", String::as_str);
    let tool = match &bundle.selected_tool {
        Some(selected) => find_selected(context, run.spec.action, search_path, selected)?,
        None => tool::find(search_path, bundle.tool.as_deref())?,
    };
    let leftover_lock = LeftoverLock::of_holder(&record_lock_holder(context, status, &environment));
    let mut cli = Cli::new(tool, directory, module, environment, limits, status, log);
    cli.leftover_lock = leftover_lock.into();
    // Outside of a pod of its own, a run shares the cgroup with others.
    let has_own_pod = context.environment.contains_key(JOB_NAME);
    cli.container = has_own_pod.then(ContainerMemory::of_this_container).flatten();
    let kubeconfig = run_environment::write_kubeconfig(context, &bundle, &directory.root)?;
    cli.init_arguments = run_environment::init_arguments(&bundle.run_environment, kubeconfig.as_deref());
    Ok(RunSession {
        context,
        run,
        bundle,
        cli,
    })
}

/// Finds the CLI of `spec.tool`. The image of a pod decides which versions there are, so an error names it. An image without the version
/// of a plan may have another one that matches, so the apply fails as for any plan that is out of date.
fn find_selected(
    context: &Context,
    action: Action,
    search_path: &str,
    selected: &SelectedTool,
) -> Result<Tool, RunError> {
    let tools = context.settings.tools_dir.as_deref();
    tool::find_selected(search_path, tools, selected).map_err(|source| {
        match (context.environment.get(IMAGE), action) {
            (Some(image), Action::Apply) => RunError::PlanMismatch(format!(
                "the plan was created with {} {}, which the image {image} does not have: a new plan is required",
                selected.name, selected.version
            )),
            (Some(image), _) => RunError::ToolNotInImage {
                image: image.clone(),
                source,
            },
            (None, _) => source.into(),
        }
    })
}

/// The `user@host` that the CLI writes into state locks. A stack may set the variables that it is derived from; a name other than
/// that of the claim is recorded before the first command.
fn record_lock_holder(
    context: &Context,
    status: &StatusWriter,
    environment: &BTreeMap<String, String>,
) -> String {
    let user = |all: &BTreeMap<String, String>| ["USER", "HOME"].map(|name| all.get(name).cloned());
    if user(environment) == user(&context.environment) {
        return context.identity.who.clone();
    }
    let holder = lock_holder(environment);
    if holder != context.identity.who {
        status.write(|status| status.lock_holder.clone_from(&holder));
    }
    holder
}
