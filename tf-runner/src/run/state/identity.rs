//! The identity of the state: whether a plan is made from the state that the last apply left, and which state an apply leaves.

use std::path::Path;

use sluice_api::run::PlanEffects;
use sluice_api::run::state::StateIdentity;
use sluice_tf_core::state_summary::StateSummary;
use sluice_tf_core::workdir::read_limited;

use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;
use crate::run::state;
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

/// Records the state that an apply left: as computed from the state before and the effects of the plan, or as it is. A failure is only
/// logged.
pub(crate) async fn record_applied(session: &RunSession<'_>) {
    let RunSession { run, cli, .. } = session;
    let pulled = cli.pulled_state.borrow().clone();
    let before = match pulled {
        Some(file) => identify(session, &file).await.ok(),
        None => None,
    };
    let effects = cli.status.snapshot().effects;
    match before.and_then(|before| state_after(before, effects.as_ref(), run.spec.destroy)) {
        Some(after) => record(session, after),
        None => record_pulled(session, |found| !found.lineage.is_empty()).await,
    }
}

/// Records the state of a plan without changes, if none is known at its location: it has all resources of the module. Without
/// resources it may be another one, which a module without resources cannot show.
pub(crate) async fn record_unchanged(session: &RunSession<'_>) {
    let check = &session.bundle.state_check;
    let known = check.known.as_ref();
    if known.is_none_or(|known| known.state.location != check.location) {
        record_pulled(session, |found| found.resources > 0).await;
    }
}

/// Returns the state after an apply with these effects. `None`: it has to be read, because the apply may have given an empty state its
/// lineage, or may have left no resources.
fn state_after(before: StateIdentity, effects: Option<&PlanEffects>, destroy: bool) -> Option<StateIdentity> {
    let effects = effects.filter(|effects| !destroy && effects.deletes == 0 && effects.forgets == 0)?;
    (before.resources > 0).then(|| StateIdentity {
        resources: before
            .resources
            .saturating_add(effects.creates)
            .saturating_add(effects.imports),
        ..before
    })
}

async fn record_pulled(session: &RunSession<'_>, is_recognisable: impl Fn(&StateIdentity) -> bool) {
    let found = async {
        let file = state::pull(&session.cli).await?;
        identify(session, &file).await
    };
    match found.await {
        Ok(found) if is_recognisable(&found) => record(session, found),
        Ok(_) => {}
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the state after the apply cannot be identified"
        ),
    }
}

/// Records the state, unless the next run does not find it and is known not to.
fn record(session: &RunSession<'_>, found: StateIdentity) {
    let RunSession { bundle, cli, .. } = session;
    if state::outlives_run(&cli.module, &bundle.workspace) {
        cli.status.buffer(|status| status.state = Some(found));
    }
}

/// Identifies the state in a file that the CLI wrote.
async fn identify(session: &RunSession<'_>, file: &Path) -> Result<StateIdentity, RunError> {
    let location = session.bundle.state_check.location.clone();
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
    Ok(StateIdentity {
        lineage: summary.lineage,
        resources: i64::try_from(summary.resources).unwrap_or(i64::MAX),
        location,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
