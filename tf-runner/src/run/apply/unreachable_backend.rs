//! Repeats an apply that could not lock the state because its backend was unreachable. Otherwise the apply would use up the
//! approval without any effect.
//!
//! The apply is repeated only if it is certain to have done nothing: the CLI reports that it could not acquire the lock, or not
//! load the state, which it does first; it names a failed connection and no holder; it reported no step; and it left no state
//! behind.

use std::time::Duration;

use kube::Api;
use sluice_api::run::{Action, TerraformRun};
use sluice_tf_core::cli::lock;
use sluice_tf_core::cli::process::CommandExit;
use sluice_tf_core::cli::text::strip_formatting;
use sluice_tf_core::errored_state;
use tokio::time::Instant;

use crate::run::cli::Cli;
use crate::run::cli::raw_output::RawOutput;
use crate::run::lifecycle::approval;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::lifecycle::session::RunSession;
use crate::run::state_lock::retry_after_unlock;

const MAX_REPETITIONS: u32 = 5;
/// Delay before the first repetition. It doubles each time. The backend may be another service than the API that is polled.
const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The CLI's errors for a lock that it could not acquire, and for a state that it could not load before.
const LOCK_ERRORS: [&str; 2] = ["Error acquiring the state lock", "Error: error loading state:"];
/// Connection errors of Go and of the API server.
const CONNECTION_ERRORS: [&str; 12] = [
    "connection refused",
    "connection reset",
    "connection timed out",
    "no route to host",
    "network is unreachable",
    "no such host",
    "i/o timeout",
    "handshake timeout",
    "context deadline exceeded",
    "Client.Timeout exceeded",
    "currently unable to handle the request",
    "EOF",
];

/// Runs the apply, and repeats it while its backend is unreachable and nothing was done.
pub(crate) async fn retry_unreachable_backend(
    session: &RunSession<'_>,
    step: Step,
    args: &[String],
) -> Result<CommandExit, RunError> {
    let mut delay = FIRST_DELAY;
    for _ in 0..MAX_REPETITIONS {
        let applied = retry_after_unlock(session, step, args, &[0]).await;
        let Err(RunError::Command { raw_output, .. }) = &applied else {
            return applied;
        };
        if !did_nothing(&session.cli, raw_output) || !wait_for_api(session, delay).await {
            return applied;
        }
        delay *= 2;
        // The approval may have been withdrawn meanwhile.
        recheck(session).await?;
        tracing::warn!(
            "the apply could not lock the state and did nothing, because its backend was unreachable: it is repeated"
        );
    }
    retry_after_unlock(session, step, args, &[0]).await
}

fn did_nothing(cli: &Cli<'_>, raw_output: &RawOutput) -> bool {
    let has_errored_state = cli.module.join(errored_state::FILE).exists();
    !cli.is_unsaved.get()
        && !has_errored_state
        && raw_output.reports_nothing()
        && raw_output.errors_match(is_unreachable)
}

/// Whether an error is about a lock that could not be requested, and not about one that is held (pure).
fn is_unreachable(text: &str) -> bool {
    let plain = strip_formatting(text);
    // The CLI wraps long lines.
    let words: Vec<_> = plain.split_whitespace().collect();
    let words = words.join(" ");
    LOCK_ERRORS.iter().any(|error| words.contains(error))
        && lock::parse(text).is_none()
        && !words.contains("Lock Info:")
        && CONNECTION_ERRORS.iter().any(|error| words.contains(error))
}

/// Waits until the API answers, and at least for the delay; `false` when the run has to end before.
async fn wait_for_api(session: &RunSession<'_>, delay: Duration) -> bool {
    let RunSession { context, cli, .. } = session;
    let api: Api<TerraformRun> = context.api();
    let until = Instant::now() + delay;
    let answers = async {
        // The run itself, because limited credentials permit nothing else.
        let answer = context.retry(|| api.get_metadata(&context.settings.run)).await;
        tokio::time::sleep_until(until).await;
        answer.is_ok()
    };
    tokio::select! {
        answered = answers => answered,
        () = cli.limits.stop.cancelled() => false,
        () = tokio::time::sleep_until(cli.limits.deadline) => false,
    }
}

async fn recheck(session: &RunSession<'_>) -> Result<(), RunError> {
    if session.run.spec.action == Action::Apply {
        return approval::recheck_approval(session.context, session.run).await;
    }
    match approval::wait_reason(session).await? {
        None => Ok(()),
        Some(reason) => Err(RunError::Superseded(format!("not applied: {reason}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of the kubernetes backend, with the line breaks of the CLI.
    const REFUSED: &str = "exit status 1\n\nError: Error acquiring the state lock\n\nError message: Get\n\
        \"https://127.0.0.1:36071/apis/coordination.k8s.io/v1/namespaces/team/leases/lock-tfstate-default-net\":\n\
        dial tcp 127.0.0.1:36071: connect: connection\nrefused\n\nTerraform acquires a state lock to protect the state\n";

    #[test]
    fn a_lock_that_could_not_be_asked_for_is_told_from_one_that_is_held() {
        let earlier = "Error: error loading state: Get \"https://127.0.0.1:41465/api/v1/namespaces/team/secrets\": dial tcp\n\
            127.0.0.1:41465: connect: connection refused";
        assert!(is_unreachable(REFUSED) && is_unreachable(earlier));
        for (what, text) in [
            (
                "held",
                REFUSED.replace("refused", "refused\nLock Info:\n  ID: fd27f73e\n  Who: root@vm"),
            ),
            (
                "held, by nobody who is named",
                REFUSED.replace("refused", "refused\nLock Info:\n"),
            ),
            (
                "forbidden",
                REFUSED.replace("connection\nrefused", "leases is forbidden"),
            ),
            (
                "later than the lock",
                REFUSED.replace(LOCK_ERRORS[0], "Failed to save state"),
            ),
            (
                "a provider's",
                "Error: creating: dial tcp: connection refused".to_owned(),
            ),
        ] {
            assert!(!is_unreachable(&text), "{what}");
        }
    }
}
