//! The last applied record: the inputs of an apply, for a destroy without the source. See [`sluice_tf_core::last_applied`].
//!
//! The record is stored before the apply begins, and those of earlier applies are deleted after it has succeeded: at any time the
//! newest apply that may have created resources can be destroyed.

use std::collections::BTreeSet;
use std::fs::File;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{ListParams, PartialObjectMeta};
use sluice_runtime::artifact;
use sluice_tf_core::bundle::{Bundle, LastAppliedRef, Stack};
use sluice_tf_core::last_applied::{self, Inputs, LastApplied, LastAppliedError, files};
use tokio_util::sync::CancellationToken;

use crate::run::apply::shared_files;
use crate::run::lifecycle::api_retry::{CLEANUP_TIMEOUT, RetryRule, remove, retry};
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;
use crate::run::lifecycle::stop::read_until;
use crate::run::workdir::prepare::{ARCHIVE, module_directory};
use crate::run::workdir::{WorkDirectory, dependency_lock, directory_error};

/// Stores the inputs of the apply that is about to begin. The oldest record stays too: it belongs to the last successful apply.
pub(crate) async fn store(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession {
        context,
        run,
        bundle,
        cli,
    } = session;
    let Some(limit) = bundle.files_limit else {
        return Ok(());
    };
    let mut files = select_files(session, limit).await?;
    if files.is_none() {
        tracing::warn!(
            limit,
            "the files are too large to be stored: a destroy requires the source"
        );
    }
    let files_omitted = files.is_none();
    // An older controller sends no keys that the stacks of the namespace share.
    let may_share = bundle.plan_keys.is_empty() || !bundle.file_keys.is_empty();
    let (mut shared_files, mut sealed_label) = (None, None);
    if let Some(files) = files.take_if(|_| may_share) {
        let key = bundle.file_keys.first();
        let (digest, mark) = shared_files::store(context, &bundle.stack, &files, key).await?;
        (shared_files, sealed_label) = (Some(digest), mark);
    }
    let record = LastApplied {
        inputs: Inputs {
            bundle: bundle.without_seal_keys(),
            provider_lock: dependency_lock::read(&cli.module)?,
            files_omitted,
            shared_files,
            sealed_label,
        },
        files,
    };
    let run = run.name_any();
    let secrets =
        last_applied::encode(&record, &run, bundle.plan_keys.first()).map_err(RunError::LastApplied)?;
    // Written together with the start of the apply.
    let digest = last_applied::digest_of(&secrets);
    cli.status.buffer(|status| status.applied_digest = digest);
    for secret in secrets {
        let created = context.create_if_absent(&secret, RetryRule::Transient).await;
        created.map_err(RunError::api("store the last applied record"))?;
    }
    if bundle.nothing_stored {
        return Ok(());
    }
    let stored = list(context, &bundle.stack).await;
    let oldest = last_applied::runs(&stored, &bundle.stack.uid).pop();
    delete_unless(context, &bundle.stack, &stored, |of| {
        of == run || Some(of) == oldest.as_deref()
    })
    .await;
    Ok(())
}

/// Deletes the records of other runs after a successful apply, and that of this run too if a deletion destroys nothing.
pub(crate) async fn delete_others(session: &RunSession<'_>) {
    let RunSession {
        context, run, bundle, ..
    } = session;
    if bundle.nothing_stored {
        return;
    }
    let (stored, run) = (list(context, &bundle.stack).await, run.name_any());
    if !stored.is_empty() {
        delete_unless(context, &bundle.stack, &stored, |of| {
            bundle.files_limit.is_some() && of == run
        })
        .await;
    }
}

/// Unpacks the files of the record into the empty working directory, in place of the artifact.
pub(crate) async fn unpack(
    context: &Context,
    bundle: &Bundle,
    record: &LastAppliedRef,
    directory: &WorkDirectory,
    stop: &CancellationToken,
) -> Result<(), RunError> {
    let reads = async {
        let secrets = read_secrets(context, bundle, &record.run).await;
        secrets.map_err(RunError::api("read the last applied record"))
    };
    let secrets = read_until(stop, reads).await?;
    let applied = last_applied::verify(&secrets, &record.run, &record.digest)
        .and_then(|()| last_applied::decode(&secrets, &bundle.stack, &record.run, &bundle.plan_keys));
    let applied = applied.map_err(RunError::LastApplied)?;
    let omitted = || {
        RunError::LastApplied(LastAppliedError::FilesOmitted {
            run: record.run.clone(),
        })
    };
    let files = if let Some(files) = applied.files {
        Some(files)
    } else {
        let reads = shared_files::load(context, bundle, &applied.inputs, &record.run);
        read_until(stop, reads).await?
    };
    let files = files.ok_or_else(omitted)?;
    let (root, stop) = (directory.root.clone(), stop.clone());
    let unpacked = tokio::task::spawn_blocking(move || {
        artifact::unpack(&files[..], &root, &artifact::Limits::default(), &stop)
    });
    unpacked
        .await
        .map_err(|error| directory_error("unpack the last applied files", std::io::Error::other(error)))??;
    let Some(lock) = applied.inputs.provider_lock else {
        return Ok(());
    };
    let module = module_directory(&directory.root, &bundle.path)?;
    dependency_lock::write(&module, &lock)
}

/// Reads the Secrets of the record of one run.
async fn read_secrets(context: &Context, bundle: &Bundle, run: &str) -> Result<Vec<Secret>, kube::Error> {
    let api = context.api::<Secret>();
    let params = ListParams::default().labels(&last_applied::selector(&bundle.stack.name));
    let listed = context.retry(|| api.list_metadata(&params)).await?;
    let mut secrets = Vec::new();
    for found in listed.iter().filter(|found| last_applied::run_of(*found) == run) {
        let name = found.name_any();
        secrets.extend(context.retry(|| api.get_opt(&name)).await?);
    }
    Ok(secrets)
}

/// The files that the stack reads, from the artifact as it was fetched, without files that the CLI or the run created.
async fn select_files(session: &RunSession<'_>, limit: u64) -> Result<Option<Vec<u8>>, RunError> {
    let RunSession { bundle, cli, .. } = session;
    let archive = cli.directory.scratch.path().join(ARCHIVE);
    let reads = bundle.closure.clone();
    let work = tokio::task::spawn_blocking(move || files::select(File::open(archive)?, &reads, limit));
    work.await
        .map_err(std::io::Error::other)
        .and_then(|selected| selected)
        .map_err(|source| directory_error("select the files of the apply", source))
}

/// Lists the records for a cleanup; none if they cannot be read.
async fn list(context: &Context, stack: &Stack) -> Vec<PartialObjectMeta<Secret>> {
    let params = ListParams::default().labels(&last_applied::selector(&stack.name));
    let api = context.api();
    match retry(CLEANUP_TIMEOUT, || api.list_metadata(&params)).await {
        Ok(list) => list.items,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "an earlier last applied record cannot be deleted"
            );
            Vec::new()
        }
    }
}

/// Deletes records and the shared files that no remaining record needs.
async fn delete_unless(
    context: &Context,
    stack: &Stack,
    stored: &[PartialObjectMeta<Secret>],
    is_needed: impl Fn(&str) -> bool,
) {
    let (api, mut files) = (context.api::<Secret>(), BTreeSet::new());
    let mut has_deleted = false;
    for secret in stored {
        if is_needed(last_applied::run_of(secret)) {
            files.extend(last_applied::files_label_of(secret).map(str::to_owned));
            continue;
        }
        has_deleted = true;
        let name = secret.name_any();
        if let Err(error) = remove(&api, &name).await {
            tracing::warn!(
                name,
                error = &error as &dyn std::error::Error,
                "an earlier last applied record cannot be deleted"
            );
            files.extend(last_applied::files_label_of(secret).map(str::to_owned));
        }
    }
    if has_deleted {
        shared_files::release_others(context, stack, &files).await;
    }
}
