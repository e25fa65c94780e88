//! Whether Git hosts and artifacts can be reached: as the controllers have found, not from this machine, which has another network. Pure.

use kube::ResourceExt as _;
use sluice_api::condition::{SourceCondition, find};
use sluice_api::source::GitRepository;
use sluice_api::terraform::{Reason, Terraform};

use super::finding::{Finding, Outcome};
use crate::output::counted;
use crate::stack;

/// Judges the Git hosts by the last fetch of each source that is not suspended.
#[must_use]
pub(super) fn of_sources(sources: &[GitRepository]) -> Finding {
    let check = "Git hosts";
    if sources.is_empty() {
        return Finding::new(check, Outcome::Skipped, "there is no source");
    }
    let mut failed = sources.iter().filter_map(|source| {
        let condition = find(&source.status.as_ref()?.conditions, SourceCondition::FetchFailed)?;
        let fails = condition.status == "True" && !source.spec.suspend;
        fails.then_some((source, condition.message.as_str()))
    });
    let total = counted(sources.len(), "source");
    let Some((source, message)) = failed.next() else {
        return Finding::new(check, Outcome::Passed, format!("no fetch of {total} fails"));
    };
    let (name, namespace) = (source.name_any(), source.namespace().unwrap_or_default());
    let detail = detail(
        1 + failed.count(),
        &total,
        &format!("{namespace}/{name}"),
        message,
    );
    Finding::new(check, Outcome::Warning, detail).next(format!("sluice get sources {name} -n {namespace}"))
}

/// Judges the artifacts by the stacks that could not read theirs.
#[must_use]
pub(super) fn of_artifacts(stacks: &[Terraform]) -> Finding {
    let check = "artifacts";
    if stacks.is_empty() {
        return Finding::new(check, Outcome::Skipped, "there is no stack");
    }
    let mut failed = stacks.iter().filter_map(|stack| {
        let ready = stack::ready(stack)?;
        let fails = ready.reason == Reason::ArtifactFailed.as_str() && !stack.spec.suspend;
        fails.then_some((stack, ready.message.as_str()))
    });
    let total = counted(stacks.len(), "stack");
    let Some((stack, message)) = failed.next() else {
        return Finding::new(
            check,
            Outcome::Passed,
            format!("no artifact of {total} is missing"),
        );
    };
    let detail = detail(1 + failed.count(), &total, &stack::full_name(stack), message);
    let (name, namespace) = (stack.name_any(), stack.namespace().unwrap_or_default());
    Finding::new(check, Outcome::Warning, detail).next(format!("sluice describe {name} -n {namespace}"))
}

/// Returns how many fail, and why the first one does.
fn detail(failed: usize, total: &str, first: &str, message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    format!("{failed} of {total} failed: {first}: {line}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture;

    fn source(status: &Value, suspend: bool) -> GitRepository {
        serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "repo", "namespace": "team"},
            "spec": {"interval": "1m", "url": "https://git.example/a.git", "suspend": suspend},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_git_host_that_cannot_be_reached_is_named_by_its_source() {
        let failed = json!({"conditions": [fixture::condition("FetchFailed", "True", "GitOperationFailed")]});
        let sources = [source(&json!({}), false), source(&failed, false)];
        let finding = of_sources(&sources);
        assert_eq!(
            (finding.result, finding.detail.as_str(), finding.next.as_str()),
            (
                Outcome::Warning,
                "1 of 2 sources failed: team/repo: m",
                "sluice get sources repo -n team"
            )
        );
        assert_eq!(of_sources(&sources[..1]).result, Outcome::Passed);
        assert_eq!(of_sources(&[source(&failed, true)]).result, Outcome::Passed);
        assert_eq!(of_sources(&[]).result, Outcome::Skipped);
    }

    #[test]
    fn an_artifact_that_cannot_be_read_is_named_by_its_stack() {
        let stack = |reason: &str| fixture::stack(&json!({ "status": fixture::ready("False", reason) }));
        let stacks = [stack("ArtifactFailed"), stack("TFExecPlanFailed")];
        let finding = of_artifacts(&stacks);
        assert_eq!(
            (finding.result, finding.detail.as_str(), finding.next.as_str()),
            (
                Outcome::Warning,
                "1 of 2 stacks failed: team/app: m",
                "sluice describe app -n team"
            )
        );
        assert_eq!(of_artifacts(&stacks[1..]).result, Outcome::Passed);
        assert_eq!(of_artifacts(&[]).result, Outcome::Skipped);
    }
}
