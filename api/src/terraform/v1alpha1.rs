//! v1alpha1 of the Terraform kind: still served, because manifests of that version exist, and deprecated. It has no
//! types of its own: the API server only rewrites `apiVersion` (conversion strategy `None`), controllers read v1alpha2,
//! and its schema is that of v1alpha2 without the fields that came later.

/// Name of the version.
pub const VERSION: &str = "v1alpha1";

/// What the API server says to those who use it.
pub const DEPRECATION: &str = "v1alpha1 Terraform is deprecated, upgrade to v1alpha2";

/// The fields of v1alpha2 that v1alpha1 does not have, as paths in the object. A write through v1alpha1 drops them.
pub const ABSENT: &[&str] = &[
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
    "status.owedReconcileAt",
    "status.reconciliationFailures",
];
