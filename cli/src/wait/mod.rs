//! Waits until one object has a state: by a watch, with a deadline. Ctrl-C ends the waiting and nothing else.

mod line;
mod request;
mod result;
mod termination;

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Resource;
use kube::core::{NamespaceResourceScope, Status};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use line::ProgressLine;
pub(crate) use request::request;
pub use result::{run_result, source_result, stack_result};
use serde::de::DeserializeOwned;
pub(crate) use termination::Termination;

use crate::CliError;
use crate::cluster::{Cluster, describe};
use crate::error::root_cause;

/// How long a command waits, for commands that wait only if they are asked to.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct WaitArgs {
    /// Wait for the result; the exit code says what it is.
    #[arg(long)]
    pub wait: bool,
    /// How long to wait.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = sluice_runtime::args::duration)]
    pub timeout: Duration,
}

/// The object that is waited for.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How long to wait.
    pub timeout: Duration,
    /// The command that shows the state later; Ctrl-C prints it.
    pub return_command: String,
}

/// Whether an object has the awaited state, by one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// The waiting ends.
    Done(T),
    /// The object is not there yet; the text says what it does.
    Waiting(String),
}

/// Waits until `progress_of` says that the object is done. It gets each version that the watch delivers, and `None` while the object does
/// not exist. Standard error shows its text. A connection that drops is opened again.
///
/// # Errors
/// The error of `progress_of`; the timeout is over; the user pressed Ctrl-C; the API rejects the watch.
pub async fn until<K, T>(
    cluster: &Cluster,
    target: &Target,
    mut progress_of: impl FnMut(Option<&K>) -> Result<Progress<T>, CliError>,
) -> Result<T, CliError>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let object = describe::<K>(&target.namespace, &target.name);
    let api = cluster.objects_in::<K>(&target.namespace);
    let mut changes = pin!(watch_object(api, &target.name).default_backoff());
    let mut deadline = pin!(tokio::time::sleep(target.timeout));
    let mut interrupt = pin!(interrupted());
    let mut redraws = tokio::time::interval(line::REDRAW);
    let mut line = ProgressLine::new(&object);
    loop {
        tokio::select! {
            Some(change) = changes.next() => {
                let text = match change {
                    Ok(found) => match progress_of(found.as_ref())? {
                        Progress::Done(result) => return Ok(result),
                        Progress::Waiting(text) => text,
                    },
                    Err(error) => away(&error, &object)?,
                };
                line.show(&text);
            }
            _ = redraws.tick() => line.redraw(),
            () = &mut interrupt => return Err(CliError::Interrupted {
                object,
                next_command: target.return_command.clone(),
            }),
            () = &mut deadline => return Err(CliError::TimedOut {
                object,
                timeout: target.timeout,
                state: line.text().to_owned(),
                next_command: target.return_command.clone(),
            }),
        }
    }
}

/// Ends with the first Ctrl-C; never, if the signal cannot be received.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Returns the text for an API that is away for a while.
///
/// # Errors
/// Another attempt has the same result: the user may not watch the object, or there is no such kind.
pub(crate) fn away(error: &watcher::Error, object: &str) -> Result<String, CliError> {
    match answer(error) {
        Some(status) if is_final(status) => Err(CliError::Api {
            action: "watch",
            object: object.to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status.clone()))),
        }),
        Some(status) => Ok(format!(
            "the API answers {}, trying again ({})",
            status.code, status.message
        )),
        None => Ok(format!(
            "the API does not answer, trying again ({})",
            root_cause(error)
        )),
    }
}

/// Returns the answer of the API, if there is one.
fn answer(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    }
}

/// Returns whether an answer is the same for another attempt.
const fn is_final(status: &Status) -> bool {
    matches!(status.code, 400 | 401 | 403 | 404)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExitStatus;

    fn answered(code: u16) -> watcher::Error {
        let status = Status {
            code,
            message: "no".to_owned(),
            ..Status::default()
        };
        watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn only_an_answer_that_stays_the_same_ends_the_waiting() {
        for (code, is_final) in [
            (401, true),
            (403, true),
            (404, true),
            (410, false),
            (429, false),
            (503, false),
        ] {
            let result = away(&answered(code), "terraform default/app");
            assert_eq!(result.is_err(), is_final, "{code}");
        }
        let busy = away(&answered(503), "terraform default/app").unwrap();
        assert_eq!(busy, "the API answers 503, trying again (no)");
        let lost = away(&watcher::Error::NoResourceVersion, "terraform default/app").unwrap();
        assert!(
            lost.starts_with("the API does not answer, trying again ("),
            "{lost}"
        );
    }

    #[test]
    fn an_interrupted_command_says_how_to_come_back() {
        let error = CliError::Interrupted {
            object: "terraform default/app".to_owned(),
            next_command: "sluice get terraforms app".to_owned(),
        };
        assert_eq!(error.exit_status(), ExitStatus::Failed);
        assert_eq!(error.advice(), "sluice get terraforms app");
        assert_eq!(
            error.to_string(),
            "interrupted; terraform default/app goes on without this command"
        );
    }
}
