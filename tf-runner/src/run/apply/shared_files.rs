//! Keeps the files of an apply in Secrets that all stacks of the namespace share which applied the same. See
//! [`sluice_tf_core::last_applied::shared`].

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{
    Api, DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions,
};
use serde_json::json;

use crate::run::lifecycle::api_retry::{TIDYING, patiently};
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use sluice_tf_core::bundle::{Bundle, PlanKey, Stack};
use sluice_tf_core::last_applied::shared::{self, FILES_LABEL, FilesError};
use sluice_tf_core::last_applied::{Inputs, LastAppliedError};
use sluice_tf_core::plan::store::owner;

/// How often a Secret is looked at again that another stack changes meanwhile.
const CONFLICTS: u32 = 20;

fn api(context: &Context, stack: &Stack) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &stack.namespace)
}

/// Keeps the files for this stack, sealed where there is a key; gives what tells them: their digest, and the mark of the seal.
pub(crate) async fn keep(
    context: &Context,
    stack: &Stack,
    files: &[u8],
    key: Option<&PlanKey>,
) -> Result<(String, Option<String>), RunError> {
    let api = api(context, stack);
    let form = shared::encode(files, stack, key).map_err(|_| RunError::Kept(LastAppliedError::Packing))?;
    let failed = |source| RunError::Api {
        doing: "keep the files that are applied",
        source,
    };
    let holder = hold(&api, stack, &form.owner, context).await.map_err(failed)?;
    for mut secret in form.chunks {
        secret.metadata.owner_references = Some(vec![holder.reference.clone()]);
        place(&api, &holder, &secret, context).await.map_err(failed)?;
    }
    Ok((form.digest, form.sealed_label))
}

/// The Secret that owns the files, with this stack among its owners.
struct Holder {
    /// How it owns the files.
    reference: OwnerReference,
    /// The stack was one of its owners before: what lies there was looked at then.
    is_known: bool,
}

/// Makes the holder, or becomes one of its owners.
async fn hold(
    api: &Api<Secret>,
    stack: &Stack,
    secret: &Secret,
    context: &Context,
) -> Result<Holder, kube::Error> {
    let (name, patience) = (secret.name_any(), context.settings.patience);
    let (params, mut last) = (PostParams::default(), None);
    for _ in 0..CONFLICTS {
        let Some(found) = patiently(patience, || api.get_metadata_opt(&name)).await? else {
            match patiently(patience, || api.create(&params, secret)).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                made => return made.map(|made| holder(&name, made.uid(), false)),
            }
            continue;
        };
        if is_owned_by(found.owner_references(), &stack.uid) {
            return Ok(holder(&name, found.uid(), true));
        }
        let mut owners = found.owner_references().to_vec();
        owners.push(owner(stack));
        match own(api, &name, found.resource_version(), &owners).await {
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                last = Some(kube::Error::Api(status));
            }
            owned => return owned.map(|()| holder(&name, found.uid(), false)),
        }
    }
    Err(last.unwrap_or_else(changes_all_the_time))
}

fn holder(name: &str, uid: Option<String>, is_known: bool) -> Holder {
    let reference = shared::owner_reference(name, &uid.unwrap_or_default());
    Holder { reference, is_known }
}

/// Makes a Secret with files, unless it is there. One that holds something else, or that goes with another holder, is replaced.
async fn place(
    api: &Api<Secret>,
    holder: &Holder,
    secret: &Secret,
    context: &Context,
) -> Result<(), kube::Error> {
    let (name, patience) = (secret.name_any(), context.settings.patience);
    let is_held = |owners: &[OwnerReference]| is_owned_by(owners, &holder.reference.uid);
    let (params, mut last) = (PostParams::default(), None);
    for _ in 0..CONFLICTS {
        let Some(known) = patiently(patience, || api.get_metadata_opt(&name)).await? else {
            match patiently(patience, || api.create(&params, secret)).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                made => return made.map(drop),
            }
            continue;
        };
        if holder.is_known && is_held(known.owner_references()) {
            return Ok(());
        }
        let Some(found) = patiently(patience, || api.get_opt(&name)).await? else {
            continue;
        };
        if found.data == secret.data && is_held(found.owner_references()) {
            return Ok(());
        }
        match remove(api, &name, found.resource_version()).await {
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                last = Some(kube::Error::Api(status));
            }
            removed => removed?,
        }
    }
    Err(last.unwrap_or_else(changes_all_the_time))
}

/// The files of an apply; none where it did not share them.
pub(crate) async fn load(
    context: &Context,
    bundle: &Bundle,
    (inputs, run): (&Inputs, &str),
) -> Result<Option<Vec<u8>>, RunError> {
    let Some(mark) = inputs.files_label() else {
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
            FilesError::Broken(source) => LastAppliedError::Broken { run, source },
            FilesError::Sealed(source) => LastAppliedError::Sealed { run, source },
        })
    };
    files.map(Some).map_err(failed)
}

/// This stack needs no other files any more than those with these marks. What it alone owned goes, and what that owned.
pub(crate) async fn keep_only(context: &Context, stack: &Stack, marks: &BTreeSet<String>) {
    let (api, params) = (api(context, stack), ListParams::default().labels(FILES_LABEL));
    let listed = match patiently(TIDYING, || api.list_metadata(&params)).await {
        Ok(listed) => listed.items,
        Err(error) => return stays(&error),
    };
    for secret in listed {
        let mark = secret.labels().get(FILES_LABEL);
        if mark.is_some_and(|mark| marks.contains(mark))
            || !is_owned_by(secret.owner_references(), &stack.uid)
        {
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

fn is_owned_by(owners: &[OwnerReference], uid: &str) -> bool {
    owners.iter().any(|owner| owner.uid == uid)
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
