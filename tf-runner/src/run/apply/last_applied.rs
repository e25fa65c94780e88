//! What is applied is kept before the apply begins, and what was applied before it is let go when it has ended well: at any
//! moment the newest apply that may have made something can be destroyed without its source. See [`sluice_tf_core::last_applied`].

use std::collections::BTreeSet;
use std::fs::File;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, PartialObjectMeta, PostParams};
use sluice_api::run::TerraformRun;
use sluice_runtime::artifact;
use tokio_util::sync::CancellationToken;

use crate::run::apply::shared_files;
use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::api_retry::{TIDYING, patiently, remove};
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::workdir::lock_file;
use crate::run::workdir::prepare::{ARCHIVE, module_directory};
use crate::run::workdir::{WorkDirectory, failed};
use sluice_tf_core::bundle::{Bundle, LastAppliedRef, Stack};
use sluice_tf_core::last_applied::{self, Inputs, LastApplied, LastAppliedError, files};

fn api(context: &Context, stack: &Stack) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &stack.namespace)
}

/// Keeps what is about to be applied. Beside it stays the oldest that is there: what the last good apply was made of.
pub(crate) async fn keep(
    context: &Context,
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
) -> Result<(), RunError> {
    let Some(limit) = bundle.files_limit else {
        return Ok(());
    };
    let mut files = files_of(bundle, workspace, limit).await?;
    if files.is_none() {
        tracing::warn!(
            limit,
            "the files are too large to be kept: a destroy will need the source"
        );
    }
    let files_omitted = files.is_none();
    // A controller of before gives no key that others of the namespace have too.
    let may_share = bundle.plan_keys.is_empty() || !bundle.file_keys.is_empty();
    let (mut shared_files, mut sealed_label) = (None, None);
    if let Some(files) = files.take_if(|_| may_share) {
        let key = bundle.file_keys.first();
        let (digest, mark) = shared_files::keep(context, &bundle.stack, &files, key).await?;
        (shared_files, sealed_label) = (Some(digest), mark);
    }
    let applied = LastApplied {
        inputs: Inputs {
            bundle: bundle.without_seal_keys(),
            provider_lock: lock_file::read(&workspace.module)?,
            files_omitted,
            shared_files,
            sealed_label,
        },
        files,
    };
    let run = run.name_any();
    let api = api(context, &bundle.stack);
    let params = PostParams::default();
    let secrets = last_applied::encode(&applied, &run, bundle.plan_keys.first()).map_err(RunError::Kept)?;
    // Written before the apply begins, with the word that it does.
    let digest = last_applied::digest_of(&secrets);
    workspace.reporter.note(|status| status.applied_digest = digest);
    for secret in secrets {
        match patiently(context.settings.patience, || api.create(&params, &secret)).await {
            // Its name comes from its content: one that is there is right, or nothing is taken from it.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.map_err(|source| RunError::Api {
                doing: "keep what is applied",
                source,
            })?),
        }
    }
    if bundle.nothing_stored {
        return Ok(());
    }
    let held = listed(context, &bundle.stack).await;
    let oldest = last_applied::runs(&held, &bundle.stack.uid).pop();
    sweep(context, &bundle.stack, &held, |of| {
        of == run || Some(of) == oldest.as_deref()
    })
    .await;
    Ok(())
}

/// After an apply that ended well only what it was made of is kept, and nothing where a deletion destroys nothing.
pub(crate) async fn settle(context: &Context, bundle: &Bundle, run: &TerraformRun) {
    if bundle.nothing_stored {
        return;
    }
    let (held, run) = (listed(context, &bundle.stack).await, run.name_any());
    if !held.is_empty() {
        sweep(context, &bundle.stack, &held, |of| {
            bundle.files_limit.is_some() && of == run
        })
        .await;
    }
}

/// Puts what is kept of an earlier apply into the emptied working directory, in the artifact's place.
pub(crate) async fn unpack(
    context: &Context,
    bundle: &Bundle,
    kept: &LastAppliedRef,
    directory: &WorkDirectory,
    stop: &CancellationToken,
) -> Result<(), RunError> {
    let secrets = read(context, bundle, &kept.run).await;
    let secrets = secrets.map_err(|source| RunError::Api {
        doing: "read what was applied last",
        source,
    })?;
    let applied = last_applied::verify(&secrets, &kept.run, &kept.digest)
        .and_then(|()| last_applied::decode(&secrets, &bundle.stack, &kept.run, &bundle.plan_keys));
    let applied = applied.map_err(RunError::Kept)?;
    let omitted = || {
        RunError::Kept(LastAppliedError::FilesOmitted {
            run: kept.run.clone(),
        })
    };
    let files = match applied.files {
        Some(files) => Some(files),
        None => shared_files::load(context, bundle, (&applied.inputs, &kept.run)).await?,
    };
    let files = files.ok_or_else(omitted)?;
    let (root, stop) = (directory.root.clone(), stop.clone());
    let unpacked = tokio::task::spawn_blocking(move || {
        artifact::unpack(&files[..], &root, &artifact::Limits::default(), &stop)
    });
    unpacked
        .await
        .map_err(|error| failed("unpack what was applied last", std::io::Error::other(error)))??;
    let Some(lock) = applied.inputs.provider_lock else {
        return Ok(());
    };
    let module = module_directory(&directory.root, &bundle.path)?;
    lock_file::write(&module, &lock)
}

/// The Secrets of one run, of all that are kept of the stack.
async fn read(context: &Context, bundle: &Bundle, run: &str) -> Result<Vec<Secret>, kube::Error> {
    let (api, patience) = (api(context, &bundle.stack), context.settings.patience);
    let params = ListParams::default().labels(&last_applied::selector(&bundle.stack.name));
    let listed = patiently(patience, || api.list_metadata(&params)).await?;
    let mut secrets = Vec::new();
    for known in listed.iter().filter(|known| last_applied::run_of(*known) == run) {
        let name = known.name_any();
        secrets.extend(patiently(patience, || api.get_opt(&name)).await?);
    }
    Ok(secrets)
}

/// The files that the stack reads, out of the artifact as it was fetched: what the CLI and the run made does not count.
async fn files_of(
    bundle: &Bundle,
    workspace: &Workspace<'_>,
    limit: u64,
) -> Result<Option<Vec<u8>>, RunError> {
    let archive = workspace.directory.scratch.path().join(ARCHIVE);
    let reads = bundle.closure.clone();
    let work = tokio::task::spawn_blocking(move || files::select(File::open(archive)?, &reads, limit));
    work.await
        .map_err(std::io::Error::other)
        .and_then(|selected| selected)
        .map_err(|source| failed("keep the files that are applied", source))
}

/// What is kept; nothing when it cannot be read, since only superfluous Secrets are looked for.
async fn listed(context: &Context, stack: &Stack) -> Vec<PartialObjectMeta<Secret>> {
    let params = ListParams::default().labels(&last_applied::selector(&stack.name));
    let api = api(context, stack);
    match patiently(TIDYING, || api.list_metadata(&params)).await {
        Ok(list) => list.items,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what was applied before stays for now"
            );
            Vec::new()
        }
    }
}

/// Removes what is kept of other runs, and the files that none of the rest needs.
async fn sweep(
    context: &Context,
    stack: &Stack,
    held: &[PartialObjectMeta<Secret>],
    keep: impl Fn(&str) -> bool,
) {
    let (api, mut files) = (api(context, stack), BTreeSet::new());
    let mut has_gone = false;
    for secret in held {
        if keep(last_applied::run_of(secret)) {
            files.extend(last_applied::files_label_of(secret).map(str::to_owned));
            continue;
        }
        has_gone = true;
        let name = secret.name_any();
        if let Err(error) = remove(&api, &name).await {
            tracing::warn!(
                name,
                error = &error as &dyn std::error::Error,
                "what was applied before stays for now"
            );
            files.extend(last_applied::files_label_of(secret).map(str::to_owned));
        }
    }
    if has_gone {
        shared_files::keep_only(context, stack, &files).await;
    }
}
