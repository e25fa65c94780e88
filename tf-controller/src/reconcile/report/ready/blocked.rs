//! The conditions of a stack that waits for its dependencies, or with a destroy for its dependents.

use super::super::{DEPENDENCY_NOT_READY, Report};
use super::{ReadyConditions, ready, retrying, stalled};
use crate::decide::Dependencies;
use sluice_api::condition::ConditionStatus;
use sluice_api::terraform::Reason;

/// Reports a stack whose dependencies are not ready or can never be.
pub(super) fn dependencies(report: &Report<'_>) -> ReadyConditions {
    let refused = |reason: &str, text: &str| ready(ConditionStatus::False, reason, text);
    match &report.facts.dependencies {
        Dependencies::Denied(text) => stalled(refused(Reason::AccessDenied.as_str(), text)),
        Dependencies::Cycle(text) => stalled(refused("DependencyCycle", text)),
        Dependencies::Waiting(text) => retrying(refused(DEPENDENCY_NOT_READY, text)),
        Dependencies::Ready => retrying(refused(DEPENDENCY_NOT_READY, "")),
    }
}

/// Reports dependents that have to be removed first.
pub(super) fn dependents(report: &Report<'_>, names: &[String]) -> ReadyConditions {
    let names = names.join(", ");
    let (reason, mut text) = if report.facts.deleting {
        let text = format!("Deletion in progress, but blocked. Please delete {names} to resume ...");
        ("DeletionBlockedByDependantsReason", text)
    } else {
        let text =
            format!("Destroy in progress, but blocked. Please destroy or delete {names} to resume ...");
        ("DestroyBlockedByDependants", text)
    };
    if let Dependencies::Cycle(cycle) = &report.facts.dependencies {
        text = format!("{text} ({cycle})");
    }
    retrying(ready(ConditionStatus::False, reason, text))
}
