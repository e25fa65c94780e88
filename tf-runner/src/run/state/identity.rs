//! The identity of the state: whether a plan is made from the state that the last apply left, and which state an apply leaves.

use std::path::Path;

use sluice_api::run::PlanEffects;
use sluice_api::run::state::StateIdentity;
use sluice_tf_core::bundle::StateCheck;
use sluice_tf_core::state_summary::StateSummary;
use sluice_tf_core::workdir::read_limited;

use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;
use crate::run::state::{self, committed_state};
use crate::run::workdir::directory_error;

/// Largest state that is read.
const LIMIT: u64 = 256 * 1024 * 1024;

/// Records how the state that a plan with changes is made from differs from the one that the last apply left.
pub(crate) async fn check(session: &RunSession<'_>) -> Result<(), RunError> {
    let RunSession { bundle, cli, .. } = session;
    let Some(known) = &bundle.state_check.known else {
        return Ok(());
    };
    let file = state::pull_once(cli).await?;
    let found = identify(session, &file).await?;
    if let Some(mismatch) = known.mismatch(&found) {
        tracing::warn!(%mismatch, "the plan is made from another state than that of the last apply");
        cli.status
            .buffer(|status| status.state_mismatch = mismatch.to_string());
    }
    Ok(())
}

/// Records the state that an apply left, unless it is known already. A failure is only logged.
pub(crate) async fn record_applied(session: &RunSession<'_>) {
    let status = session.cli.status.snapshot();
    let check = &session.bundle.state_check;
    if may_differ(check, session.run.spec.destroy, status.effects.as_ref()) {
        record(session, |found| !found.lineage.is_empty()).await;
    }
}

/// Records the state of a plan without changes, if none is known at its location: it has all resources of the module. Without
/// resources it may be another one, which a module without resources cannot show.
pub(crate) async fn record_unchanged(session: &RunSession<'_>) {
    if is_unknown(&session.bundle.state_check) {
        record(session, |found| found.resources > 0).await;
    }
}

/// Whether the state of the last apply is unknown, or was at another location.
fn is_unknown(check: &StateCheck) -> bool {
    let known = check.known.as_ref();
    known.is_none_or(|known| known.state.location != check.location)
}

/// Whether what is known about the state may be wrong after an apply with these effects: it may be another state, or may have no
/// resources left.
fn may_differ(check: &StateCheck, destroy: bool, effects: Option<&PlanEffects>) -> bool {
    let removes = |effects: &PlanEffects| effects.deletes > 0 || effects.forgets > 0;
    is_unknown(check) || destroy || effects.is_none_or(removes)
}

async fn record(session: &RunSession<'_>, is_recognisable: impl Fn(&StateIdentity) -> bool) {
    let cli = &session.cli;
    let found = async {
        let file = state::pull(cli).await?;
        identify(session, &file).await
    };
    match found.await {
        Ok(found) if is_recognisable(&found) => cli.status.buffer(|status| status.state = Some(found)),
        Ok(_) => {}
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the state after the apply cannot be identified"
        ),
    }
}

/// Identifies the state in a file that the CLI wrote.
async fn identify(session: &RunSession<'_>, file: &Path) -> Result<StateIdentity, RunError> {
    let location = session.bundle.state_check.location.clone();
    if committed_state::has_no_state(file)? {
        return Ok(StateIdentity {
            location,
            ..StateIdentity::default()
        });
    }
    let file = file.to_owned();
    let read_error = |source| directory_error("read the state", source);
    let summary = tokio::task::spawn_blocking(move || {
        let bytes = read_limited(&file, LIMIT).map_err(read_error)?;
        Ok::<_, RunError>(StateSummary::parse(&bytes)?)
    });
    let summary = summary
        .await
        .map_err(|error| read_error(std::io::Error::other(error)))??
        .unwrap_or_default();
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Ok(StateIdentity {
        lineage: summary.lineage,
        serial: count(summary.serial),
        resources: count(summary.resources),
        location,
    })
}

#[cfg(test)]
mod tests {
    use sluice_api::run::state::KnownState;

    use super::*;

    #[test]
    fn the_state_is_identified_again_where_it_may_have_changed() {
        let location = |workspace: &str| [("workspace".to_owned(), workspace.to_owned())].into();
        let unknown = StateCheck {
            location: location("default"),
            known: None,
        };
        let known = |workspace: &str| StateCheck {
            known: Some(KnownState {
                run: "net-u-1".into(),
                state: StateIdentity {
                    lineage: "l".into(),
                    location: location(workspace),
                    ..StateIdentity::default()
                },
            }),
            ..unknown.clone()
        };
        let creates = PlanEffects {
            creates: 2,
            updates: 1,
            ..PlanEffects::default()
        };
        let deletes = PlanEffects {
            deletes: 1,
            ..PlanEffects::default()
        };
        let here = known("default");
        assert!(!may_differ(&here, false, Some(&creates)) && !is_unknown(&here));
        assert!(may_differ(&here, false, Some(&deletes)));
        assert!(may_differ(&here, true, Some(&creates)));
        assert!(may_differ(&here, false, None), "a stored plan");
        for other in [unknown.clone(), known("blue")] {
            assert!(is_unknown(&other) && may_differ(&other, false, Some(&creates)));
        }
    }
}
