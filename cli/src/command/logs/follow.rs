//! Follows a run: the log of its pod, or what the run reports of itself where it is a process.

use std::time::Duration;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, ResourceExt as _};
use sluice_api::run::{Phase, TerraformRun};

use crate::cluster::describe;
use crate::command::Context;
use crate::output::{Tone, printable};
use crate::{CliError, ExitStatus, run};

/// Pause before the run is read again, and before a connection is opened again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// The container of the runner.
const CONTAINER: &str = "tf-runner";

/// Prints what a run prints until it ends. Exit code 0: it succeeded; 1: it did not.
pub(super) async fn follow(context: &Context, run: &TerraformRun) -> Result<ExitStatus, CliError> {
    let name = run.name_any();
    let mut follower = Follower::new(context, &name);
    let result = tokio::select! {
        result = follower.follow(run.clone()) => result,
        _ = tokio::signal::ctrl_c() => {
            context.console.note(&format!("\nThe run goes on. `sluice logs {} -f` comes back.", run.spec.terraform.name));
            return Ok(ExitStatus::Failed);
        }
    };
    let ended = result?;
    let phase = run::phase(&ended);
    let status = ended.status.clone().unwrap_or_default();
    let text = format!(
        "Run {} {}: {}",
        run::number(&ended),
        phase.as_str(),
        status.message
    );
    context
        .console
        .note(&context.console.paint(run::tone(phase), &text));
    Ok(if phase == Phase::Succeeded {
        ExitStatus::Success
    } else {
        ExitStatus::Failed
    })
}

struct Follower<'a> {
    context: &'a Context,
    name: &'a str,
    /// The time of the last line that was printed.
    last: Option<Timestamp>,
    /// The phase that was printed last.
    phase: Option<Phase>,
    /// The end of the log that was printed last, where there is no pod.
    tail: String,
    /// Whether the user knows that the API is away.
    is_away: bool,
}

impl<'a> Follower<'a> {
    const fn new(context: &'a Context, name: &'a str) -> Self {
        Self {
            context,
            name,
            last: None,
            phase: None,
            tail: String::new(),
            is_away: false,
        }
    }

    /// Returns the run when it has ended.
    async fn follow(&mut self, mut run: TerraformRun) -> Result<TerraformRun, CliError> {
        loop {
            self.print_phase(&run);
            let printed = match claimed_pod(&run) {
                Some((namespace, pod)) => self.print_pod_log(&namespace, &pod).await,
                None => self.print_tail(&run),
            };
            let is_printed = self.unless_away(printed)?.is_some();
            if run::phase(&run).is_final() {
                return Ok(run);
            }
            tokio::time::sleep(PAUSE).await;
            let found = self.context.cluster.get(self.name).await;
            if let Some(found) = self.unless_away(found)? {
                self.is_away &= !is_printed;
                run = found;
            }
        }
    }

    /// Returns `None` if the API is away or overloaded, and says so once: the run goes on, and is read again later.
    fn unless_away<T>(&mut self, result: Result<T, CliError>) -> Result<Option<T>, CliError> {
        match result {
            Err(error) if error.is_temporary() => {
                if !self.is_away {
                    self.is_away = true;
                    let text = format!("The log is interrupted, trying again: {error}");
                    self.context.console.note(&printable(&text));
                }
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    fn print_phase(&mut self, run: &TerraformRun) {
        let phase = run::phase(run);
        if self.phase.replace(phase) == Some(phase) || phase.is_final() {
            return;
        }
        let waits = run
            .status
            .as_ref()
            .map(|status| status.message.as_str())
            .unwrap_or_default();
        let colon = if waits.is_empty() { "" } else { ": " };
        let text = format!("Run {} {}{colon}{waits}", run::number(run), phase.as_str());
        self.context
            .console
            .note(&self.context.console.paint(Tone::Muted, &text));
    }

    /// Prints the lines of a pod until its log ends or the connection drops; each line once.
    async fn print_pod_log(&mut self, namespace: &str, pod: &str) -> Result<(), CliError> {
        let api: Api<Pod> = self.context.cluster.objects_in(namespace);
        let params = LogParams {
            container: Some(CONTAINER.to_owned()),
            follow: true,
            since_time: self.last,
            timestamps: true,
            ..LogParams::default()
        };
        let stream = match api.log_stream(pod, &params).await {
            Ok(stream) => stream,
            // The pod is gone, or its container has not started: the run says more.
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404) => return Ok(()),
            Err(source) => {
                return Err(CliError::Api {
                    action: "get",
                    object: format!("the log of {}", describe::<Pod>(namespace, pod)),
                    source: Box::new(source),
                });
            }
        };
        let mut lines = stream.lines();
        // An error of the stream is a dropped connection: the caller opens it again from the last line.
        while let Ok(Some(line)) = lines.try_next().await {
            let (time, text) = split_time(&line);
            if time.is_some() && time <= self.last {
                continue;
            }
            self.last = time.or(self.last);
            self.context.console.data(&printable(&format!("{text}\n")))?;
        }
        Ok(())
    }

    /// Prints what is new at the end of the log in the status.
    fn print_tail(&mut self, run: &TerraformRun) -> Result<(), CliError> {
        let Some(status) = &run.status else { return Ok(()) };
        let added = added_lines(&self.tail, &status.log_tail);
        self.context.console.data(&printable(added))?;
        self.tail.clone_from(&status.log_tail);
        Ok(())
    }
}

/// Returns namespace and name of the pod that has claimed the run.
fn claimed_pod(run: &TerraformRun) -> Option<(String, String)> {
    let claim = run.status.as_ref()?.claim.as_ref()?;
    (!claim.pod.is_empty()).then(|| (claim.pod_namespace.clone(), claim.pod.clone()))
}

/// Splits the time from a line of a log with timestamps.
fn split_time(line: &str) -> (Option<Timestamp>, &str) {
    line.split_once(' ').map_or((None, line), |(time, text)| {
        time.parse().map_or((None, line), |time| (Some(time), text))
    })
}

/// Returns the part of `after` that follows `before`. Both are the end of one growing log, so the start of `before` may be gone.
fn added_lines<'a>(before: &str, after: &'a str) -> &'a str {
    if before.is_empty() {
        return after;
    }
    let starts = std::iter::once(0).chain(before.match_indices('\n').map(|(index, _)| index + 1));
    let overlap = starts
        .map(|start| &before[start..])
        .find(|rest| after.starts_with(rest));
    overlap.map_or(after, |overlap| &after[overlap.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_growing_log_is_printed_once() {
        for (before, after, added) in [
            ("", "a\n", "a\n"),
            ("a\n", "a\n", ""),
            ("a\n", "a\nb\n", "b\n"),
            ("a\nb\n", "b\nc\n", "c\n"),
            ("a\nb\n", "c\n", "c\n"),
        ] {
            assert_eq!(added_lines(before, after), added, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_line_has_the_time_of_the_kubelet() {
        let (time, text) = split_time("2026-01-01T00:00:00.5Z plan: 1 to add");
        assert_eq!(
            (time, text),
            ("2026-01-01T00:00:00.5Z".parse().ok(), "plan: 1 to add")
        );
        assert_eq!(split_time("no time"), (None, "no time"));
    }
}
