//! What a stack says that waits for others: for those that it builds on, or with a destroy for those that build on it.

use super::super::{DEPENDENCY_NOT_READY, Report};
use super::{Told, ready, retried, stalled};
use crate::decide::Dependencies;
use sluice_api::condition::Truth;

/// It waits for what it builds on, or can never go on.
pub(super) fn dependencies(report: &Report<'_>) -> Told {
    let refused = |reason: &str, text: &str| ready(Truth::False, reason, text);
    match &report.facts.dependencies {
        Dependencies::Denied(text) => stalled(refused("AccessDenied", text)),
        Dependencies::Cycle(text) => stalled(refused("DependencyCycle", text)),
        Dependencies::Waiting(text) => retried(refused(DEPENDENCY_NOT_READY, text)),
        Dependencies::Ready => retried(refused(DEPENDENCY_NOT_READY, "")),
    }
}

/// Others build on it and are to go first.
pub(super) fn dependants(report: &Report<'_>) -> Told {
    let names = report.facts.dependants.join(", ");
    let (reason, mut text) = if report.facts.deleting {
        let text = format!("Deletion in progress, but blocked. Please delete {names} to resume ...");
        ("DeletionBlockedByDependantsReason", text)
    } else {
        let text =
            format!("Destroy in progress, but blocked. Please destroy or delete {names} to resume ...");
        ("DestroyBlockedByDependants", text)
    };
    if let Dependencies::Cycle(circle) = &report.facts.dependencies {
        text = format!("{text} ({circle})");
    }
    retried(ready(Truth::False, reason, text))
}
