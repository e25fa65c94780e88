//! State that the CLI could not write: kept in Secrets that the Terraform owns, pushed by the next run before it plans.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use sha2::{Digest as _, Sha256};
use sluice_api::terraform::workspace_label;

use super::context::Context;
use super::error::{RunError, Step};
use super::patience::patiently;
use super::prepare::{module_directory, write_private};
use super::within;
use super::workdir::{WorkDirectory, failed};
use super::workspace::Workspace;
use crate::bundle::{Bundle, Stack};
use crate::chunk;
use crate::cli::argv;
use crate::plan::store::{self, short_label};

/// The CLI's own file name.
pub(super) const FILE: &str = "errored.tfstate";
/// Label: which stack's.
const LABEL: &str = "infra.sluice.dev/errored-state";
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
    let digest = hex::encode(Sha256::digest(&packed));
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

/// Whether a kept state belongs elsewhere than where this run writes its state.
fn is_of_another_place(secret: &Secret, place: &str) -> bool {
    let own = held(secret, PLACE);
    !own.is_empty() && own != place
}

/// The state out of its chunks; chunks of a write that did not finish are no state.
fn decode(secrets: &[Secret]) -> Option<Vec<u8>> {
    let digests: std::collections::BTreeSet<_> = secrets.iter().map(|secret| held(secret, DIGEST)).collect();
    let whole = |digest: &String| {
        let mut chunks: Vec<_> = secrets
            .iter()
            .filter(|secret| held(secret, DIGEST) == *digest)
            .collect();
        chunks.sort_by_key(|secret| held(secret, INDEX).parse::<usize>().unwrap_or(usize::MAX));
        let packed = chunk::joined(chunks.iter().filter_map(|secret| secret.data.as_ref()), "state");
        (hex::encode(Sha256::digest(&packed)) == *digest).then_some(packed)
    };
    digests
        .iter()
        .find_map(whole)
        .and_then(|packed| chunk::decompress(&packed, LIMIT).ok())
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

/// Keeps the state that the CLI left in the module directory, if it did. `Ok(true)` when there was one.
pub(super) async fn keep(
    context: &Context,
    stack: &Stack,
    belongs: Belongs<'_>,
    module: &Path,
) -> Result<bool, RunError> {
    let Some(state) = left_in(module)? else {
        return Ok(false);
    };
    let secrets = encode(&state, stack, belongs).map_err(|source| failed("pack errored.tfstate", source))?;
    let api = api(context, stack);
    let params = PostParams::default();
    for secret in &secrets {
        match patiently(context.settings.patience, || api.create(&params, secret)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.map_err(|source| RunError::Api {
                doing: "keep errored.tfstate",
                source,
            })?),
        }
    }
    tracing::warn!("the CLI could not write the state; it is kept and pushed by the next run");
    Ok(true)
}

/// A state that an earlier run could neither write nor keep lies in the directory: it is kept now.
pub(super) async fn rescue(
    context: &Context,
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
    keep(context, stack, belongs, &module).await.map(drop)
}

/// Removes a file of that name that came with the artifact: it is not the CLI's, and must never be pushed.
pub(super) fn disown(module: &Path) -> Result<(), RunError> {
    match std::fs::remove_file(module.join(FILE)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(failed("remove errored.tfstate of the artifact", error))
        }
        _ => Ok(()),
    }
}

/// Pushes a kept state, then removes it.
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
    let place = &bundle.surroundings.state_place;
    if let Some(stray) = kept.iter().find(|secret| is_of_another_place(secret, place)) {
        let name = stray.metadata.name.as_deref().unwrap_or_default();
        let text = format!(
            "Secret {name} holds it, and it belongs to the backend of before; set that backend again for one run, or push it \
             by hand and delete the Secret"
        );
        return Err(RunError::Push { text });
    }
    if let Some(state) = decode(&kept) {
        let file = workspace.directory.scratch.path().join(FILE);
        write_private(&file, &state)?;
        let words = argv::state_push(&file, &bundle.options.lock_timeout);
        match super::unlock::retrying(context, workspace, Step::Push, &words, &[0]).await {
            Err(RunError::Command { text, .. }) => return Err(RunError::Push { text }),
            pushed => pushed.map(|_| ())?,
        }
        tracing::info!("pushed the state that an earlier run could not write");
    }
    let params = DeleteParams::default();
    for secret in &kept {
        let name = secret.metadata.name.clone().unwrap_or_default();
        let deleted = patiently(context.settings.patience, || api.delete(&name, &params)).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_state_is_read_only_when_it_is_whole() {
        let stack = Stack {
            namespace: "team".into(),
            name: "net".into(),
            uid: "u".into(),
        };
        let belongs = Belongs {
            workspace: "default",
            place: "here",
        };
        let secrets = encode(b"{\"serial\": 4}", &stack, belongs).unwrap();
        assert!(!is_of_another_place(&secrets[0], "here") && is_of_another_place(&secrets[0], "there"));
        assert!(
            !is_of_another_place(&Secret::default(), "there"),
            "of a version that kept no place"
        );
        assert_eq!(decode(&secrets).unwrap(), b"{\"serial\": 4}");
        let mut broken = secrets.clone();
        broken[0].data.as_mut().unwrap().get_mut("state").unwrap().0.pop();
        assert_eq!(decode(&broken), None);
        assert_eq!(decode(&[]), None);
    }
}
