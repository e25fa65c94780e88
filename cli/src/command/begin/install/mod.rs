//! `sluice install` and `sluice uninstall`: the overlays of `config/`, without kustomize.

mod apply;
mod overlay;

use std::time::Duration;

use overlay::{Overlay, set_images};
use serde_json::Value;

use super::components::{self, is_absent};
use super::connect;
use crate::cluster::ConnectionArgs;
use crate::command::Context;
use crate::output::{Console, counted, to_yaml};
use crate::{CliError, ExitStatus, run_row};

/// Arguments of `sluice install`.
#[derive(clap::Args, Debug)]
pub struct InstallArgs {
    /// What is installed: an overlay of config/overlays.
    #[arg(value_name = "OVERLAY", value_enum, default_value = "standalone")]
    overlay: Overlay,
    /// Registry of the images, with a path: registry.example.com/sluice. There are no published images.
    #[arg(long, value_name = "REGISTRY", required_unless_present = "export")]
    registry: Option<String>,
    /// Tag of the images. Default: the version of this program.
    #[arg(long, requires = "registry")]
    tag: Option<String>,
    /// Print the manifests, and install nothing.
    #[arg(long)]
    export: bool,
    /// Take over fields of other managers: of kubectl, Helm or Flux.
    #[arg(long)]
    force_conflicts: bool,
    /// How long to wait for definitions and Deployments.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = sluice_runtime::args::duration)]
    timeout: Duration,
    /// The API.
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
}

/// Arguments of `sluice uninstall`.
#[derive(clap::Args, Debug)]
pub struct UninstallArgs {
    /// What is deleted: an overlay of config/overlays.
    #[arg(value_name = "OVERLAY", value_enum, default_value = "standalone")]
    overlay: Overlay,
    /// Print the manifests of what would be deleted, and delete nothing.
    #[arg(long)]
    export: bool,
    /// Do not ask.
    #[arg(short = 'y', long)]
    yes: bool,
    /// The API.
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
}

/// Installs an overlay, or prints it.
pub(super) async fn install(args: &InstallArgs, console: Console) -> Result<ExitStatus, CliError> {
    check_namespace(args.overlay, &args.connection)?;
    let setup = args.overlay.setup()?;
    let mut objects = args.overlay.objects()?;
    if let Some(registry) = &args.registry {
        for object in &mut objects {
            set_images(object, registry, args.tag.as_deref());
        }
    }
    if args.export {
        console.data(&stream(setup.iter().chain(&objects))?)?;
        return Ok(ExitStatus::Success);
    }
    let context = connect(&args.connection, console).await?;
    refuse_second_controller(&context).await?;
    for object in &setup {
        apply::apply(&context, object, args.force_conflicts).await?;
    }
    apply::wait_for_definitions(&context, &setup, args.timeout).await?;
    for object in &objects {
        apply::apply(&context, object, args.force_conflicts).await?;
    }
    apply::wait_for_deployments(&context, &objects, args.timeout).await?;
    console.note("Installed. `sluice check` checks the installation, `sluice init` begins a repository.");
    Ok(ExitStatus::Success)
}

/// Deletes what `install` has written, except for the namespace, the definitions, and objects that others wrote too.
pub(super) async fn uninstall(args: &UninstallArgs, console: Console) -> Result<ExitStatus, CliError> {
    check_namespace(args.overlay, &args.connection)?;
    let objects = args.overlay.objects()?;
    if args.export {
        console.data(&stream(objects.iter())?)?;
        return Ok(ExitStatus::Success);
    }
    let context = connect(&args.connection, console).await?;
    refuse_active_runs(&context).await?;
    let question = format!(
        "Delete the controllers and roles of {} in {}?",
        args.overlay.name(),
        args.overlay.namespace()
    );
    if !args.yes && !console.confirm(&question, "--yes")? {
        console.note("Nothing was deleted.");
        return Ok(ExitStatus::Failed);
    }
    // Controllers go before the roles that they need to end their work.
    let (deployments, others): (Vec<&Value>, Vec<&Value>) =
        objects.iter().partition(|object| object["kind"] == "Deployment");
    for object in deployments.into_iter().chain(others) {
        apply::delete(&context, object).await?;
    }
    console.note("Definitions, namespaces, objects and accounts of runs stay.");
    Ok(ExitStatus::Success)
}

/// The manifests have the namespace of the overlay in many places.
fn check_namespace(overlay: Overlay, connection: &ConnectionArgs) -> Result<(), CliError> {
    let wanted = overlay.namespace();
    match &connection.namespace {
        Some(namespace) if namespace != wanted => Err(CliError::Usage(format!(
            "--namespace {namespace}: {} is installed into {wanted}. For another namespace use kustomize: docs/get-started/cluster.md",
            overlay.name()
        ))),
        _ => Ok(()),
    }
}

/// Two controllers must never reconcile the same objects.
async fn refuse_second_controller(context: &Context) -> Result<(), CliError> {
    let components = components::read(&context.cluster).await?;
    let running = components
        .iter()
        .find(|component| component.name == "tofu-controller" && component.wanted != Some(0));
    match running {
        None => Ok(()),
        Some(controller) => Err(CliError::Refused {
            object: format!("deployment {}/{}", controller.namespace, controller.name),
            cause: "it reconciles the same objects; stop it first".to_owned(),
            next_command: "sluice migrate".to_owned(),
        }),
    }
}

/// A run without its role cannot write its state.
async fn refuse_active_runs(context: &Context) -> Result<(), CliError> {
    let runs = match run_row::all(&context.cluster).await {
        Err(CliError::Api { source, .. }) if is_absent(&source) => return Ok(()),
        listed => listed?,
    };
    let active = runs.iter().filter(|run| !run.phase.is_final()).count();
    if active == 0 {
        return Ok(());
    }
    Err(CliError::Refused {
        object: counted(active, "active run"),
        cause: "runs cannot write their state without their role. Suspend the stacks and wait".to_owned(),
        next_command: "sluice get runs -A".to_owned(),
    })
}

/// Formats objects as a stream of YAML documents.
fn stream<'a>(objects: impl Iterator<Item = &'a Value>) -> Result<String, CliError> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&to_yaml(object)?);
    }
    Ok(text)
}
