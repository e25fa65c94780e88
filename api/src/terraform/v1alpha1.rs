//! v1alpha1 of the Terraform kind: deprecated, and served for existing manifests. It has no types of its own: the API server
//! only rewrites `apiVersion` (conversion strategy `None`), controllers read v1alpha2, and its schema is that of v1alpha2
//! without later fields.

/// Name of the version.
pub const VERSION: &str = "v1alpha1";

/// The deprecation warning of the API server.
pub(crate) const DEPRECATION: &str = "v1alpha1 Terraform is deprecated, upgrade to v1alpha2";

/// The fields of v1alpha2 that v1alpha1 does not have, as paths in the object. A write through v1alpha1 drops them.
pub const ABSENT_FIELDS: &[&str] = &[
    "spec.approval",
    "spec.autoApply",
    "spec.branchPlanner",
    "spec.deletionPolicy",
    "spec.ignoreDrift",
    "spec.maxRetryInterval",
    "spec.plan",
    "spec.planOnly",
    "spec.remediation",
    "spec.retryStrategy",
    "spec.runDeadline",
    "spec.runnerPodTemplate.spec.hostAliases",
    "spec.runnerPodTemplate.spec.priorityClassName",
    "spec.runnerPodTemplate.spec.resources",
    "spec.runnerPodTemplate.spec.securityContext",
    "spec.tfVarsFiles",
    "spec.tfstate.lockTimeout",
    "spec.tool",
    "spec.upgradeOnInit",
    "spec.writeOutputsToSecret.annotations",
    "spec.writeOutputsToSecret.labels",
    "status.drift",
    "status.lastPlanAt",
    "status.lastPlannedGeneration",
    "status.lastSuccessfulReconcileAt",
    "status.pendingReconcileRequest",
    "status.reconciliationFailures",
];
