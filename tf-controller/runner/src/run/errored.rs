//! State that the CLI could not write: kept in Secrets that the Terraform owns, pushed by the next run before it plans.

mod choice;
mod record;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use sha2::{Digest as _, Sha256};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{label_value, workspace_label};

use super::context::Context;
use super::error::{RunError, Step};
use super::patience::patiently;
use super::prepare::{module_directory, write_private};
use super::report::Reporter;
use super::workdir::{WorkDirectory, failed};
use super::workspace::Workspace;
use super::{unlock, within};
use crate::bundle::{Bundle, Stack};
use crate::chunk;
use crate::cli::argv;
use crate::plan::store::{self, short_label};

pub use record::recorders;

/// The CLI's own file name.
pub(super) const FILE: &str = "errored.tfstate";
/// Label: which stack's.
pub(super) const LABEL: &str = "infra.sluice.dev/errored-state";
const WORKSPACE: &str = "infra.sluice.dev/errored-state-workspace";
const INDEX: &str = "infra.sluice.dev/chunk";
const COUNT: &str = "infra.sluice.dev/chunks";
const DIGEST: &str = "infra.sluice.dev/digest";
/// Annotation: the place it belongs to, as the bundle tells it.
const PLACE: &str = "infra.sluice.dev/errored-state-place";
/// Largest state that is kept.
const LIMIT: u64 = 256 * 1024 * 1024;

/// The label selector of a stack's states that could not be written.
#[must_use]
pub fn selector(stack: &str) -> String {
    format!("{LABEL}={}", short_label(stack))
}

fn api(context: &Context, stack: &Stack) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &stack.namespace)
}

/// Where a state belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belongs<'a> {
    /// The workspace.
    pub(super) workspace: &'a str,
    /// The place, as the bundle tells it.
    pub(super) place: &'a str,
}

fn encode(state: &[u8], stack: &Stack, belongs: Belongs<'_>) -> std::io::Result<Vec<Secret>> {
    let packed = chunk::compress(state)?;
    let digest = digest(&packed);
    let pieces = chunk::pack(&[("state", &packed)]);
    let count = pieces.len().to_string();
    let front = store::object_name("tferrored", belongs.workspace, &stack.name);
    let secret = |(index, data): (usize, BTreeMap<String, ByteString>)| {
        let labels = BTreeMap::from([
            (LABEL.to_owned(), short_label(&stack.name)),
            (WORKSPACE.to_owned(), workspace_label(belongs.workspace)),
        ]);
        let annotations = BTreeMap::from([
            (PLACE.to_owned(), belongs.place.to_owned()),
            (INDEX.to_owned(), index.to_string()),
            (COUNT.to_owned(), count.clone()),
            (DIGEST.to_owned(), digest.clone()),
        ]);
        let name = format!("{front}-{}-{index}", &digest[..10]);
        store::piece(stack, name, labels, annotations, data)
    };
    Ok(pieces.into_iter().enumerate().map(secret).collect())
}

fn held(secret: &Secret, key: &str) -> String {
    let annotations = secret.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(key))
        .cloned()
        .unwrap_or_default()
}

/// Whether a kept state belongs elsewhere than where this run writes its state, by either mark of that place.
fn is_of_another_place(secret: &Secret, places: [&str; 2]) -> bool {
    let own = held(secret, PLACE);
    !own.is_empty() && !places.contains(&own.as_str())
}

fn digest(packed: &[u8]) -> String {
    hex::encode(Sha256::digest(packed))
}

/// The state that the CLI left in the module directory, if it did. What cannot be kept stays where it is, and every later run
/// says so.
fn left_in(module: &Path) -> Result<Option<Vec<u8>>, RunError> {
    let read = within::read(&module.join(FILE), LIMIT);
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
pub(super) async fn keep(
    context: &Context,
    reporter: &Reporter,
    stack: &Stack,
    belongs: Belongs<'_>,
    module: &Path,
) -> Result<(), RunError> {
    let Some(state) = left_in(module)? else {
        return Ok(());
    };
    let secrets = encode(&state, stack, belongs).map_err(|source| failed("pack errored.tfstate", source))?;
    let digest = secrets.first().map(record::digest_of).unwrap_or_default();
    reporter.say(|status| status.errored_state_digests.push(digest));
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
pub(super) fn drop_kept(module: &Path) {
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
pub(super) async fn rescue(
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
    let belongs = Belongs {
        workspace: &tenant.workspace,
        place: &tenant.place,
    };
    keep(context, reporter, stack, belongs, &module).await
}

/// Removes a file of that name that came with the artifact: it is not the CLI's, and must never be pushed.
pub(super) fn disown(module: &Path) -> Result<(), RunError> {
    remove(module).map_err(|source| failed("remove errored.tfstate of the artifact", source))
}

/// Pushes a kept state, then removes it and what it is the successor of.
pub(super) async fn push(
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
    let around = &bundle.surroundings;
    let places = [around.state_place.as_str(), around.former_state_place.as_str()];
    if let Some(stray) = kept.iter().find(|secret| is_of_another_place(secret, places)) {
        let name = stray.metadata.name.as_deref().unwrap_or_default();
        let text = format!(
            "Secret {name} holds it, and it belongs to the backend of before; set that backend again for one run, or push it \
             by hand and delete the Secret"
        );
        return Err(RunError::Push { text });
    }
    let choice = choice::choose(&kept, Timestamp::now()).map_err(|error| RunError::Push {
        text: error.to_string(),
    })?;
    if let Some((state, names)) = &choice.push {
        push_one(context, bundle, workspace, state, names).await?;
    }
    let params = DeleteParams::default();
    for name in &choice.done {
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
    let own = workspace.reporter.said().errored_state_digests;
    match record::stray(kept, &runs, &own) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of a state that belongs `here`.
    pub(super) fn kept(state: &[u8]) -> Vec<Secret> {
        let stack = Stack {
            namespace: "team".into(),
            name: "net".into(),
            uid: "u".into(),
        };
        let belongs = Belongs {
            workspace: "default",
            place: "here",
        };
        encode(state, &stack, belongs).unwrap()
    }

    #[test]
    fn a_kept_state_knows_its_place() {
        let secrets = kept(b"{}");
        assert!(
            !is_of_another_place(&secrets[0], ["here", ""])
                && is_of_another_place(&secrets[0], ["there", ""])
        );
        assert!(
            !is_of_another_place(&secrets[0], ["there", "here"]),
            "by the mark of before"
        );
        assert!(
            !is_of_another_place(&Secret::default(), ["there", ""]),
            "of a version that kept no place"
        );
    }
}
