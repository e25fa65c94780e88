//! `sluice apply --local`: the plan of a directory that is not pushed yet, against the state and the variables of a stack. It runs the CLI on
//! this machine, in a copy of the directory, and never applies anything.
//!
//! The generated backend has the state in a Secret: the user reads it, and the CLI plans on a copy in a local backend. So nothing can
//! write the state or create one, and the CLI needs no access to the API. Any other backend is configured as the stack has it, and
//! the CLI uses the credentials of the user; `plan -lock=false` writes no state.

mod commands;
mod sources;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use commands::{PlannedChanges, plan};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{Terraform, label_value};
use sluice_cli::cluster::{Cluster, ConnectionArgs};
use sluice_cli::command::describe_plan;
use sluice_cli::output::{Console, Tone};
use sluice_cli::{CliError, ExitStatus, current_state, finish, run, stack};
use sluice_tf_controller::local_bundle;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::cli::tool::{self, Tool};
use sluice_tf_core::workdir::create_private_directory;
use sluice_tf_runner::run::{LocalModule, prepare_local_module};
use sources::Sources;

/// The backend of a plan on a copy of the state.
const LOCAL_BACKEND: &str = "terraform {\n  backend \"local\" {\n  }\n}\n";
/// The workspace whose local state has no directory of its own.
const DEFAULT_WORKSPACE: &str = "default";

/// Arguments of `sluice apply`.
#[derive(clap::Args, Clone, Debug)]
pub struct ApplyArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The directory: the repository, or the module of the stack. It is copied, and nothing in it is changed.
    #[arg(long, value_name = "DIR")]
    pub local: Option<PathBuf>,
    /// Print the output of the CLI as well.
    #[arg(long, requires = "local")]
    pub full: bool,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Plans a directory and reports the error: object, cause, and the next command to type.
pub async fn apply(args: &ApplyArgs) -> ExitCode {
    let console = Console::new(args.connection.no_color);
    let result = match &args.local {
        Some(directory) => Box::pin(plan_directory(args, directory, console)).await,
        None => Ok(refuse_apply(&args.name, console)),
    };
    finish(console, Some(&args.connection), result)
}

/// Says how a plan is applied.
fn refuse_apply(name: &str, console: Console) -> ExitStatus {
    console.note("sluice: a plan is applied by its approval, in a run of the stack and not on this machine");
    console.note(&format!(
        "  next: sluice approve {name}, or `sluice apply {name} --local DIR` for the plan of a directory that is not pushed"
    ));
    ExitStatus::Usage
}

async fn plan_directory(
    args: &ApplyArgs,
    directory: &Path,
    console: Console,
) -> Result<ExitStatus, CliError> {
    let cluster = Cluster::connect(&args.connection).await?;
    let stack: Terraform = cluster.get(&args.name).await?;
    let sources = Sources::find(directory, &stack.spec.path)?;
    console.note(&sources.describe());
    let tool = find_tool(&cluster, &stack, console).await?;
    let mut bundle = local_bundle(&stack, &cluster.client())
        .await
        .map_err(|error| failed(&stack, error.to_string()))?;
    bundle.path = sources.module.to_string_lossy().into_owned();
    note_missing_environment(&bundle, console);
    let scratch = tempfile::Builder::new().prefix("sluice-plan-").tempdir();
    let scratch = scratch.map_err(|source| CliError::File {
        what: "cannot create a temporary directory".to_owned(),
        source,
    })?;
    let root = scratch.path().join("files");
    sources.copy(&root).await?;
    let state = state_of(&cluster, &stack).await?;
    let mut inherited = environment();
    if matches!(state, StateSource::Copy(_)) {
        bundle.backend = Some(LOCAL_BACKEND.to_owned());
    } else {
        add_kubeconfig(&mut inherited, &args.connection);
    }
    let mut module = prepare_local_module(&root, &scratch.path().join("home"), &bundle, &inherited)
        .map_err(|error| failed(&stack, error.to_string()))?;
    if let StateSource::Copy(copy) = &state {
        place_state(&mut module, &bundle.workspace, copy.as_deref())?;
    }
    let planned = plan(
        &tool,
        &module,
        &bundle,
        stack.spec.destroy,
        scratch.path(),
        console,
    )
    .await?;
    console.data(&describe_plan(
        &stack,
        &shown_as(&stack, &sources, &planned)?,
        console,
    ))?;
    if args.full {
        console.data(&format!("\n{}", console.paint(Tone::Plain, &planned.text)))?;
    }
    console.note("Nothing was applied, and no state was written. Push the files to plan and apply them.");
    Ok(ExitStatus::Success)
}

/// Returns the error of a stack whose plan cannot be made here.
fn failed(stack: &Terraform, cause: String) -> CliError {
    CliError::Failed {
        object: format!("the local plan of terraform {}", stack::full_name(stack)),
        cause,
        next_command: String::new(),
    }
}

/// Finds the CLI of the stack on `PATH`: that of `spec.tool`, or else that of its newest run.
async fn find_tool(cluster: &Cluster, stack: &Terraform, console: Console) -> Result<Tool, CliError> {
    let selected = stack.spec.tool.as_ref();
    let name = match selected {
        Some(selected) => Some(selected.name.as_str().to_owned()),
        None => recorded_tool(cluster, stack).await?,
    };
    let search_path = std::env::var("PATH").unwrap_or_default();
    let tool = tool::find(&search_path, name.as_deref()).map_err(|error| CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause: error.to_string(),
        next_command: "install it on this machine, in a directory of PATH".to_owned(),
    })?;
    if let Some(selected) = selected.filter(|selected| !selected.version.is_empty()) {
        console.note(&format!(
            "The stack selects {} {}; this plan uses {}, whatever its version is.",
            tool.name,
            selected.version,
            tool.path.display()
        ));
    }
    Ok(tool)
}

/// Returns the CLI of the newest run that recorded one.
async fn recorded_tool(cluster: &Cluster, stack: &Terraform) -> Result<Option<String>, CliError> {
    let label = format!("{TERRAFORM_LABEL}={}", label_value(&stack.name_any()));
    let params = ListParams::default().labels(&label);
    let mut runs = cluster
        .list_with(&cluster.objects::<TerraformRun>(), params)
        .await?;
    runs.retain(|run| stack.uid().is_some_and(|uid| run.spec.terraform.uid == uid));
    run::sort_newest_first(&mut runs);
    let tools = runs.into_iter().filter_map(|run| run.status?.tool);
    Ok(tools.map(|tool| tool.name).find(|name| !name.is_empty()))
}

/// Names the variables whose values only the pod of a run has.
fn note_missing_environment(bundle: &Bundle, console: Console) {
    let names: Vec<_> = bundle.pod_environment.keys().map(String::as_str).collect();
    if !names.is_empty() {
        console.note(&format!(
            "Not set here, because only the pod of a run has them: {}.",
            names.join(", ")
        ));
    }
}

/// Returns the environment of this program. Names and values that are not UTF-8 are left out.
fn environment() -> BTreeMap<String, String> {
    let all = std::env::vars_os();
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Sets the kubeconfig of a kubernetes backend, unless the user has set one: the CLI takes none by itself.
fn add_kubeconfig(environment: &mut BTreeMap<String, String>, connection: &ConnectionArgs) {
    if let Some(context) = &connection.context {
        environment
            .entry("KUBE_CTX".to_owned())
            .or_insert_with(|| context.clone());
    }
    if ["KUBE_CONFIG_PATH", "KUBE_CONFIG_PATHS"]
        .iter()
        .any(|name| environment.contains_key(*name))
    {
        return;
    }
    let flag = connection
        .kubeconfig
        .as_ref()
        .map(|path| path.display().to_string());
    let home = environment.get("HOME").map(|home| format!("{home}/.kube/config"));
    // A list of paths, as in KUBECONFIG.
    let list = environment.get("KUBECONFIG").filter(|list| !list.is_empty());
    let paths = flag.or_else(|| list.cloned()).or(home);
    environment.extend(paths.map(|paths| ("KUBE_CONFIG_PATHS".to_owned(), paths)));
}

/// Where the CLI finds the state.
enum StateSource {
    /// A copy of the state of the generated backend; `None`: there is no state yet.
    Copy(Option<Vec<u8>>),
    /// The backend of the stack.
    Backend,
}

/// Reads the state of the generated backend. Any other backend is that of the CLI.
async fn state_of(cluster: &Cluster, stack: &Terraform) -> Result<StateSource, CliError> {
    if stack.spec.state_suffix(&stack.name_any()).is_none() {
        return Ok(StateSource::Backend);
    }
    current_state(cluster, stack).await.map(StateSource::Copy)
}

/// Writes the copy of the state where the local backend finds it, and selects the workspace.
fn place_state(module: &mut LocalModule, workspace: &str, state: Option<&[u8]>) -> Result<(), CliError> {
    let mut directory = module.directory.clone();
    if workspace != DEFAULT_WORKSPACE {
        directory.extend(["terraform.tfstate.d", workspace]);
        module
            .environment
            .insert("TF_WORKSPACE".to_owned(), workspace.to_owned());
    }
    let failed = |source| CliError::File {
        what: "cannot write the copy of the state".to_owned(),
        source,
    };
    // It makes the workspace exist, also without a state.
    create_private_directory(&directory).map_err(|error| failed(error.source))?;
    match state {
        Some(state) => std::fs::write(directory.join("terraform.tfstate"), state).map_err(failed),
        None => Ok(()),
    }
}

/// Returns the plan in the form of a run, which [`describe_plan`] shows.
fn shown_as(
    stack: &Terraform,
    sources: &Sources,
    planned: &PlannedChanges,
) -> Result<TerraformRun, CliError> {
    let summary = &planned.summary;
    let changes = if planned.has_changes {
        summary.counts.short()
    } else {
        String::new()
    };
    let run = json!({
        "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun", "metadata": { "name": "local" },
        "spec": { "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Request", "destroy": stack.spec.destroy,
            "source": { "kind": "GitRepository", "name": "local", "namespace": stack.namespace(),
                "revision": format!("{}, not pushed", sources.root.display()) },
            "terraform": { "name": stack.name_any(), "uid": stack.uid(), "generation": stack.metadata.generation.unwrap_or_default() } },
        "status": { "phase": "Succeeded", "hasChanges": planned.has_changes, "changes": changes,
            "changeEntries": summary.entries, "changesOmitted": summary.omitted },
    });
    serde_json::from_value(run).map_err(|error| CliError::Format(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(directory: &Path) -> LocalModule {
        LocalModule {
            directory: directory.to_owned(),
            plan_arguments: Vec::new(),
            environment: BTreeMap::new(),
        }
    }

    #[test]
    fn a_kubernetes_backend_gets_the_kubeconfig_of_the_command() {
        let variables = |inherited: &[(&str, &str)], kubeconfig: Option<&str>| {
            let owned = inherited
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let mut all: BTreeMap<String, String> = owned.collect();
            let connection = ConnectionArgs {
                kubeconfig: kubeconfig.map(PathBuf::from),
                context: Some("dev".to_owned()),
                namespace: None,
                request_timeout: std::time::Duration::from_secs(30),
                no_color: true,
            };
            add_kubeconfig(&mut all, &connection);
            assert_eq!(all["KUBE_CTX"], "dev");
            all.get("KUBE_CONFIG_PATHS").cloned()
        };
        let home = [("HOME", "/home/anna")];
        let set = [("HOME", "/home/anna"), ("KUBECONFIG", "/a:/b")];
        let own = [("KUBE_CONFIG_PATH", "/own")];
        assert_eq!(variables(&home, None).as_deref(), Some("/home/anna/.kube/config"));
        assert_eq!(variables(&set, None).as_deref(), Some("/a:/b"));
        assert_eq!(variables(&set, Some("/flag")).as_deref(), Some("/flag"));
        assert_eq!(variables(&own, Some("/flag")), None);
    }

    #[test]
    fn the_copy_of_the_state_is_that_of_its_workspace() {
        let root = tempfile::tempdir().unwrap();
        let mut main = module(root.path());
        place_state(&mut main, "default", Some(b"{}")).unwrap();
        assert_eq!(
            std::fs::read(root.path().join("terraform.tfstate")).unwrap(),
            b"{}"
        );
        assert!(main.environment.is_empty());

        let mut other = module(root.path());
        place_state(&mut other, "prod", None).unwrap();
        let directory = root.path().join("terraform.tfstate.d/prod");
        assert!(directory.is_dir() && !directory.join("terraform.tfstate").exists());
        assert_eq!(other.environment["TF_WORKSPACE"], "prod");
    }
}
