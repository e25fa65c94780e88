//! Kinds that programs write, and where their objects are.
//!
//! Shared, they are in the journal alone: the branch is for what users write, and a Lease would add a commit to it every few seconds.
//! Their file is the status file of other objects, with the whole object. Without a journal they are files of the branch.

use std::collections::BTreeSet;

use super::{GitOptions, StatusLocation};

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

    /// Whether the objects of a kind are in the journal alone.
    pub(super) fn is_in_journal(&self, group_resource: &str) -> bool {
        self.has_journal && self.contains(group_resource)
    }
}
