//! The identity of the state: whether a plan is made from the state that the last apply left, and which state an apply leaves.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use sluice_api::run::state::{ApprovalEffect, KnownState, StateIdentity, StateMismatch};
use sluice_api::run::{PlanEffects, TerraformRunSpec, Trigger};
use sluice_api::terraform::Terraform;
use sluice_tf_core::state_summary::StateSummary;
use sluice_tf_core::workdir::read_limited;

use crate::run::lifecycle::approval;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;
use crate::run::state::{self, state_secret};
use crate::run::workdir::directory_error;

/// Largest state that is read.
const LIMIT: u64 = 256 * 1024 * 1024;
/// Timeout for the query of the state after a failed apply: a run that was stopped has few seconds.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Compares the state that a plan is made from with the one that the last apply left, and records how they differ. A state above
/// [`LIMIT`] is not compared.
pub(crate) async fn check(
    session: &RunSession<'_>,
    has_changes: bool,
) -> Result<Option<StateMismatch>, RunError> {
    let RunSession { run, bundle, cli, .. } = session;
    let known = bundle.state_check.known.as_ref();
    let is_comparable = known.is_some() || (has_changes && is_unapplied_deletion(session).await?);
    if !is_comparable {
        return Ok(None);
    }
    let file = state::pull_once(cli).await?;
    let Some(found) = identify(session, &file).await? else {
        return Ok(None);
    };
    let mismatch = match known {
        Some(known) => known.mismatch(&found),
        None => StateMismatch::of_unapplied_stack(&found),
    };
    if let Some(mismatch) = &mismatch {
        let advice = mismatch.advice(approval_effect(&run.spec));
        tracing::warn!(mismatch = %advice, "the plan is made from another state than that of the last apply");
        cli.status.buffer(|status| status.state_mismatch = advice);
    }
    Ok(mismatch)
}

fn approval_effect(run: &TerraformRunSpec) -> ApprovalEffect {
    match run.trigger {
        Trigger::Deletion => ApprovalEffect::DestroyOnDeletion,
        _ if run.destroy => ApprovalEffect::Destroy,
        _ => ApprovalEffect::Continue,
    }
}

/// Whether the run destroys for a deleted object that has never applied, not with tofu-controller either: resources that it finds may
/// be those of another stack, although no edit moved the state.
async fn is_unapplied_deletion(session: &RunSession<'_>) -> Result<bool, RunError> {
    let RunSession {
        context, run, bundle, ..
    } = session;
    if run.spec.trigger != Trigger::Deletion || bundle.last_apply.is_some() {
        return Ok(false);
    }
    let terraform = approval::read_terraform(context, run).await?;
    Ok(terraform.as_ref().is_none_or(never_applied))
}

/// Whether the status names no applied revision. tofu-controller records it too.
fn never_applied(terraform: &Terraform) -> bool {
    let status = terraform.status.as_ref();
    status.is_none_or(|status| status.last_applied_revision.is_empty())
}

/// Records the state that an apply left: as computed from the state before and the effects of the plan, or as it is. A failure is only
/// logged.
pub(crate) async fn record_applied(session: &RunSession<'_>) {
    let RunSession { run, cli, .. } = session;
    if !is_found_again(session) {
        return;
    }
    let pulled = cli.pulled_state.borrow().clone();
    let before = match pulled {
        Some(file) => identify(session, &file).await.ok().flatten(),
        None => None,
    };
    let effects = cli.status.snapshot().effects;
    if let Some(after) = before.and_then(|before| state_after(before, effects.as_ref(), run.spec.destroy)) {
        record(session, after);
        return;
    }
    record_if(session, find(session).await, |found| !found.lineage.is_empty());
}

/// Records the state that a failed apply left, if it has resources: the next plan must not be made without them. The query has its own
/// limits, because the run may have been stopped.
pub(crate) async fn record_failed(session: &RunSession<'_>, error: &RunError) {
    let cli = &session.cli;
    let has_begun = cli.status.snapshot().attempted_apply && may_have_applied(error);
    if !has_begun || !is_found_again(session) {
        return;
    }
    let found = async {
        let file = state::query(cli, QUERY_TIMEOUT).await?;
        identify(session, &file).await
    };
    record_if(session, found.await, |found| found.resources > 0);
}

/// Whether an apply that ended with this error may have changed the state. If not, the run does not record the state: no user has approved it.
const fn may_have_applied(error: &RunError) -> bool {
    matches!(error, RunError::Command { .. } | RunError::Stopped { .. })
}

/// Records the state of a plan without changes, if none is known at its location and it is not another one than the known state.
pub(crate) async fn record_unchanged(session: &RunSession<'_>) {
    let check = &session.bundle.state_check;
    let known = check.known.as_ref();
    let is_known = known.is_some_and(|known| known.state.location == check.location);
    if is_known || !is_found_again(session) {
        return;
    }
    record_if(session, find(session).await, |found| replaces(known, found));
}

/// Whether the state of a plan without changes becomes the known one. Such a plan needs no approval, so another state does not: it may
/// belong to another stack with the same module, or the module may have no resources.
fn replaces(known: Option<&KnownState>, found: &StateIdentity) -> bool {
    known.is_none_or(|known| known.mismatch(found).is_none())
}

/// Returns the state after an apply with these effects. `None`: it has to be read, because the apply may have given an empty state its
/// lineage, or may have left no resources.
fn state_after(before: StateIdentity, effects: Option<&PlanEffects>, destroy: bool) -> Option<StateIdentity> {
    let effects = effects.filter(|effects| !destroy && effects.deletes == 0 && effects.forgets == 0)?;
    let added = effects.creates.saturating_add(effects.imports);
    (before.resources > 0).then(|| StateIdentity {
        resources: before.resources.saturating_add(added),
        // A new resource is written with at least one new serial. An update may leave the state as it is.
        serial: before.serial.saturating_add(i64::from(added > 0)),
        ..before
    })
}

async fn find(session: &RunSession<'_>) -> Result<Option<StateIdentity>, RunError> {
    if let Some(summary) = state_secret::read(session).await {
        return Ok(Some(identity_of(session, summary)));
    }
    let file = state::pull(&session.cli).await?;
    identify(session, &file).await
}

fn record_if(
    session: &RunSession<'_>,
    found: Result<Option<StateIdentity>, RunError>,
    is_recognisable: impl Fn(&StateIdentity) -> bool,
) {
    match found {
        Ok(Some(found)) if is_recognisable(&found) => record(session, found),
        Ok(_) => {}
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the state cannot be identified"
        ),
    }
}

fn record(session: &RunSession<'_>, found: StateIdentity) {
    session.cli.status.buffer(|status| status.state = Some(found));
}

/// Whether the next run finds the state of this one.
fn is_found_again(session: &RunSession<'_>) -> bool {
    state::outlives_run(&session.cli.module, &session.bundle.workspace)
}

/// Identifies the state in a file that the CLI wrote. `None`: it is larger than [`LIMIT`].
async fn identify(session: &RunSession<'_>, file: &Path) -> Result<Option<StateIdentity>, RunError> {
    let file = file.to_owned();
    let summary = tokio::task::spawn_blocking(move || summarize(&file, LIMIT)).await;
    let summary = summary.map_err(|error| read_error(std::io::Error::other(error)))??;
    Ok(summary.map(|summary| identity_of(session, summary)))
}

fn identity_of(session: &RunSession<'_>, summary: StateSummary) -> StateIdentity {
    StateIdentity {
        lineage: summary.lineage,
        resources: i64::try_from(summary.resources).unwrap_or(i64::MAX),
        serial: i64::try_from(summary.serial).unwrap_or(i64::MAX),
        location: session.bundle.state_check.location.clone(),
    }
}

/// Summarizes the state in a file. `None`: the file is larger than the limit, and the state is not compared. A missing state has an
/// empty summary.
fn summarize(file: &Path, limit: u64) -> Result<Option<StateSummary>, RunError> {
    match read_limited(file, limit) {
        Err(error) if error.kind() == ErrorKind::FileTooLarge => {
            tracing::warn!(%error, "the state is not compared with that of the last apply");
            Ok(None)
        }
        read => {
            let summary = StateSummary::parse(&read.map_err(read_error)?)?;
            Ok(Some(summary.unwrap_or_default()))
        }
    }
}

fn read_error(source: std::io::Error) -> RunError {
    directory_error("read the state", source)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::run::lifecycle::error::Step;

    #[test]
    fn an_object_that_tofu_controller_applied_has_applied() {
        for (status, expected) in [
            (json!(null), true),
            (json!({ "lastPlannedRevision": "main@sha1:a" }), true),
            (json!({ "lastAppliedRevision": "main@sha1:a" }), false),
        ] {
            let terraform: Terraform = serde_json::from_value(json!({
                "metadata": { "name": "app" }, "status": status,
                "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "repo" } },
            }))
            .unwrap();
            assert_eq!(never_applied(&terraform), expected, "{status}");
        }
    }

    #[test]
    fn a_new_resource_raises_the_serial_that_a_later_state_has_at_least() {
        let before = || StateIdentity {
            lineage: "l".into(),
            resources: 3,
            serial: 7,
            ..StateIdentity::default()
        };
        let serial = |effects: &PlanEffects| state_after(before(), Some(effects), false).unwrap().serial;
        let none = PlanEffects::default();
        for (effects, expected) in [
            (
                PlanEffects {
                    creates: 20,
                    ..none.clone()
                },
                8,
            ),
            (
                PlanEffects {
                    imports: 1,
                    ..none.clone()
                },
                8,
            ),
            // A provider may report an update without a difference.
            (
                PlanEffects {
                    updates: 2,
                    ..none.clone()
                },
                7,
            ),
            (
                PlanEffects {
                    replaces: 2,
                    ..none.clone()
                },
                7,
            ),
            (none.clone(), 7),
        ] {
            assert_eq!(serial(&effects), expected, "{effects:?}");
        }
    }

    #[test]
    fn a_plan_without_changes_does_not_accept_another_state() {
        let state = |lineage: &str, resources| StateIdentity {
            lineage: lineage.into(),
            resources,
            ..StateIdentity::default()
        };
        let replaces = |known: Option<(&str, i64)>, found: (&str, i64)| {
            let known = known.map(|(lineage, resources)| KnownState {
                run: "net-u-1".into(),
                state: state(lineage, resources),
            });
            replaces(known.as_ref(), &state(found.0, found.1))
        };
        // Recorded once, also without resources: otherwise each drift run would read the state.
        assert!(replaces(None, ("", 0)) && replaces(None, ("l", 0)) && replaces(None, ("l", 2)));
        assert!(replaces(Some(("", 0)), ("l", 2)) && replaces(Some(("l", 0)), ("m", 0)));
        assert!(replaces(Some(("l", 51)), ("l", 51)), "it was moved");
        assert!(!replaces(Some(("l", 51)), ("m", 51)) && !replaces(Some(("l", 51)), ("", 0)));
    }

    #[test]
    fn a_state_above_the_limit_is_not_compared() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state");
        let state = r#"{"version":4,"serial":7,"lineage":"l","resources":[]}"#;
        std::fs::write(&file, state).unwrap();
        let size = state.len() as u64;
        let summary = summarize(&file, size).unwrap().unwrap();
        assert_eq!((summary.lineage.as_str(), summary.serial), ("l", 7));
        assert_eq!(summarize(&file, size - 1).unwrap(), None);
        std::fs::write(&file, "").unwrap();
        assert_eq!(summarize(&file, size).unwrap(), Some(StateSummary::default()));
        std::fs::write(&file, "{ half").unwrap();
        assert!(summarize(&file, size).is_err());
    }

    #[test]
    fn the_state_of_an_apply_that_did_not_begin_is_not_recorded() {
        let stopped = RunError::Stopped {
            step: Step::Apply,
            why: String::new(),
            text: String::new(),
        };
        assert!(may_have_applied(&stopped));
        let stale = RunError::StalePlan { text: String::new() };
        assert!(!may_have_applied(&stale) && !may_have_applied(&RunError::Unreported));
    }

    #[test]
    fn the_state_after_an_apply_is_computed_unless_resources_are_removed() {
        let before = |resources| StateIdentity {
            lineage: "l".into(),
            resources,
            ..StateIdentity::default()
        };
        let effects = PlanEffects {
            creates: 2,
            imports: 1,
            updates: 1,
            replaces: 1,
            ..PlanEffects::default()
        };
        let after = |resources, effects: Option<&PlanEffects>, destroy| {
            state_after(before(resources), effects, destroy).map(|state| state.resources)
        };
        assert_eq!(after(3, Some(&effects), false), Some(6));
        assert_eq!(after(0, Some(&effects), false), None, "the first apply");
        assert_eq!(after(3, Some(&effects), true), None);
        assert_eq!(after(3, None, false), None, "a stored plan");
        for removes in [
            PlanEffects {
                deletes: 1,
                ..effects.clone()
            },
            PlanEffects {
                forgets: 1,
                ..effects.clone()
            },
        ] {
            assert_eq!(after(3, Some(&removes), false), None);
        }
    }
}
