//! Reads the source and the runs of a stack. Live, because a decision on a stale cache may start a run twice.

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use kube::{Api, ResourceExt};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::reference::{self, ObjectName};
use sluice_api::run::{Phase, PlanApproval, TerraformRun};
use sluice_api::source::{Artifact, GROUP, GitRepository};
use sluice_api::terraform::{FINALIZER, SourceKind, Terraform, label_value};
use sluice_runtime::finalizer;
use sluice_tf_core::cli::text::truncate;

use super::history::by_sequence;
use super::report::{phase, succeeded};
use super::resolve::api_message;
use super::{Context, ReconcileError, approvals, read_error};
use crate::decide::SourceFact;
use crate::sources::{self, SourceError, SourceLookup};

/// Longest quoted error of a run that does not decode: it may quote the run.
const ERROR_LIMIT: usize = 500;

/// The observed state of one stack.
pub(super) struct Observed {
    /// The source, for the decision.
    pub(super) source: SourceFact,
    /// Its artifact.
    pub(super) artifact: Option<Artifact>,
    /// The runs that belong to this very object.
    pub(super) runs: Vec<TerraformRun>,
    /// The message about a run of this object that does not decode: it may be active, and its number is taken.
    pub(super) unreadable: Option<String>,
    /// The outputs Secret of the last run that wrote one is gone.
    pub(super) outputs_gone: bool,
    /// The approvals that name the stack, as cached: before an apply its runner reads them again.
    pub(super) approvals: Vec<PlanApproval>,
}

impl Observed {
    /// Returns the state while a claimed run is active: it is supervised whatever the source and inputs are.
    pub(super) fn with_active_run(runs: Vec<TerraformRun>) -> Self {
        Self {
            source: SourceFact::NotRead,
            artifact: None,
            runs,
            unreadable: None,
            outputs_gone: false,
            approvals: Vec::new(),
        }
    }
}

/// A stack as read last.
#[derive(Clone)]
pub(super) struct LiveStack {
    pub(super) stack: Terraform,
    /// The versions that this reconciliation covers: as cached, as read live, and as written.
    pub(super) versions: Vec<Option<String>>,
}

/// Returns the stack with our finalizer; `None` if it is gone. Read live: the cache may lag behind our own write. A stack without
/// the finalizer has no such write yet, so the cached one is used; the write of the finalizer carries its version.
pub(super) async fn read_live(
    api: &Api<Terraform>,
    stack: &Terraform,
) -> Result<Option<LiveStack>, ReconcileError> {
    let is_new = stack.metadata.deletion_timestamp.is_none() && !finalizer::is_present(stack, FINALIZER);
    let live = if is_new {
        stack.clone()
    } else {
        let live = api.get_opt(&stack.name_any()).await;
        let Some(live) = live.map_err(|source| read_error(stack, source))? else {
            return Ok(None);
        };
        live
    };
    let stored = finalizer::ensure(api, &live, FINALIZER).await?.object();
    Ok(stored.map(|stored| LiveStack {
        versions: [stack, &live, &stored].map(ResourceExt::resource_version).into(),
        stack: stored,
    }))
}

/// Returns the active runs that a runner has claimed.
pub(super) fn claimed_runs(runs: &[TerraformRun]) -> impl Iterator<Item = &TerraformRun> {
    let is_claimed = |run: &&TerraformRun| {
        let status = run.status.as_ref();
        status.is_some_and(|status| status.claim.is_some() && !status.phase.is_final())
    };
    runs.iter().filter(is_claimed)
}

/// Reads the runs, and the source if there is something to decide.
pub(super) async fn observe(stack: &Terraform, context: &Context) -> Result<Observed, kube::Error> {
    let (runs, unreadable) = runs(stack, context).await?;
    if claimed_runs(&runs).next().is_some() {
        return Ok(Observed {
            unreadable,
            ..Observed::with_active_run(runs)
        });
    }
    let (source, artifact) = match source(stack, context).await {
        Ok(artifact) => {
            let (revision, digest) = (artifact.revision.clone(), artifact.digest.clone());
            (SourceFact::Found { revision, digest }, Some(artifact))
        }
        Err(fact) => (fact, None),
    };
    let outputs_gone = has_lost_outputs(stack, &runs, context).await?;
    Ok(Observed {
        source,
        artifact,
        runs,
        unreadable,
        outputs_gone,
        approvals: approvals::cached(stack, context),
    })
}

/// Returns whether the outputs Secret should exist and does not. Reads only its metadata.
async fn has_lost_outputs(
    stack: &Terraform,
    runs: &[TerraformRun],
    context: &Context,
) -> Result<bool, kube::Error> {
    let target = stack.spec.write_outputs_to_secret.as_ref();
    let idle = stack.spec.destroy || stack.spec.suspend || stack.metadata.deletion_timestamp.is_some();
    let Some(target) = target.filter(|_| !idle && has_outputs(runs)) else {
        return Ok(false);
    };
    let api: Api<Secret> = context.api_of(stack);
    Ok(api.get_metadata_opt(&target.name).await?.is_none())
}

/// Returns whether the newest run succeeded and had outputs.
fn has_outputs(runs: &[TerraformRun]) -> bool {
    let ended = by_sequence(runs)
        .into_iter()
        .rev()
        .filter(|run| phase(run).is_final());
    let mut counting = ended.filter(|run| phase(run) != Phase::Superseded);
    let newest = counting.next().filter(|run| succeeded(run) && !run.spec.destroy);
    newest
        .and_then(|run| run.status.as_ref())
        .is_some_and(|status| !status.outputs.is_empty())
}

/// Lists the runs with the stack's label and uid, since an earlier object of the same name may have left some. Also
/// returns a message about the first that does not decode.
async fn runs(
    stack: &Terraform,
    context: &Context,
) -> Result<(Vec<TerraformRun>, Option<String>), kube::Error> {
    let api: Api<DeserializeGuard<TerraformRun>> = context.api_of(stack);
    let selector = format!("{TERRAFORM_LABEL}={}", label_value(&stack.name_any()));
    let list = api.list(&ListParams::default().labels(&selector)).await?;
    let uid = stack.uid().unwrap_or_default();
    let (mut runs, mut unreadable) = (Vec::new(), None);
    for item in list.items {
        match item.0 {
            Ok(run) if run.spec.terraform.uid == uid => runs.push(run),
            Err(invalid) if is_owned_by(&invalid, &uid) => {
                unreadable.get_or_insert_with(|| unreadable_message(&invalid));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok((runs, unreadable))
}

fn is_owned_by(invalid: &InvalidObject, uid: &str) -> bool {
    let mut owners = invalid.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid)
}

/// Returns the message about a run that does not decode.
fn unreadable_message(invalid: &InvalidObject) -> String {
    let name = invalid.metadata.name.as_deref().unwrap_or_default();
    format!(
        "TerraformRun {name} cannot be read: {}; no other run is started, because it may be active; delete it once no \
         runner of it is alive",
        truncate(&invalid.error, ERROR_LIMIT)
    )
}

async fn source(stack: &Terraform, context: &Context) -> Result<Artifact, SourceFact> {
    let source_ref = &stack.spec.source_ref;
    let own = stack.namespace().unwrap_or_default();
    let target = reference::resolve(
        &own,
        &source_ref.namespace,
        &source_ref.name,
        context.cross_namespace,
    )
    .map_err(|denied| SourceFact::Denied(denied.to_string()))?;
    if source_ref.kind != SourceKind::GitRepository {
        return other_source(source_ref.kind, &target, context).await;
    }
    let api: Api<GitRepository> = Api::namespaced(context.client.clone(), &target.namespace);
    let found = api
        .get_opt(&target.name)
        .await
        .map_err(|error| SourceFact::Unreachable(api_message(&error)))?;
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

/// Returns the artifact of a `Bucket` or `OCIRepository`.
async fn other_source(
    kind: SourceKind,
    target: &ObjectName,
    context: &Context,
) -> Result<Artifact, SourceFact> {
    let (name, kind_name) = (&target.name, kind.as_str());
    match sources::find(&context.client, kind, target).await {
        Ok(SourceLookup::Found(artifact)) => artifact.ok_or(SourceFact::NoArtifact),
        Ok(SourceLookup::NotFound) => Err(SourceFact::NotFound(format!(
            "{kind_name}.{GROUP} \"{name}\" not found"
        ))),
        Ok(SourceLookup::NotServed) => Err(SourceFact::NotFound(format!(
            "{kind_name} \"{name}\" cannot be read: the API serves no {kind_name} of {GROUP}; install Flux's source-controller \
             and its definitions"
        ))),
        Err(SourceError::Api(error)) => Err(SourceFact::Unreachable(api_message(&error))),
        Err(error @ SourceError::Artifact(_)) => Err(SourceFact::Unreachable(error.to_string())),
    }
}
