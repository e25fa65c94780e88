//! Kinds that stay on this machine, and those of them that an option shares: programs write them.
//!
//! Shared, they are in the journal alone: the branch is for what users write, and a Lease would add a commit to it every few seconds.
//! Their file is the status file of other objects, with the whole object. Without a journal they are files of the branch.

use std::collections::BTreeSet;

use super::{GitOptions, StatusLocation};
use crate::definitions::DEFINITIONS;

/// Kinds that are stored on this machine only, because they are secret, short-lived, created by the program itself, or about the users of
/// the machine. A push must not give permissions that its author does not have. An option shares some of them ([`SharedKind`]).
const LOCAL: [&str; 9] = [
    "secrets",
    "events",
    "serviceaccounts",
    "leases.coordination.k8s.io",
    "terraformruns.infra.sluice.dev",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
];

/// A kind that programs write, so that its objects stay on this machine unless they are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharedKind {
    /// Leases, with which controllers elect a leader.
    Leases,
    /// Events.
    Events,
    /// Runs of stacks.
    Runs,
}

impl SharedKind {
    /// Returns the group resource.
    const fn group_resource(self) -> &'static str {
        match self {
            Self::Leases => "leases.coordination.k8s.io",
            Self::Events => "events",
            Self::Runs => "terraformruns.infra.sluice.dev",
        }
    }
}

/// The kinds that are shared by option.
#[derive(Clone, Debug, Default)]
pub(super) struct Sharing {
    /// Their group resources.
    resources: BTreeSet<&'static str>,
    has_journal: bool,
}

impl Sharing {
    pub(super) fn of(options: &GitOptions) -> Self {
        let shared = options.shared.iter().copied();
        Self {
            resources: shared.map(SharedKind::group_resource).collect(),
            has_journal: options.status == StatusLocation::Branch,
        }
    }

    /// Whether a kind is in the repository by option.
    pub(super) fn contains(&self, group_resource: &str) -> bool {
        self.resources.contains(group_resource)
    }

    /// Returns the names of these kinds.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.resources.iter().copied().collect();
        names.join(",")
    }

    /// Whether the objects of a kind stay on this machine.
    pub(super) fn is_local(&self, group_resource: &str) -> bool {
        LOCAL.contains(&group_resource) && !self.contains(group_resource)
    }

    /// Returns the kinds of which changes do not follow from the repository. Some namespaces and definitions are on this machine.
    pub(super) fn kinds_without_history(&self) -> BTreeSet<&'static str> {
        let local = LOCAL.into_iter().filter(|kind| self.is_local(kind));
        local.chain(["namespaces", DEFINITIONS]).collect()
    }

    /// Whether the objects of a kind are in the journal alone.
    pub(super) fn is_in_journal(&self, group_resource: &str) -> bool {
        self.has_journal && self.contains(group_resource)
    }
}
