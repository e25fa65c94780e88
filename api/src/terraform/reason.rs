//! Reasons that the runner writes to a run's status and the controller to conditions and events. The strings are
//! upstream's where upstream has the case. Statuses store plain strings: another version may write other reasons.

use std::fmt;
use std::str::FromStr;

use crate::serialization::api_enum;

/// A text is not a known [`Reason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown reason")]
pub struct UnknownReason;

api_enum! {
    /// A reason of a run, a condition or an event of a Terraform object.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    Reason {
        /// A reference is not allowed.
        AccessDenied = "AccessDenied",
        /// The source has no usable artifact.
        ArtifactFailed = "ArtifactFailed",
        /// A break-glass session is open.
        BreakTheGlass = "BreakTheGlass",
        /// A break-glass session ended.
        BreakTheGlassEnded = "BreakTheGlassEnded",
        /// The pod of a run, or its Job, exceeded its deadline.
        DeadlineExceeded = "DeadlineExceeded",
        /// The dependencies of a stack form a cycle.
        DependencyCycle = "DependencyCycle",
        /// A dependency of a stack is not ready.
        DependencyNotReady = "DependencyNotReady",
        /// The plan of a drift detection has changes.
        DriftDetected = "DriftDetected",
        /// The plan of a drift detection failed.
        DriftDetectionFailed = "DriftDetectionFailed",
        /// The pod of a run was evicted.
        Evicted = "Evicted",
        /// A state lock was released.
        ForceUnlock = "ForceUnlock",
        /// A health check failed.
        HealthChecksFailed = "HealthChecksFailed",
        /// All health checks passed.
        HealthChecksSucceed = "HealthChecksSucceed",
        /// The inputs changed before the run began.
        InputsChanged = "InputsChanged",
        /// A run was asked to end before its work began, and is repeated.
        Interrupted = "Interrupted",
        /// The node of a run's pod was lost or shut down.
        NodeLost = "NodeLost",
        /// The pod of a run exceeded its memory limit.
        OomKilled = "OOMKilled",
        /// The outputs could not be written to their Secret.
        OutputsWritingFailed = "OutputsWritingFailed",
        /// The key that encrypts plans could not be read.
        PlanEncryptionFailed = "PlanEncryptionFailed",
        /// A user rejected the pending plan.
        PlanRejected = "PlanRejected",
        /// The stored plan no longer matches the state or the spec.
        PlanStale = "PlanStale",
        /// A webhook rejected the plan.
        PostPlanningWebhookFailed = "PostPlanningWebhookFailed",
        /// `spec.remediation.retries` is used up.
        RetryLimitReached = "RetryLimitReached",
        /// A run failed without a reason of its own.
        RunFailed = "RunFailed",
        /// The runner of a run cannot begin yet.
        RunPending = "RunPending",
        /// The runner disappeared without a report.
        RunLost = "RunLost",
        /// The CLI could not select the workspace.
        SelectWorkspaceFailed = "SelectWorkspaceFailed",
        /// The ServiceAccount of a run does not exist.
        ServiceAccountNotFound = "ServiceAccountNotFound",
        /// The inputs changed before the runner began.
        Superseded = "Superseded",
        /// An apply failed.
        TfExecApplyFailed = "TFExecApplyFailed",
        /// An apply of a destroy plan failed.
        TfExecDestroyFailed = "TFExecDestroyFailed",
        /// Initialization failed.
        TfExecInitFailed = "TFExecInitFailed",
        /// The run could not be prepared.
        TfExecNewFailed = "TFExecNewFailed",
        /// The outputs could not be read.
        TfExecOutputFailed = "TFExecOutputFailed",
        /// A plan failed.
        TfExecPlanFailed = "TFExecPlanFailed",
        /// A template could not be rendered.
        TemplateGenerationFailed = "TemplateGenerationFailed",
        /// The last apply failed.
        TerraformAppliedFail = "TerraformAppliedFail",
        /// The last apply succeeded.
        TerraformAppliedSucceed = "TerraformAppliedSucceed",
        /// The last destroy succeeded.
        TerraformDestroySucceed = "TerraformDestroySucceed",
        /// The state has outputs.
        TerraformOutputsAvailable = "TerraformOutputsAvailable",
        /// The outputs were written to their Secret.
        TerraformOutputsWritten = "TerraformOutputsWritten",
        /// A new plan replaced the pending one.
        TerraformPlanReplaced = "TerraformPlanReplaced",
        /// A plan was created.
        TerraformPlanSucceed = "TerraformPlanSucceed",
        /// The plan has no changes.
        TerraformPlannedNoChanges = "TerraformPlannedNoChanges",
        /// The plan has changes.
        TerraformPlannedWithChanges = "TerraformPlannedWithChanges",
        /// The CLI that `spec.tool` selects is not installed.
        ToolNotInstalled = "ToolNotInstalled",
        /// The variables could not be resolved.
        VarsGenerationFailed = "VarsGenerationFailed",
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, UnknownReason> {
        let known = Self::ALL.iter().find(|reason| reason.as_str() == text);
        known.copied().ok_or(UnknownReason)
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.as_str().to_owned()
    }
}

impl PartialEq<Reason> for String {
    fn eq(&self, reason: &Reason) -> bool {
        self == reason.as_str()
    }
}

impl PartialEq<Reason> for str {
    fn eq(&self, reason: &Reason) -> bool {
        self == reason.as_str()
    }
}
