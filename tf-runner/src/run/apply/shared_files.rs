//! Stores the files of an apply in Secrets that stacks of the namespace with equal files share. See
//! [`sluice_tf_core::last_applied::shared`].

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;
use kube::api::{
    Api, DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions,
};
use serde_json::json;
use sluice_tf_core::bundle::{Bundle, PlanKey, Stack};
use sluice_tf_core::last_applied::shared::{self, FILES_LABEL, FilesError};
use sluice_tf_core::last_applied::{Inputs, LastAppliedError};
use sluice_tf_core::plan::store::owner;

use crate::run::lifecycle::api_retry::{CLEANUP_TIMEOUT, retry};
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;

/// Attempts to change a Secret that other stacks change at the same time.
const MAX_CONFLICTS: u32 = 20;

/// Stores the files for this stack, sealed if there is a key. Returns their digest and the mark of the seal.
pub(crate) async fn store(
    context: &Context,
    stack: &Stack,
    files: &[u8],
    key: Option<&PlanKey>,
) -> Result<(String, Option<String>), RunError> {
    let api = context.api();
    let form =
        shared::encode(files, stack, key).map_err(|_| RunError::LastApplied(LastAppliedError::Packing))?;
    let failed = RunError::api("store the files of the apply");
    let holder = join_holder(&api, stack, &form.owner, context)
        .await
        .map_err(failed)?;
    for mut secret in form.chunks {
        secret.metadata.owner_references = Some(vec![holder.reference.clone()]);
        store_piece(&api, &holder, &secret, context)
            .await
            .map_err(failed)?;
    }
    Ok((form.digest, form.sealed_label))
}

/// The Secret that owns the files, with this stack among its owners.
struct Holder {
    /// The owner reference of the files.
    reference: OwnerReference,
    /// The stack was an owner before, and compared the files then.
    is_known: bool,
}

/// Creates the holder, or adds the stack to its owners.
async fn join_holder(
    api: &Api<Secret>,
    stack: &Stack,
    secret: &Secret,
    context: &Context,
) -> Result<Holder, kube::Error> {
    let name = secret.name_any();
    let (params, mut last) = (PostParams::default(), None);
    for _ in 0..MAX_CONFLICTS {
        let Some(found) = context.retry(|| api.get_metadata_opt(&name)).await? else {
            match context.retry(|| api.create(&params, secret)).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                created => return created.map(|created| holder(&name, created.uid(), false)),
            }
            continue;
        };
        if is_owned_by(found.owner_references(), &stack.uid) {
            return Ok(holder(&name, found.uid(), true));
        }
        let mut owners = found.owner_references().to_vec();
        owners.push(owner(stack));
        match set_owners(api, &name, found.resource_version(), &owners).await {
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                last = Some(kube::Error::Api(status));
            }
            written => return written.map(|()| holder(&name, found.uid(), false)),
        }
    }
    Err(last.unwrap_or_else(too_many_conflicts))
}

fn holder(name: &str, uid: Option<String>, is_known: bool) -> Holder {
    let reference = shared::owner_reference(name, &uid.unwrap_or_default());
    Holder { reference, is_known }
}

/// Creates a Secret with files unless it exists. One with other content or another holder is replaced.
async fn store_piece(
    api: &Api<Secret>,
    holder: &Holder,
    secret: &Secret,
    context: &Context,
) -> Result<(), kube::Error> {
    let name = secret.name_any();
    let has_holder = |owners: &[OwnerReference]| is_owned_by(owners, &holder.reference.uid);
    let (params, mut last) = (PostParams::default(), None);
    for _ in 0..MAX_CONFLICTS {
        let Some(metadata) = context.retry(|| api.get_metadata_opt(&name)).await? else {
            match context.retry(|| api.create(&params, secret)).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                created => return created.map(drop),
            }
            continue;
        };
        if holder.is_known && has_holder(metadata.owner_references()) {
            return Ok(());
        }
        let Some(found) = context.retry(|| api.get_opt(&name)).await? else {
            continue;
        };
        if found.data == secret.data && has_holder(found.owner_references()) {
            return Ok(());
        }
        match remove_version(api, &name, found.resource_version()).await {
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                last = Some(kube::Error::Api(status));
            }
            removed => removed?,
        }
    }
    Err(last.unwrap_or_else(too_many_conflicts))
}

/// Loads the files of an apply; `None` if it did not share them.
pub(crate) async fn load(
    context: &Context,
    bundle: &Bundle,
    inputs: &Inputs,
    run: &str,
) -> Result<Option<Vec<u8>>, RunError> {
    let Some(mark) = inputs.files_label() else {
        return Ok(None);
    };
    let (api, params) = (
        context.api(),
        ListParams::default().labels(&shared::selector(mark)),
    );
    let list = context.retry(|| api.list(&params)).await;
    let list = list.map_err(RunError::api("read the last applied files"))?;
    let files = shared::decode(&list.items, inputs, &bundle.stack, &bundle.file_keys);
    let failed = |source| {
        let run = run.to_owned();
        RunError::LastApplied(match source {
            FilesError::Broken(source) => LastAppliedError::Broken { run, source },
            FilesError::Sealed(source) => LastAppliedError::Sealed { run, source },
        })
    };
    files.map(Some).map_err(failed)
}

/// Ends the ownership of this stack of all files but those with these marks. Files without another owner are deleted.
pub(crate) async fn release_others(context: &Context, stack: &Stack, marks: &BTreeSet<String>) {
    let (api, params) = (context.api(), ListParams::default().labels(FILES_LABEL));
    let listed = match retry(CLEANUP_TIMEOUT, || api.list_metadata(&params)).await {
        Ok(listed) => listed.items,
        Err(error) => return log_failure(&error),
    };
    for secret in listed {
        let mark = secret.labels().get(FILES_LABEL);
        if mark.is_some_and(|mark| marks.contains(mark))
            || !is_owned_by(secret.owner_references(), &stack.uid)
        {
            continue;
        }
        if let Err(error) = release(&api, stack, secret).await {
            log_failure(&error);
        }
    }
}

/// Ends the ownership of this stack, and deletes the Secret if no other stack owns it. Requests name the resourceVersion, because
/// other stacks join and leave at the same time.
async fn release(
    api: &Api<Secret>,
    stack: &Stack,
    mut secret: PartialObjectMeta<Secret>,
) -> Result<(), kube::Error> {
    let name = secret.name_any();
    let mut last = None;
    for _ in 0..MAX_CONFLICTS {
        let (owners, version) = (secret.owner_references(), secret.resource_version());
        let others = owners.iter().filter(|owner| owner.uid != stack.uid);
        let others: Vec<_> = others.cloned().collect();
        let changed = if others.len() == owners.len() {
            Ok(())
        } else if others.is_empty() {
            remove_version(api, &name, version).await
        } else {
            set_owners(api, &name, version, &others).await
        };
        match changed {
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => last = Some(kube::Error::Api(status)),
            changed => return changed,
        }
        match retry(CLEANUP_TIMEOUT, || api.get_metadata_opt(&name)).await? {
            Some(found) => secret = found,
            None => return Ok(()),
        }
    }
    Err(last.unwrap_or_else(too_many_conflicts))
}

fn too_many_conflicts() -> kube::Error {
    kube::Error::Service("too many conflicts with other stacks".into())
}

fn log_failure(error: &kube::Error) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "files of an earlier apply cannot be released"
    );
}

fn is_owned_by(owners: &[OwnerReference], uid: &str) -> bool {
    owners.iter().any(|owner| owner.uid == uid)
}

/// Writes the owners, if the version is current.
async fn set_owners(
    api: &Api<Secret>,
    name: &str,
    version: Option<String>,
    owners: &[OwnerReference],
) -> Result<(), kube::Error> {
    let body = Patch::Merge(json!({ "metadata": { "resourceVersion": version, "ownerReferences": owners } }));
    let params = PatchParams::default();
    retry(CLEANUP_TIMEOUT, || api.patch_metadata(name, &params, &body))
        .await
        .map(drop)
}

/// Deletes the Secret, if the version is current.
async fn remove_version(api: &Api<Secret>, name: &str, version: Option<String>) -> Result<(), kube::Error> {
    let preconditions = Preconditions {
        resource_version: version,
        uid: None,
    };
    let params = DeleteParams::default().preconditions(preconditions);
    retry(CLEANUP_TIMEOUT, || api.delete(name, &params))
        .await
        .map(drop)
}
