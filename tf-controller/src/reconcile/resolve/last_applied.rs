//! Replaces missing inputs by the last applied record, so that a deletion can still destroy. The runner stores the
//! record (`sluice_tf_core::last_applied`); here it becomes the inputs of a run.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt};
use sluice_api::run::TerraformRun;
use sluice_api::source::Artifact;
use sluice_api::terraform::Terraform;
use sluice_tf_core::bundle::{LastAppliedRef, PlanKey, Stack};
use sluice_tf_core::last_applied::{self, LastAppliedError};

use super::super::history::find_run;
use super::bundle::{artifact_of, identity};
use super::{Context, ResolveError, Resolved, api_message, keys, tool};

/// Returns the digest that this run recorded of its last applied record, if any.
fn recorded<'r>(runs: &'r [TerraformRun], name: &str) -> Option<&'r str> {
    let digest = find_run(runs, name)?.status.as_ref()?.applied_digest.as_str();
    Some(digest).filter(|digest| !digest.is_empty())
}

/// Resolves the inputs from the newest last applied record that the stack's runs recorded. If several exist, because
/// the newest did not end well, each attempt takes the next. `Ok(None)`: there is no record. `artifact` replaces
/// files that were too large to store.
pub(in crate::reconcile) async fn resolve(
    stack: &Terraform,
    ended: &[TerraformRun],
    attempt: u32,
    artifact: Option<&Artifact>,
    context: &Context,
) -> Result<Option<Resolved>, ResolveError> {
    let failed = |text: String| ResolveError::LastApplied { text };
    let api: Api<Secret> = context.api_of(stack);
    let params = ListParams::default().labels(&last_applied::selector(&stack.name_any()));
    let listed = api.list_metadata(&params).await;
    let listed = listed.map_err(|error| failed(api_message(&error)))?.items;
    let mut runs = last_applied::runs(&listed, &stack.uid().unwrap_or_default());
    if runs.is_empty() {
        return Ok(None);
    }
    // A user who can write Secrets can write more of them, under the names of runs that never existed.
    if runs.iter().any(|run| recorded(ended, run).is_some()) {
        runs.retain(|run| recorded(ended, run).is_some());
    }
    let identity = identity(stack);
    let keys = keys::seal_keys(stack, context).await?;
    let offset = usize::try_from(attempt.saturating_sub(1)).unwrap_or(0) % runs.len();
    runs.rotate_left(offset);
    let mut failure = None;
    for run in runs {
        let digest = recorded(ended, &run).unwrap_or_default();
        let secrets = read(&api, &listed, &run).await;
        let secrets = secrets.map_err(|error| failed(api_message(&error)))?;
        let proved = last_applied::verify(&secrets, &run, digest);
        let found =
            proved.and_then(|()| resolved(&secrets, (&identity, &run), (&keys.plans, digest), artifact));
        match found {
            Ok(mut resolved) => {
                resolved.bundle.state_copies = context.state_copies.clone();
                keys.add_to(&mut resolved.bundle);
                // The version of the spec, if it is installed; the recorded one may be gone.
                if let Ok(Some(selected)) = tool::selected(stack, context).await {
                    resolved.bundle.selected_tool = Some(selected);
                }
                return Ok(Some(resolved));
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failed(failure.map(|error| error.to_string()).unwrap_or_default()))
}

/// Reads the listed Secrets of one run.
async fn read(
    api: &Api<Secret>,
    listed: &[PartialObjectMeta<Secret>],
    run: &str,
) -> Result<Vec<Secret>, kube::Error> {
    let mut secrets = Vec::new();
    for known in listed.iter().filter(|known| last_applied::run_of(*known) == run) {
        secrets.extend(api.get_opt(&known.name_any()).await?);
    }
    Ok(secrets)
}

fn resolved(
    secrets: &[Secret],
    (stack, run): (&Stack, &str),
    (keys, digest): (&[PlanKey], &str),
    artifact: Option<&Artifact>,
) -> Result<Resolved, LastAppliedError> {
    let applied = last_applied::decode(secrets, stack, run, keys)?;
    let mut bundle = applied.inputs.bundle;
    // The stored dependency lock file selects the providers; newer ones may not know this state.
    bundle.options.upgrade_on_init = false;
    if applied.files.is_some() || applied.inputs.shared_files.is_some() {
        bundle.last_applied = Some(LastAppliedRef {
            run: run.to_owned(),
            digest: digest.to_owned(),
        });
    } else {
        let omitted = || LastAppliedError::FilesOmitted { run: run.to_owned() };
        bundle.artifact = artifact_of(artifact.ok_or_else(omitted)?);
    }
    let (source, inputs) = (&bundle.artifact, bundle.inputs_digest.clone());
    Ok(Resolved {
        // The bundle stores the sensitive values: their Secrets may be gone.
        secrets: BTreeSet::new(),
        artifact: Artifact {
            digest: source.digest.clone(),
            url: source.url.clone(),
            revision: source.revision.clone(),
            size: source.size.and_then(|size| i64::try_from(size).ok()),
            path: String::new(),
            metadata: None,
            last_update_time: Time(Timestamp::UNIX_EPOCH),
        },
        inputs,
        bundle,
    })
}
