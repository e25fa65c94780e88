//! The decision about one `Repo`: which objects to write, and its status. Pure.

mod backend;
mod children;
mod row;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(crate) use children::MANAGED_BY_SELECTOR;
use kube::ResourceExt;
use kube::api::DynamicObject;
use row::{Row, ready};
use serde_json::Value;
use sluice_api::annotation::requested_at;
use sluice_api::condition::{ConditionStatus, ConditionUpdate};
use sluice_api::repo::{ApprovalMode, Repo, RepoCondition, RepoStatus};
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

/// The reason of a name that another object has: the one of 2019.
pub(crate) const NAME_TAKEN: &str = "ErrResourceExists";
/// The reason of an object that the API server refuses.
pub(crate) const REFUSED: &str = "ObjectRefused";
/// The reason of a plan that waits for an approval.
pub(crate) const APPROVAL_REQUIRED: &str = "ApprovalRequired";

/// What exists of a `Repo`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// The GitRepository of its name.
    pub(crate) source: Option<GitRepository>,
    /// The Terraform object of its name.
    pub(crate) stack: Option<Terraform>,
    /// The newest run of that Terraform object that plans or applies.
    pub(crate) run: Option<TerraformRun>,
}

/// What to write.
#[derive(Debug)]
pub(crate) struct Decision {
    /// The write of the GitRepository; `None`: it is as desired.
    pub(crate) source: Option<ChildWrite>,
    /// The write of the Terraform object.
    pub(crate) stack: Option<ChildWrite>,
    /// The order of the writes. If the first one is refused, the second one is not sent.
    pub(crate) order: [Child; 2],
    /// The status, without its conditions.
    pub(crate) status: RepoStatus,
    /// The condition.
    pub(crate) ready: ConditionUpdate<RepoCondition>,
}

/// An object that a `Repo` owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    /// The GitRepository.
    Source,
    /// The Terraform object.
    Stack,
}

/// A write of an object that a `Repo` owns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ChildWrite {
    /// It does not exist.
    Create(Box<DynamicObject>),
    /// A merge patch, with the `resourceVersion` that it is based on.
    Patch(Value),
}

/// Decides. The caller must not call this for a `Repo` that is being deleted: what it owns would be created again.
pub(crate) fn decide(repo: &Repo, observed: &Observed) -> Decision {
    let mut status = RepoStatus {
        last_handled_reconcile_at: handled_request(repo, observed),
        observed_generation: repo.metadata.generation,
        ..RepoStatus::default()
    };
    let order = order(repo, observed);
    if let Some(message) = children::name_conflict(repo, observed) {
        // What a foreign object shows is not the state of this one.
        return Decision {
            source: None,
            stack: children::withdraw_auto(repo, observed.stack.as_ref()),
            order,
            status,
            ready: failure(NAME_TAKEN, message),
        };
    }
    let row = Row::of(repo, observed);
    row.report(repo, &mut status);
    Decision {
        source: children::write_source(repo, observed.source.as_ref()),
        stack: children::write_stack(repo, observed),
        order,
        ready: ready(repo, observed, &row),
        status,
    }
}

/// Returns the order of the writes. An existing stack learns first that plans need an approval, so that no commit of a new source is
/// applied without one, and which workspace it has, so that a new source is not applied in the old one. Otherwise a new source comes
/// first, so that the stack does not run on the old one.
fn order(repo: &Repo, observed: &Observed) -> [Child; 2] {
    let is_manual = repo.spec.approval == ApprovalMode::Manual;
    let is_first = |stack: &Terraform| is_manual || children::workspace_differs(repo, stack);
    if observed.stack.as_ref().is_some_and(is_first) {
        [Child::Stack, Child::Source]
    } else {
        [Child::Source, Child::Stack]
    }
}

/// Returns `Ready=False`.
pub(crate) fn failure(reason: &str, message: String) -> ConditionUpdate<RepoCondition> {
    ConditionUpdate::new(RepoCondition::Ready, ConditionStatus::False, reason, message)
}

/// Returns the reconcile request that both objects have got; until then, the one before.
fn handled_request(repo: &Repo, observed: &Observed) -> String {
    let before = repo
        .status
        .as_ref()
        .map(|status| &*status.last_handled_reconcile_at);
    let source = observed.source.as_ref().map(ResourceExt::annotations);
    let stack = observed.stack.as_ref().map(ResourceExt::annotations);
    let request = requested_at(repo.annotations()).filter(|token| {
        let has = |annotations: &BTreeMap<String, String>| requested_at(annotations) == Some(*token);
        source.is_some_and(has) && stack.is_some_and(has)
    });
    request.or(before).unwrap_or_default().to_owned()
}

/// Returns the reconcile request that the objects have yet to get.
fn pending_request(repo: &Repo) -> Option<&str> {
    let handled = repo
        .status
        .as_ref()
        .map(|status| &*status.last_handled_reconcile_at);
    requested_at(repo.annotations()).filter(|token| Some(*token) != handled)
}
