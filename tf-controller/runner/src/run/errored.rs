//! State that the CLI could not write: kept in Secrets that the Terraform owns, pushed by the next run before it plans.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use sha2::{Digest as _, Sha256};

use super::context::Context;
use super::error::{RunError, Step};
use super::patience::patiently;
use super::prepare::write_private;
use super::workdir::failed;
use super::workspace::Workspace;
use crate::bundle::{Bundle, Stack};
use crate::chunk;
use crate::cli::argv;
use crate::plan::store::{owner, short_label};

/// The CLI's own file name.
pub(super) const FILE: &str = "errored.tfstate";
/// Label: which stack's.
const LABEL: &str = "infra.sluice.dev/errored-state";
const WORKSPACE: &str = "infra.sluice.dev/errored-state-workspace";
const INDEX: &str = "infra.sluice.dev/chunk";
const COUNT: &str = "infra.sluice.dev/chunks";
const DIGEST: &str = "infra.sluice.dev/digest";
/// Largest state that is kept.
const LIMIT: u64 = 256 * 1024 * 1024;

fn api(context: &Context, stack: &Stack) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &stack.namespace)
}

fn encode(state: &[u8], stack: &Stack, workspace: &str) -> std::io::Result<Vec<Secret>> {
    let packed = chunk::compress(state)?;
    let digest = hex::encode(Sha256::digest(&packed));
    let pieces = chunk::pack(&[("state", &packed)]);
    let count = pieces.len().to_string();
    let secret = |(index, data): (usize, BTreeMap<String, ByteString>)| Secret {
        metadata: ObjectMeta {
            name: Some(format!(
                "tferrored-{workspace}-{}-{}-{index}",
                stack.name,
                &digest[..10]
            )),
            namespace: Some(stack.namespace.clone()),
            labels: Some(BTreeMap::from([
                (LABEL.to_owned(), short_label(&stack.name)),
                (WORKSPACE.to_owned(), short_label(workspace)),
            ])),
            annotations: Some(BTreeMap::from([
                (INDEX.to_owned(), index.to_string()),
                (COUNT.to_owned(), count.clone()),
                (DIGEST.to_owned(), digest.clone()),
            ])),
            owner_references: Some(vec![owner(stack)]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        data: Some(data),
        ..Secret::default()
    };
    Ok(pieces.into_iter().enumerate().map(secret).collect())
}

/// The state out of its chunks; chunks of a write that did not finish are no state.
fn decode(secrets: &[Secret]) -> Option<Vec<u8>> {
    let held = |secret: &Secret, key: &str| {
        secret
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(key))
            .cloned()
            .unwrap_or_default()
    };
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

/// Keeps the state that the CLI left in the module directory, if it did. `Ok(true)` when there was one.
pub(super) async fn keep(
    context: &Context,
    stack: &Stack,
    workspace: &str,
    module: &Path,
) -> Result<bool, RunError> {
    let state = match std::fs::read(module.join(FILE)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        read => read.map_err(|source| failed("read errored.tfstate", source))?,
    };
    let secrets =
        encode(&state, stack, workspace).map_err(|source| failed("pack errored.tfstate", source))?;
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

/// Removes a file of that name that came with the artifact: it is not the CLI's, and must never be pushed.
pub(super) fn disown(module: &Path) -> Result<(), RunError> {
    match std::fs::remove_file(module.join(FILE)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
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
        short_label(&bundle.workspace)
    );
    let params = ListParams::default().labels(&selector);
    let kept = patiently(context.settings.patience, || api.list(&params)).await;
    let kept = kept
        .map_err(|source| RunError::Api {
            doing: "look for a kept state",
            source,
        })?
        .items;
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
        let secrets = encode(b"{\"serial\": 4}", &stack, "default").unwrap();
        assert_eq!(decode(&secrets).unwrap(), b"{\"serial\": 4}");
        let mut broken = secrets.clone();
        broken[0].data.as_mut().unwrap().get_mut("state").unwrap().0.pop();
        assert_eq!(decode(&broken), None);
        assert_eq!(decode(&[]), None);
    }
}
