//! State that the CLI could not write: kept in Secrets that the Terraform owns, pushed by the next run before it plans.

use std::io::ErrorKind;
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::{ErroredState, TerraformRun};
use sluice_api::terraform::{label_value, workspace_label};

use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::api_retry::patiently;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::state_lock::unlock;
use crate::run::status::writer::Reporter;
use crate::run::workdir;
use crate::run::workdir::prepare::{module_directory, write_private};
use crate::run::workdir::{WorkDirectory, failed};
use sluice_tf_core::bundle::{Bundle, Stack};
use sluice_tf_core::cli::argv;
use sluice_tf_core::errored_state::{
    self, FILE, LABEL, LIMIT, StateLocation, WORKSPACE, encode, is_of_another_location,
};
use sluice_tf_core::plan::store::short_label;

fn api(context: &Context, stack: &Stack) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &stack.namespace)
}

/// The state that the CLI left in the module directory, if it did. What cannot be kept stays where it is, and every later run
/// says so.
fn left_in(module: &Path) -> Result<Option<Vec<u8>>, RunError> {
    let read = workdir::read_limited(&module.join(FILE), LIMIT);
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            let text = format!(
                "{error}; it is the newest state and stays in {}: push it by hand (state push), then remove the file",
                module.display()
            );
            Err(failed("keep the state", std::io::Error::new(error.kind(), text)))
        }
        read => read
            .map(Some)
            .map_err(|source| failed("read errored.tfstate", source)),
    }
}

/// Keeps the state that the CLI left in the module directory, if it did. One that is not on record is not pushed, so it stays in the
/// directory too: the next run keeps it once more.
pub(crate) async fn keep(
    context: &Context,
    reporter: &Reporter,
    stack: &Stack,
    target: StateLocation<'_>,
    module: &Path,
) -> Result<(), RunError> {
    let Some(state) = left_in(module)? else {
        return Ok(());
    };
    let secrets = encode(&state, stack, target).map_err(|source| failed("pack errored.tfstate", source))?;
    let digest = secrets.first().map(errored_state::digest_of).unwrap_or_default();
    let workspace = target.workspace.to_owned();
    reporter.say(|status| status.errored_states.push(ErroredState { digest, workspace }));
    let patience = context.settings.patience;
    let (recorded, created) = tokio::join!(reporter.flush(patience), create(context, stack, &secrets));
    created?;
    recorded.map_err(|error| failed("record that the state is kept", std::io::Error::other(error)))?;
    tracing::warn!("the CLI could not write the state; it is kept and pushed by the next run");
    Ok(())
}

async fn create(context: &Context, stack: &Stack, secrets: &[Secret]) -> Result<(), RunError> {
    let api = api(context, stack);
    let params = PostParams::default();
    for secret in secrets {
        match patiently(context.settings.patience, || api.create(&params, secret)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.map_err(|source| RunError::Api {
                doing: "keep errored.tfstate",
                source,
            })?),
        }
    }
    Ok(())
}

/// Removes the file of a state that was kept from a directory that stays: nobody is to keep it a second time.
pub(crate) fn drop_kept(module: &Path) {
    if let Err(error) = remove(module) {
        tracing::warn!(%error, "errored.tfstate was kept and stays in the directory too");
    }
}

fn remove(module: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(module.join(FILE)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A state that an earlier run could neither write nor keep lies in the directory: it is kept now.
pub(crate) async fn rescue(
    context: &Context,
    reporter: &Reporter,
    stack: &Stack,
    directory: &WorkDirectory,
) -> Result<(), RunError> {
    let Some(tenant) = directory.tenant() else {
        return Ok(());
    };
    let Ok(module) = module_directory(&directory.root, &tenant.path) else {
        return Ok(());
    };
    let belongs = StateLocation {
        workspace: &tenant.workspace,
        location: &tenant.state_location,
    };
    keep(context, reporter, stack, belongs, &module).await
}

/// Removes a file of that name that came with the artifact: it is not the CLI's, and must never be pushed.
pub(crate) fn disown(module: &Path) -> Result<(), RunError> {
    remove(module).map_err(|source| failed("remove errored.tfstate of the artifact", source))
}

/// Pushes a kept state, then removes it and what it is the successor of.
pub(crate) async fn push(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
) -> Result<(), RunError> {
    let api = api(context, &bundle.stack);
    let selector = format!(
        "{LABEL}={},{WORKSPACE}={}",
        short_label(&bundle.stack.name),
        workspace_label(&bundle.workspace)
    );
    let params = ListParams::default().labels(&selector);
    let kept = patiently(context.settings.patience, || api.list(&params)).await;
    let kept = kept
        .map_err(|source| RunError::Api {
            doing: "look for a kept state",
            source,
        })?
        .items;
    refuse_stray(context, bundle, workspace, &kept).await?;
    let around = &bundle.run_environment;
    let places = [
        around.state_location.as_str(),
        around.former_state_location.as_str(),
    ];
    if let Some(stray) = kept.iter().find(|secret| is_of_another_location(secret, places)) {
        let name = stray.metadata.name.as_deref().unwrap_or_default();
        let text = format!(
            "Secret {name} holds it, and it belongs to the backend of before; set that backend again for one run, or push it \
             by hand and delete the Secret"
        );
        return Err(RunError::Push { text });
    }
    let choice = errored_state::choose(&kept, Timestamp::now()).map_err(|error| RunError::Push {
        text: error.to_string(),
    })?;
    if let Some((state, names)) = &choice.push {
        push_one(context, bundle, workspace, state, names).await?;
    }
    let params = DeleteParams::default();
    for name in &choice.obsolete {
        let deleted = patiently(context.settings.patience, || api.delete(name, &params)).await;
        match deleted {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.map_err(|source| RunError::Api {
                doing: "remove a kept state",
                source,
            })?),
        }
    }
    Ok(())
}

/// A state that no run has on record was written by somebody else: it is neither pushed nor forgotten.
async fn refuse_stray(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    kept: &[Secret],
) -> Result<(), RunError> {
    if kept.is_empty() {
        return Ok(());
    }
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &bundle.stack.namespace);
    let selector = format!("{TERRAFORM_LABEL}={}", label_value(&bundle.stack.name));
    let params = ListParams::default().labels(&selector);
    let runs = patiently(context.settings.patience, || api.list(&params)).await;
    let mut runs = runs
        .map_err(|source| RunError::Api {
            doing: "look which run kept a state",
            source,
        })?
        .items;
    runs.retain(|run| run.spec.terraform.name == bundle.stack.name);
    let own = workspace.reporter.said().errored_states;
    match errored_state::find_unrecorded(kept, &runs, &own) {
        None => Ok(()),
        Some(stray) => Err(RunError::Push {
            text: format!(
                "Secret {} holds a state that no run of this stack has on record, so somebody else may have written it: \
                 look at it, push it by hand if it is right, and delete the Secret",
                stray.metadata.name.as_deref().unwrap_or_default()
            ),
        }),
    }
}

async fn push_one(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    state: &[u8],
    names: &[String],
) -> Result<(), RunError> {
    let file = workspace.directory.scratch.path().join(FILE);
    write_private(&file, state)?;
    let words = argv::state_push(&file, &bundle.options.lock_timeout);
    match unlock::retrying(context, workspace, Step::Push, &words, &[0]).await {
        Err(RunError::Command { text, .. }) => {
            let names = names.join(", ");
            return Err(RunError::Push {
                text: format!("it is in Secret {names}. {text}"),
            });
        }
        pushed => pushed.map(drop)?,
    }
    tracing::info!("pushed the state that an earlier run could not write");
    Ok(())
}
