//! Looks: the source and the runs of a stack, read fresh, because decisions on a stale cache start things twice.

use super::{
    Context, PassError,
    history::in_order,
    report::{phase, succeeded},
    resolve::words,
    unread,
};
use crate::{
    decide::SourceFact,
    sources::{self, Found, SourceError},
};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::{DeserializeGuard, error_boundary::InvalidObject},
};
use sluice_api::{
    annotation::TERRAFORM_LABEL,
    reference::{self, ObjectName},
    run::{Phase, TerraformRun},
    source::{Artifact, GROUP, GitRepository},
    terraform::{FINALIZER, SourceKind, Terraform, label_value},
};
use sluice_runtime::finalizer;
use sluice_tf_runner::cli::text::bounded;

/// Longest error of a run that does not decode: it may quote what stands in the run.
const ERROR_LIMIT: usize = 500;

/// What was seen.
pub(super) struct Observed {
    /// The source, as the decision sees it.
    pub(super) source: SourceFact,
    /// Its artifact.
    pub(super) artifact: Option<Artifact>,
    /// The runs that belong to this very object.
    pub(super) runs: Vec<TerraformRun>,
    /// A run of this object that cannot be read, and what to do about it: it may be at work, and its number is taken.
    pub(super) unreadable: Option<String>,
    /// The Secret with the outputs of the last run that wrote some is gone.
    pub(super) outputs_gone: bool,
}

impl Observed {
    /// A run is at work: whatever becomes of source and inputs, it is followed.
    pub(super) fn at_work(runs: Vec<TerraformRun>) -> Self {
        Self {
            source: SourceFact::NotRead,
            artifact: None,
            runs,
            unreadable: None,
            outputs_gone: false,
        }
    }
}

/// The stack as the API has it, with our finalizer; `None` where it is gone. Read live: the cache may lag behind our own write. A stack
/// without the finalizer has no such write yet, so the cached one is taken; the write of the finalizer carries its version.
pub(super) async fn newest(
    api: &Api<Terraform>,
    stack: &Terraform,
    versions: &mut Vec<Option<String>>,
) -> Result<Option<Terraform>, PassError> {
    let is_new = stack.metadata.deletion_timestamp.is_none() && !finalizer::is_held(stack, FINALIZER);
    let fresh = if is_new {
        stack.clone()
    } else {
        let fresh = api.get_opt(&stack.name_any()).await;
        let Some(fresh) = fresh.map_err(|source| unread(stack, source))? else {
            return Ok(None);
        };
        fresh
    };
    versions.push(fresh.resource_version());
    let held = finalizer::ensure(api, &fresh, FINALIZER).await?.object();
    versions.extend(held.as_ref().map(ResourceExt::resource_version));
    Ok(held)
}

/// The runs in progress that a runner has claimed: whatever becomes of source and inputs, they are followed.
pub(super) fn claimed(runs: &[TerraformRun]) -> impl Iterator<Item = &TerraformRun> {
    let is_claimed = |run: &&TerraformRun| {
        let status = run.status.as_ref();
        status.is_some_and(|status| status.claim.is_some() && !status.phase.is_final())
    };
    runs.iter().filter(is_claimed)
}

/// Reads runs and source; the source only where something is to be decided.
pub(super) async fn observe(stack: &Terraform, context: &Context) -> Result<Observed, kube::Error> {
    let (runs, unreadable) = runs(stack, context).await?;
    if claimed(&runs).next().is_some() {
        return Ok(Observed {
            unreadable,
            ..Observed::at_work(runs)
        });
    }
    let (source, artifact) = match source(stack, context).await {
        Ok(artifact) => {
            let (revision, digest) = (artifact.revision.clone(), artifact.digest.clone());
            (SourceFact::Found { revision, digest }, Some(artifact))
        }
        Err(fact) => (fact, None),
    };
    let outputs_gone = outputs_gone(stack, &runs, context).await?;
    Ok(Observed {
        source,
        artifact,
        runs,
        unreadable,
        outputs_gone,
    })
}

/// Whether the Secret of the outputs should be there and is not. Its metadata tell; the outputs themselves are not read.
async fn outputs_gone(
    stack: &Terraform,
    runs: &[TerraformRun],
    context: &Context,
) -> Result<bool, kube::Error> {
    let wanted = stack.spec.write_outputs_to_secret.as_ref();
    let idle = stack.spec.destroy || stack.spec.suspend || stack.metadata.deletion_timestamp.is_some();
    let Some(target) = wanted.filter(|_| !idle && has_outputs(runs)) else {
        return Ok(false);
    };
    let namespace = stack.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &namespace);
    Ok(api.get_metadata_opt(&target.name).await?.is_none())
}

/// Whether the newest run that ended well saw outputs.
fn has_outputs(runs: &[TerraformRun]) -> bool {
    let ended = in_order(runs)
        .into_iter()
        .rev()
        .filter(|run| phase(run).is_final());
    let mut counting = ended.filter(|run| phase(run) != Phase::Superseded);
    let newest = counting.next().filter(|run| succeeded(run) && !run.spec.destroy);
    newest
        .and_then(|run| run.status.as_ref())
        .is_some_and(|status| !status.outputs.is_empty())
}

/// The runs that carry the stack's label and its uid: a namesake's runs are not its own. The first that cannot be read is named.
async fn runs(
    stack: &Terraform,
    context: &Context,
) -> Result<(Vec<TerraformRun>, Option<String>), kube::Error> {
    let api: Api<DeserializeGuard<TerraformRun>> =
        Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    let selector = format!("{TERRAFORM_LABEL}={}", label_value(&stack.name_any()));
    let list = api.list(&ListParams::default().labels(&selector)).await?;
    let uid = stack.uid().unwrap_or_default();
    let (mut runs, mut unreadable) = (Vec::new(), None);
    for item in list.items {
        match item.0 {
            Ok(run) if run.spec.terraform.uid == uid => runs.push(run),
            Err(invalid) if belongs(&invalid, &uid) => {
                unreadable.get_or_insert_with(|| about_unreadable(&invalid));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok((runs, unreadable))
}

fn belongs(invalid: &InvalidObject, uid: &str) -> bool {
    let mut owners = invalid.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid)
}

/// What is told of a run that does not decode.
fn about_unreadable(invalid: &InvalidObject) -> String {
    let name = invalid.metadata.name.as_deref().unwrap_or_default();
    format!(
        "TerraformRun {name} cannot be read: {}; nothing is started beside it, because it may be at work; delete it once no \
         runner of it is alive",
        bounded(&invalid.error, ERROR_LIMIT)
    )
}

async fn source(stack: &Terraform, context: &Context) -> Result<Artifact, SourceFact> {
    let wanted = &stack.spec.source_ref;
    let own = stack.namespace().unwrap_or_default();
    let target = reference::resolve(&own, &wanted.namespace, &wanted.name, context.cross_namespace)
        .map_err(|denied| SourceFact::Denied(denied.to_string()))?;
    if wanted.kind != SourceKind::GitRepository {
        return foreign(wanted.kind, &target, context).await;
    }
    let api: Api<GitRepository> = Api::namespaced(context.client.clone(), &target.namespace);
    let found = api
        .get_opt(&target.name)
        .await
        .map_err(|error| SourceFact::Unreachable(words(&error)))?;
    let Some(repository) = found else {
        let text = format!(
            "GitRepository.source.toolkit.fluxcd.io \"{}\" not found",
            target.name
        );
        return Err(SourceFact::NotFound(text));
    };
    repository
        .status
        .and_then(|status| status.artifact)
        .ok_or(SourceFact::NoArtifact)
}

/// The artifact of a source that another controller looks after.
async fn foreign(kind: SourceKind, target: &ObjectName, context: &Context) -> Result<Artifact, SourceFact> {
    let (name, kind_name) = (&target.name, kind.as_str());
    match sources::find(&context.client, kind, target).await {
        Ok(Found::Source(artifact)) => artifact.ok_or(SourceFact::NoArtifact),
        Ok(Found::Nothing) => Err(SourceFact::NotFound(format!(
            "{kind_name}.{GROUP} \"{name}\" not found"
        ))),
        Ok(Found::NotServed) => Err(SourceFact::NotFound(format!(
            "{kind_name} \"{name}\" cannot be read: the API serves no {kind_name} of {GROUP}; install Flux's source-controller \
             and its definitions"
        ))),
        Err(SourceError::Api(error)) => Err(SourceFact::Unreachable(words(&error))),
        Err(error @ SourceError::Artifact(_)) => Err(SourceFact::Unreachable(error.to_string())),
    }
}
