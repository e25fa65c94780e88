//! An apply that began nothing, because its backend could not be reached for the state lock: it is repeated. The approval would
//! else be used up by an apply that never was.
//!
//! That nothing was done is proved before: the CLI says that it could not acquire the lock, or not even look for the state, which
//! it does before anything else; it names a connection that failed and no holder; it has told of no step; and it left no state behind.

use std::time::Duration;

use kube::Api;
use sluice_api::run::{Action, TerraformRun};
use tokio::time::Instant;

use crate::run::commands::raw_output::RawOutput;
use crate::run::commands::workspace::Workspace;
use crate::run::lifecycle::api_retry::patiently;
use crate::run::lifecycle::approval;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::state_lock::unlock;
use sluice_tf_core::cli::lock;
use sluice_tf_core::cli::process::CommandExit;
use sluice_tf_core::cli::text::strip_formatting;
use sluice_tf_core::errored_state;

/// How often such an apply is repeated.
const REPEATS: u32 = 5;
/// The wait before the first repetition; doubled each time. The backend may be another service than the one that is asked.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The CLI's words for a lock that it could not take, and for a state that it could not even look for, which comes before.
const NO_LOCK: [&str; 2] = ["Error acquiring the state lock", "Error: error loading state:"];
/// How a connection fails, in the words of Go and of the API server.
const AWAY: [&str; 12] = [
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

/// Runs the apply; once more, a few times at most, while its backend is away and nothing was done.
pub(crate) async fn outlasting(
    context: &Context,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
    step: Step,
    words: &[String],
) -> Result<CommandExit, RunError> {
    let mut wait = FIRST_WAIT;
    for _ in 0..REPEATS {
        let applied = unlock::retrying(context, workspace, step, words, &[0]).await;
        let Err(RunError::Command { raw_output, .. }) = &applied else {
            return applied;
        };
        if !has_begun_nothing(workspace, raw_output) || !is_back(context, workspace, wait).await {
            return applied;
        }
        wait *= 2;
        // Somebody may have thought better of it meanwhile.
        still_wanted(context, workspace, run).await?;
        tracing::warn!(
            "the apply could not take the state lock and did nothing, because its backend was away: it is repeated"
        );
    }
    unlock::retrying(context, workspace, step, words, &[0]).await
}

fn has_begun_nothing(workspace: &Workspace<'_>, raw_output: &RawOutput) -> bool {
    let left_a_state = workspace.module.join(errored_state::FILE).exists();
    !workspace.is_unsaved.get()
        && !left_a_state
        && raw_output.told_of_nothing()
        && raw_output.is(is_out_of_reach)
}

/// Whether an error is about a lock that could not be asked for, and not about one that somebody holds. Pure.
fn is_out_of_reach(text: &str) -> bool {
    let plain = strip_formatting(text);
    // The CLI breaks lines wherever they are long.
    let words: Vec<_> = plain.split_whitespace().collect();
    let words = words.join(" ");
    NO_LOCK.iter().any(|no_lock| words.contains(no_lock))
        && lock::parse(text).is_none()
        && !words.contains("Lock Info:")
        && AWAY.iter().any(|away| words.contains(away))
}

/// Waits until the API answers, and at least so long; `false` when the run has to end before.
async fn is_back(context: &Context, workspace: &Workspace<'_>, wait: Duration) -> bool {
    let api: Api<TerraformRun> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let until = Instant::now() + wait;
    let answers = async {
        // The run itself: limited credentials open nothing that is not its own.
        let answer = patiently(context.settings.patience, || {
            api.get_metadata(&context.settings.run)
        })
        .await;
        tokio::time::sleep_until(until).await;
        answer.is_ok()
    };
    tokio::select! {
        is_back = answers => is_back,
        () = workspace.limits.stop.cancelled() => false,
        () = tokio::time::sleep_until(workspace.limits.deadline) => false,
    }
}

async fn still_wanted(
    context: &Context,
    workspace: &Workspace<'_>,
    run: &TerraformRun,
) -> Result<(), RunError> {
    if run.spec.action == Action::Apply {
        return approval::recheck_approval(context, run).await;
    }
    match approval::wait_reason(context, workspace.reporter, run).await? {
        None => Ok(()),
        Some(why) => Err(RunError::Superseded(format!("not applied: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kubernetes backend words it, broken where the CLI breaks lines.
    const REFUSED: &str = "exit status 1\n\nError: Error acquiring the state lock\n\nError message: Get\n\
        \"https://127.0.0.1:36071/apis/coordination.k8s.io/v1/namespaces/team/leases/lock-tfstate-default-net\":\n\
        dial tcp 127.0.0.1:36071: connect: connection\nrefused\n\nTerraform acquires a state lock to protect the state\n";

    #[test]
    fn a_lock_that_could_not_be_asked_for_is_told_from_one_that_is_held() {
        let earlier = "Error: error loading state: Get \"https://127.0.0.1:41465/api/v1/namespaces/team/secrets\": dial tcp\n\
            127.0.0.1:41465: connect: connection refused";
        assert!(is_out_of_reach(REFUSED) && is_out_of_reach(earlier));
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
                REFUSED.replace(NO_LOCK[0], "Failed to save state"),
            ),
            (
                "a provider's",
                "Error: creating: dial tcp: connection refused".to_owned(),
            ),
        ] {
            assert!(!is_out_of_reach(&text), "{what}");
        }
    }
}
