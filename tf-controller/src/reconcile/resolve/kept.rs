//! What was applied last in place of inputs that are gone, so that a deletion can still destroy. The runner keeps it
//! (`sluice_tf_runner::applied`); here it becomes the inputs of a run.

use super::{Context, ResolveError, Resolved, held, plan_keys, tool};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PartialObjectMeta},
};
use sluice_api::{run::TerraformRun, source::Artifact, terraform::Terraform};
use sluice_tf_runner::{
    applied::{self, AppliedError},
    bundle::{Kept, PlanKey, Stack},
};
use std::collections::BTreeSet;

/// The digest that a run of this stack recorded of what it applied; nothing where it recorded none.
fn recorded<'r>(runs: &'r [TerraformRun], name: &str) -> Option<&'r str> {
    let run = runs
        .iter()
        .find(|run| run.metadata.name.as_deref() == Some(name))?;
    let digest = run.status.as_ref()?.applied_digest.as_str();
    Some(digest).filter(|digest| !digest.is_empty())
}

/// What is kept of the newest apply, as the stack's `runs` recorded it; where several are kept, because the newest did not end well, each attempt takes the
/// next. `Ok(None)`: nothing is kept. `artifact` stands in for files that were too large to be kept.
pub(in crate::reconcile) async fn resolve(
    stack: &Terraform,
    ended: &[TerraformRun],
    attempt: u32,
    artifact: Option<&Artifact>,
    context: &Context,
) -> Result<Option<Resolved>, ResolveError> {
    let failed = |text: String| ResolveError::Kept { text };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    let params = ListParams::default().labels(&applied::selector_of(&stack.name_any()));
    let listed = api.list_metadata(&params).await;
    let listed = listed.map_err(|error| failed(held::words(&error)))?.items;
    let mut runs = applied::runs(&listed, &stack.uid().unwrap_or_default());
    if runs.is_empty() {
        return Ok(None);
    }
    // Who may write Secrets may write more of them, under the names of runs that never were.
    if runs.iter().any(|run| recorded(ended, run).is_some()) {
        runs.retain(|run| recorded(ended, run).is_some());
    }
    let of = Stack {
        namespace: stack.namespace().unwrap_or_default(),
        name: stack.name_any(),
        uid: stack.uid().unwrap_or_default(),
    };
    let keys = plan_keys::read(stack, context).await?;
    let turn = usize::try_from(attempt.saturating_sub(1)).unwrap_or(0) % runs.len();
    runs.rotate_left(turn);
    let mut failure = None;
    for run in runs {
        let digest = recorded(ended, &run).unwrap_or_default();
        let secrets = read(&api, &listed, &run).await;
        let secrets = secrets.map_err(|error| failed(held::words(&error)))?;
        let proved = applied::prove(&secrets, &run, digest);
        let found = proved.and_then(|()| resolved(&secrets, (&of, &run), (&keys.plans, digest), artifact));
        match found {
            Ok(mut resolved) => {
                keys.give(&mut resolved.bundle);
                // What the spec says now, where that is installed; the version of then may be gone.
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

/// The Secrets of one run, out of what is listed.
async fn read(
    api: &Api<Secret>,
    listed: &[PartialObjectMeta<Secret>],
    run: &str,
) -> Result<Vec<Secret>, kube::Error> {
    let mut secrets = Vec::new();
    for known in listed.iter().filter(|known| applied::run_of(*known) == run) {
        secrets.extend(api.get_opt(&known.name_any()).await?);
    }
    Ok(secrets)
}

fn resolved(
    secrets: &[Secret],
    (stack, run): (&Stack, &str),
    (keys, digest): (&[PlanKey], &str),
    artifact: Option<&Artifact>,
) -> Result<Resolved, AppliedError> {
    let applied = applied::decode(secrets, stack, run, keys)?;
    let mut bundle = applied.inputs.bundle;
    // The lock file that is kept says which providers; newer ones may know nothing of this state.
    bundle.options.upgrade_on_init = false;
    if applied.files.is_some() || applied.inputs.shared_files.is_some() {
        bundle.kept = Some(Kept {
            run: run.to_owned(),
            digest: digest.to_owned(),
        });
    } else {
        let omitted = || AppliedError::FilesOmitted { run: run.to_owned() };
        bundle.artifact = super::artifact_of(artifact.ok_or_else(omitted)?);
    }
    let (source, inputs) = (&bundle.artifact, bundle.inputs_digest.clone());
    Ok(Resolved {
        // The values that are not shown are kept in the bundle: their Secrets may be gone.
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
