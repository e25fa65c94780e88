//! The errored state: one that the CLI could not write to its backend. The run stores it in Secrets that the Terraform object
//! owns, and the next run pushes it before it plans.

use std::io::ErrorKind;
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::{ErroredState, TerraformRun};
use sluice_api::terraform::{label_value, workspace_label};
use sluice_tf_core::bundle::Stack;
use sluice_tf_core::errored_state::{
    self, FILE, LABEL, LIMIT, StateLocation, WORKSPACE, encode, is_of_another_location,
};
use sluice_tf_core::plan::store::short_label;
use sluice_tf_core::workdir::read_limited;

use crate::run::lifecycle::api_retry::RetryRule;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::state;
use crate::run::state_lock::retry_after_unlock;
use crate::run::status::StatusWriter;
use crate::run::workdir::prepare::module_directory;
use crate::run::workdir::{WorkDirectory, directory_error, write_private};

/// Reads the errored state in the module directory, if there is one. One that is too large stays there, and every later run fails.
fn read_errored_state(module: &Path) -> Result<Option<Vec<u8>>, RunError> {
    let read = read_limited(&module.join(FILE), LIMIT);
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            let text = format!(
                "{error}; it is the newest state and stays in {}: push it manually (state push), then delete the file",
                module.display()
            );
            Err(directory_error(
                "store the state",
                std::io::Error::new(error.kind(), text),
            ))
        }
        read => read
            .map(Some)
            .map_err(|source| directory_error("read errored.tfstate", source)),
    }
}

/// Stores the errored state of the module directory, if there is one. On failure it has to stay in the directory, where the next
/// run finds it: a state that is not recorded in the status is not pushed.
pub(crate) async fn store(
    context: &Context,
    status: &StatusWriter,
    stack: &Stack,
    belongs: StateLocation<'_>,
    module: &Path,
) -> Result<(), RunError> {
    let Some(state) = read_errored_state(module)? else {
        return Ok(());
    };
    let secrets =
        encode(&state, stack, belongs).map_err(|source| directory_error("pack errored.tfstate", source))?;
    let digest = secrets.first().map(errored_state::digest_of).unwrap_or_default();
    let workspace = belongs.workspace.to_owned();
    status.write(|status| status.errored_states.push(ErroredState { digest, workspace }));
    let (recorded, created) = tokio::join!(
        status.flush(context.settings.api_timeout),
        create_secrets(context, &secrets)
    );
    created?;
    recorded
        .map_err(|error| directory_error("record that the state is stored", std::io::Error::other(error)))?;
    tracing::warn!("the CLI could not write the state; it is stored, and the next run pushes it");
    Ok(())
}

async fn create_secrets(context: &Context, secrets: &[Secret]) -> Result<(), RunError> {
    for secret in secrets {
        // Without it, the state would be lost.
        let created = context.create_if_absent(secret, RetryRule::WITH_REFUSALS).await;
        created.map_err(RunError::api("store errored.tfstate"))?;
    }
    Ok(())
}

/// Removes the file of a stored state from a directory that stays, so that the next run does not store it again.
pub(crate) fn remove_stored(module: &Path) {
    if let Err(error) = remove(module) {
        tracing::warn!(%error, "errored.tfstate is stored but cannot be removed from the directory");
    }
}

fn remove(module: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(module.join(FILE)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Stores the errored state that an earlier run could not store, if there is one in the directory.
pub(crate) async fn store_leftover(
    context: &Context,
    status: &StatusWriter,
    stack: &Stack,
    directory: &WorkDirectory,
) -> Result<(), RunError> {
    let Some(owner) = directory.owner() else {
        return Ok(());
    };
    let Ok(module) = module_directory(&directory.root, &owner.path) else {
        return Ok(());
    };
    let belongs = StateLocation {
        workspace: &owner.workspace,
        location: &owner.state_location,
    };
    store(context, status, stack, belongs, &module).await
}

/// Removes an `errored.tfstate` that was committed to the source: it must never be pushed.
pub(crate) fn remove_committed(module: &Path) -> Result<(), RunError> {
    remove(module).map_err(|source| directory_error("remove errored.tfstate of the artifact", source))
}

/// Pushes the stored state, then deletes it and its predecessors.
pub(crate) async fn push(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession { context, bundle, .. } = session;
    let api = context.api::<Secret>();
    let selector = format!(
        "{LABEL}={},{WORKSPACE}={}",
        short_label(&bundle.stack.name),
        workspace_label(&bundle.workspace)
    );
    let params = ListParams::default().labels(&selector);
    let listed = context.retry(|| api.list(&params)).await;
    let stored = listed.map_err(RunError::api("list stored states"))?.items;
    refuse_unrecorded(session, &stored).await?;
    let environment = &bundle.run_environment;
    let locations = [
        environment.state_location.as_str(),
        environment.former_state_location.as_str(),
    ];
    if let Some(foreign) = stored
        .iter()
        .find(|secret| is_of_another_location(secret, locations))
    {
        let name = foreign.metadata.name.as_deref().unwrap_or_default();
        let text = format!(
            "Secret {name} contains it, and it belongs to the previous backend; restore that backend for one run, or push \
             the state manually and delete the Secret"
        );
        return Err(RunError::PushState { text });
    }
    let choice = errored_state::choose(&stored, Timestamp::now()).map_err(|error| RunError::PushState {
        text: error.to_string(),
    })?;
    if let Some((state, names)) = &choice.push {
        push_state(session, state, names).await?;
    }
    let params = DeleteParams::default();
    for name in &choice.obsolete {
        let deleted = context.retry(|| api.delete(name, &params)).await;
        match deleted {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted.map_err(RunError::api("delete a stored state"))?),
        }
    }
    Ok(())
}

/// Fails if a stored state is not recorded by any run: another client may have written it, so it is neither pushed nor deleted.
async fn refuse_unrecorded(session: &RunSession<'_>, stored: &[Secret]) -> Result<(), RunError> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    if stored.is_empty() {
        return Ok(());
    }
    let api = context.api::<TerraformRun>();
    let selector = format!("{TERRAFORM_LABEL}={}", label_value(&bundle.stack.name));
    let params = ListParams::default().labels(&selector);
    let listed = context.retry(|| api.list(&params)).await;
    let mut runs = listed
        .map_err(RunError::api("list the runs that stored a state"))?
        .items;
    runs.retain(|run| run.spec.terraform.name == bundle.stack.name);
    let own = cli.status.snapshot().errored_states;
    match errored_state::find_unrecorded(stored, &runs, &own) {
        None => Ok(()),
        Some(unrecorded) => Err(RunError::PushState {
            text: format!(
                "Secret {} contains a state that no run of this stack recorded, so another client may have written it: \
                 inspect it, push it manually if it is correct, and delete the Secret",
                unrecorded.metadata.name.as_deref().unwrap_or_default()
            ),
        }),
    }
}

async fn push_state(session: &RunSession<'_>, state: &[u8], names: &[String]) -> Result<(), RunError> {
    let RunSession { bundle, cli, .. } = session;
    let file = cli.directory.scratch.path().join(FILE);
    write_private(&file, state)?;
    let args = state::push_arguments(&file, false, &bundle.options.lock_timeout);
    match retry_after_unlock(session, Step::Push, &args, &[0]).await {
        Err(RunError::Command { text, .. }) => {
            let names = names.join(", ");
            return Err(RunError::PushState {
                text: format!("it is in Secret {names}. {text}"),
            });
        }
        pushed => pushed.map(drop)?,
    }
    tracing::info!("pushed the state that an earlier run could not write");
    Ok(())
}
