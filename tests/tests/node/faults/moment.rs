//! The moments of a fault, and the time at which the run that waits for it continues.

/// The moment of a stack's first apply at which a fault is caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Moment {
    /// The Job of a run has a pod; for a fault that kills processes, its container has started.
    Start,
    /// The runner downloads the artifact.
    Fetch,
    /// `tofu init` downloads a module.
    Init,
    /// The provider plans.
    Plan,
    /// The provider creates the first resource.
    Create,
    /// The first resource exists, and the provider creates the second one.
    HalfApplied,
    /// The state has both resources. The runner reads and writes the outputs, and reports.
    Recorded,
    /// The runner writes the Secret of the outputs.
    Outputs,
    /// A random time after the start of the pod.
    Any,
}

impl Moment {
    /// All of them.
    pub(super) const ALL: [Self; 9] = [
        Self::Start,
        Self::Fetch,
        Self::Init,
        Self::Plan,
        Self::Create,
        Self::HalfApplied,
        Self::Recorded,
        Self::Outputs,
        Self::Any,
    ];

    /// Returns the provider's step during which the moment is, with the name of the resource.
    pub(super) const fn step(self) -> Option<&'static str> {
        match self {
            Self::Plan => Some("plan first"),
            Self::Create => Some("create first"),
            Self::HalfApplied => Some("create second"),
            Self::Start | Self::Fetch | Self::Init | Self::Recorded | Self::Outputs | Self::Any => None,
        }
    }

    /// Returns the provider's step that is held until the release: a run that has just started does not end before it. The downloads
    /// and the write of the outputs are held by others ([`super::hold::Holds`]).
    pub(super) const fn held_step(self) -> Option<&'static str> {
        match self {
            Self::Start => Some("plan first"),
            _ => self.step(),
        }
    }

    /// Whether the run waits for the fault. At any other moment it may end before.
    pub(super) const fn is_held(self) -> bool {
        !matches!(self, Self::Recorded | Self::Any)
    }

    /// Whether the pod has no CLI: it is not started yet, or ended already.
    pub(super) const fn is_without_cli(self) -> bool {
        matches!(self, Self::Start | Self::Fetch | Self::Outputs)
    }

    /// Whether the runner has the artifact, and waits in a later step.
    pub(super) const fn is_held_after_fetch(self) -> bool {
        self.is_held() && !matches!(self, Self::Start | Self::Fetch)
    }
}

/// When the run that waits for the fault continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// When the fault has begun: the run works, and tries to end, during it.
    During,
    /// When the fault is over: the run is in the middle of its step for all of it.
    After,
}
