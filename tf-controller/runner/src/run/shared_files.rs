//! Keeps the files of an apply in Secrets that all stacks of the namespace share which applied the same. See
//! [`crate::applied::shared`].

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{
    Api, DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions,
};
use serde_json::json;

use super::context::Context;
use super::error::RunError;
use super::patience::{TIDYING, patiently};
use crate::applied::shared::{self, FILES_LABEL, FilesError};
use crate::applied::{AppliedError, Inputs};
use crate::bundle::{Bundle, PlanKey, Stack};
use crate::plan::store::owner;

/// How often a Secret is looked at again that another stack changes meanwhile.
const CONFLICTS: u32 = 20;

fn api(context: &Context, stack: &Stack) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &stack.namespace)
}

/// Keeps the files for this stack, sealed where there is a key; gives what tells them: their digest, and the mark of the seal.
pub(super) async fn keep(
    context: &Context,
    stack: &Stack,
    files: &[u8],
    key: Option<&PlanKey>,
) -> Result<(String, Option<String>), RunError> {
    let api = api(context, stack);
    let form = shared::encode(files, stack, key).map_err(|_| RunError::Kept(AppliedError::Packing))?;
    for secret in form.secrets {
        let kept = one(&api, stack, &secret, context).await;
        kept.map_err(|source| RunError::Api {
            doing: "keep the files that are applied",
            source,
        })?;
    }
    Ok((form.digest, form.sealed_mark))
}

/// Makes the Secret, or becomes one of its owners. One that holds something else is replaced.
async fn one(
    api: &Api<Secret>,
    stack: &Stack,
    secret: &Secret,
    context: &Context,
) -> Result<(), kube::Error> {
    let (name, patience) = (secret.name_any(), context.settings.patience);
    let params = PostParams::default();
    let mut last = None;
    for _ in 0..CONFLICTS {
        match patiently(patience, || api.create(&params, secret)).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => return created.map(drop),
        }
        let Some(known) = patiently(patience, || api.get_metadata_opt(&name)).await? else {
            continue;
        };
        if is_owned_by(known.owner_references(), stack) {
            return Ok(());
        }
        let Some(found) = patiently(patience, || api.get_opt(&name)).await? else {
            continue;
        };
        let changed = if found.data == secret.data {
            let mut owners = found.owner_references().to_vec();
            owners.push(owner(stack));
            own(api, &name, found.resource_version(), &owners).await
        } else {
            remove(api, &name, found.resource_version()).await
        };
        match changed {
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                last = Some(kube::Error::Api(status));
            }
            Err(error) => return Err(error),
            Ok(()) if found.data == secret.data => return Ok(()),
            Ok(()) => {}
        }
    }
    Err(last.unwrap_or_else(changes_all_the_time))
}

/// The files of an apply; none where it did not share them.
pub(super) async fn load(
    context: &Context,
    bundle: &Bundle,
    (inputs, run): (&Inputs, &str),
) -> Result<Option<Vec<u8>>, RunError> {
    let Some(mark) = inputs.files_mark() else {
        return Ok(None);
    };
    let (api, params) = (
        api(context, &bundle.stack),
        ListParams::default().labels(&shared::selector(mark)),
    );
    let list = patiently(context.settings.patience, || api.list(&params)).await;
    let list = list.map_err(|source| RunError::Api {
        doing: "read the files that were applied last",
        source,
    })?;
    let files = shared::decode(&list.items, inputs, &bundle.stack, &bundle.file_keys);
    let failed = |source| {
        let run = run.to_owned();
        RunError::Kept(match source {
            FilesError::Broken(source) => AppliedError::Broken { run, source },
            FilesError::Sealed(source) => AppliedError::Sealed { run, source },
        })
    };
    files.map(Some).map_err(failed)
}

/// This stack needs no other files any more than those with these marks. What it alone owned goes.
pub(super) async fn keep_only(context: &Context, stack: &Stack, marks: &BTreeSet<String>) {
    let (api, params) = (api(context, stack), ListParams::default().labels(FILES_LABEL));
    let listed = match patiently(TIDYING, || api.list_metadata(&params)).await {
        Ok(listed) => listed.items,
        Err(error) => return stays(&error),
    };
    for secret in listed {
        let mark = secret.labels().get(FILES_LABEL);
        if mark.is_some_and(|mark| marks.contains(mark)) || !is_owned_by(secret.owner_references(), stack) {
            continue;
        }
        if let Err(error) = release(&api, stack, secret).await {
            stays(&error);
        }
    }
}

/// Ends the ownership of this stack, and deletes the Secret where no other stack owns it. The version is part of the request:
/// other stacks become owners and end their ownership at the same time.
async fn release(
    api: &Api<Secret>,
    stack: &Stack,
    mut secret: PartialObjectMeta<Secret>,
) -> Result<(), kube::Error> {
    let name = secret.name_any();
    let mut last = None;
    for _ in 0..CONFLICTS {
        let (owners, version) = (secret.owner_references(), secret.resource_version());
        let others = owners.iter().filter(|owner| owner.uid != stack.uid);
        let others: Vec<_> = others.cloned().collect();
        let changed = if others.len() == owners.len() {
            Ok(())
        } else if others.is_empty() {
            remove(api, &name, version).await
        } else {
            own(api, &name, version, &others).await
        };
        match changed {
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => last = Some(kube::Error::Api(status)),
            changed => return changed,
        }
        match patiently(TIDYING, || api.get_metadata_opt(&name)).await? {
            Some(found) => secret = found,
            None => return Ok(()),
        }
    }
    Err(last.unwrap_or_else(changes_all_the_time))
}

fn changes_all_the_time() -> kube::Error {
    kube::Error::Service("the Secret changes all the time".into())
}

fn stays(error: &kube::Error) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "files that were applied before stay for now"
    );
}

fn is_owned_by(owners: &[OwnerReference], stack: &Stack) -> bool {
    owners.iter().any(|owner| owner.uid == stack.uid)
}

/// Writes the owners of this version.
async fn own(
    api: &Api<Secret>,
    name: &str,
    version: Option<String>,
    owners: &[OwnerReference],
) -> Result<(), kube::Error> {
    let body = Patch::Merge(json!({ "metadata": { "resourceVersion": version, "ownerReferences": owners } }));
    let params = PatchParams::default();
    patiently(TIDYING, || api.patch_metadata(name, &params, &body))
        .await
        .map(drop)
}

/// Deletes this version.
async fn remove(api: &Api<Secret>, name: &str, version: Option<String>) -> Result<(), kube::Error> {
    let preconditions = Preconditions {
        resource_version: version,
        uid: None,
    };
    let params = DeleteParams::default().preconditions(preconditions);
    patiently(TIDYING, || api.delete(name, &params)).await.map(drop)
}
