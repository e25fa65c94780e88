//! The faults, and the consequences that each may have.

use super::ledger::Creations;
use super::moment::Moment;

/// The error of a provider whose step fails.
pub(super) const QUOTA_EXCEEDED: &str = "quota exceeded";

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// SIGKILL to all processes of the runner's container.
    KillRunner,
    /// SIGKILL to the CLI alone.
    KillCli,
    /// The pod is deleted without grace.
    DeletePodNow,
    /// The pod is deleted with its grace.
    DeletePod,
    /// The pod is evicted, as `kubectl drain` does.
    EvictPod,
    /// SIGKILL to all processes of tf-controller's container.
    KillController,
    /// The pod of tf-controller is deleted with its grace: SIGTERM.
    DeleteController,
    /// The Deployment of tf-controller is rolled out again.
    RestartController,
    /// The Deployment of tf-controller gets an image with another tag, and so do its runs.
    ChangeVersion,
    /// Another process takes the Lease of tf-controller.
    TakeLease,
    /// The leader of two replicas of tf-controller is paused, the other one takes over, and both continue.
    PauseLeader,
    /// The kubelet is away for a short time.
    StopKubelet,
    /// The kubelet is away until the node is not ready.
    StopKubeletLong,
    /// The kubelet is away until Kubernetes has deleted the pods of the node.
    StopKubeletUntilEviction,
    /// The container runtime is away.
    StopRuntime,
    /// The container runtime is away until Kubernetes has deleted the pods of the node.
    StopRuntimeUntilEviction,
    /// The API server is away.
    StopApiServer,
    /// The API server is away for a minute.
    StopApiServerLong,
    /// The API server answers only a part of the time, and keeps its connections.
    SlowApiServer,
    /// The API server answers most requests with 429, except those of administrators.
    ThrottleApiServer,
    /// The API server has forgotten the versions from which watches could resume.
    ExpireWatches,
    /// Another client edits the objects of the stack all the time, so updates conflict.
    EditObjects,
    /// The database of the API server is away.
    StopEtcd,
    /// SIGKILL to all processes of source-controller's container.
    KillSourceController,
    /// source-controller is away.
    StopSourceController,
    /// source-controller is away until the run has ended that waits for the fault.
    StopSourceControllerUntilEnd,
    /// The artifact of the source disappears, and another revision follows.
    CollectArtifact,
    /// The account of the run is deleted and created again.
    DeleteAccount,
    /// The Secret and the ConfigMap that the stack reads are deleted and created again.
    DeleteInputs,
    /// The namespace of the stack is deleted.
    DeleteNamespace,
    /// The provider crashes in its step.
    CrashProvider,
    /// The provider's step fails.
    FailProvider,
    /// The provider's step hangs until it is interrupted.
    HangProvider,
    /// The provider's step hangs and ignores interrupts.
    IgnoreInterrupt,
    /// The provider's step takes more memory than the pod may have.
    ExhaustMemory,
    /// The provider's step fills the disk of the run's working directory.
    FillDisk,
}

impl Fault {
    const ALL: [Self; 36] = [
        Self::KillRunner,
        Self::KillCli,
        Self::DeletePodNow,
        Self::DeletePod,
        Self::EvictPod,
        Self::KillController,
        Self::DeleteController,
        Self::RestartController,
        Self::ChangeVersion,
        Self::TakeLease,
        Self::PauseLeader,
        Self::StopKubelet,
        Self::StopKubeletLong,
        Self::StopKubeletUntilEviction,
        Self::StopRuntime,
        Self::StopRuntimeUntilEviction,
        Self::StopApiServer,
        Self::StopApiServerLong,
        Self::SlowApiServer,
        Self::ThrottleApiServer,
        Self::ExpireWatches,
        Self::EditObjects,
        Self::StopEtcd,
        Self::KillSourceController,
        Self::StopSourceController,
        Self::StopSourceControllerUntilEnd,
        Self::CollectArtifact,
        Self::DeleteAccount,
        Self::DeleteInputs,
        Self::DeleteNamespace,
        Self::CrashProvider,
        Self::FailProvider,
        Self::HangProvider,
        Self::IgnoreInterrupt,
        Self::ExhaustMemory,
        Self::FillDisk,
    ];

    /// Whether the CLI cannot write its state: it has no time, or its account is gone. A resource that it has just created is then
    /// unknown to every tool.
    pub(super) const fn may_lose_state(self) -> bool {
        matches!(
            self,
            Self::KillRunner
                | Self::KillCli
                | Self::DeletePodNow
                | Self::DeleteAccount
                | Self::IgnoreInterrupt
                | Self::ExhaustMemory
        )
    }

    /// Returns how often the fault lets a resource be created.
    pub(super) const fn creations(self) -> Creations {
        match self {
            _ if self.may_lose_state() => Creations::AfterOrphans,
            // The CLI or its provider ends within its step.
            Self::DeletePod
            | Self::EvictPod
            | Self::StopKubeletUntilEviction
            | Self::StopRuntimeUntilEviction
            | Self::DeleteNamespace
            | Self::CrashProvider
            | Self::FailProvider
            | Self::HangProvider => Creations::Again,
            _ => Creations::Once,
        }
    }

    /// Whether the CLI goes on, so the step that its provider holds lasts until the release. A fault of the provider replaces that order.
    pub(super) const fn ends_no_cli(self) -> bool {
        !self.is_of_provider() && matches!(self.creations(), Creations::Once)
    }

    /// Whether the fault declares that a pod has ended that may still work. Until the node has stopped it, two CLIs can work at once.
    pub(super) const fn may_overlap(self) -> bool {
        matches!(self, Self::DeletePodNow)
    }

    /// Whether the fault replaces tf-controller or its leader. Its runs continue: there are as many as without the fault.
    pub(super) const fn is_of_controller(self) -> bool {
        matches!(
            self,
            Self::KillController
                | Self::DeleteController
                | Self::RestartController
                | Self::ChangeVersion
                | Self::TakeLease
                | Self::PauseLeader
        )
    }

    /// Whether there are as many runs as without the fault.
    pub(super) const fn adds_no_run(self) -> bool {
        self.is_of_controller() || matches!(self, Self::StopSourceControllerUntilEnd)
    }

    /// Whether the fault ends only when the run continues.
    pub(super) const fn needs_release(self) -> bool {
        matches!(self, Self::StopSourceControllerUntilEnd)
    }

    /// Whether the fault kills processes in the pod of the run: there are none before its container has started.
    pub(super) const fn kills_processes(self) -> bool {
        matches!(self, Self::KillRunner | Self::KillCli)
    }

    /// Whether the run of the fault has a short deadline.
    pub(super) const fn needs_deadline(self) -> bool {
        matches!(self, Self::HangProvider | Self::IgnoreInterrupt)
    }

    /// Whether the provider causes the fault in the step of the moment.
    pub(super) const fn is_of_provider(self) -> bool {
        matches!(
            self,
            Self::CrashProvider
                | Self::FailProvider
                | Self::HangProvider
                | Self::IgnoreInterrupt
                | Self::ExhaustMemory
                | Self::FillDisk
        )
    }

    /// Whether the fault lasts for minutes: no other trial runs beside it, and samples are without it.
    pub(super) const fn takes_minutes(self) -> bool {
        matches!(
            self,
            Self::StopKubeletUntilEviction | Self::StopRuntimeUntilEviction
        )
    }

    /// Whether the fault is caused at this moment: there is something to hit, and for [`Fault::needs_release`] a run that can end.
    const fn is_caused_at(self, moment: Moment) -> bool {
        match self {
            _ if self.is_of_provider() => moment.step().is_some(),
            Self::KillCli => !moment.is_without_cli(),
            Self::StopSourceControllerUntilEnd => moment.is_held_after_fetch(),
            _ => true,
        }
    }

    /// Returns what the reason or the message of a run says because of the fault.
    pub(super) const fn evidence(self, moment: Moment) -> Option<&'static str> {
        match self {
            Self::KillCli if moment.step().is_some() => Some("signal: 9"),
            Self::FailProvider => Some(QUOTA_EXCEEDED),
            Self::HangProvider | Self::IgnoreInterrupt => Some("deadline passed"),
            Self::ExhaustMemory => Some("OOMKilled"),
            Self::FillDisk => Some("the disk of the working directory is full"),
            Self::EvictPod if moment.step().is_some() => Some("Evicted"),
            _ => None,
        }
    }
}

/// Returns each fault with each moment at which it can be caused.
pub(super) fn pairs() -> Vec<(Fault, Moment)> {
    let all = Fault::ALL.into_iter();
    let all = all.flat_map(|fault| Moment::ALL.map(|moment| (fault, moment)));
    all.filter(|(fault, moment)| fault.is_caused_at(*moment))
        .collect()
}
