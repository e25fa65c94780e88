//! The log of a run: what its commands print, without sensitive values.
//!
//! In a pod, standard output is printed as it comes, redacted with the values that are known then. The error output follows at the
//! end of the command; that of a failed command with the next command or at the end of the run, since the sensitive values of the
//! state are read after a failure, and providers quote them in errors. At the end of the run, the end of the log goes to its
//! status. If that is not all, the log of a pod goes to Secrets, because its files are deleted with the pod. The log of a process
//! stays in its files.

mod collect;
mod follow;
pub(crate) mod pod_log;
mod store;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::PathBuf;

use collect::{CollectedLog, PRINTED_ENDS, collect, copy_file, last_output};
use follow::Follower;
use k8s_openapi::api::core::v1::Secret;
use pod_log::PodLog;
use sluice_api::run::{RunStatusLimit, TerraformRun};
use sluice_tf_core::redaction::Redactor;
use sluice_tf_core::run_log::{self, LogLines};
use store::record_error;
pub(crate) use store::store_parts;

use crate::run::lifecycle::context::Context;
use crate::run::status::StatusWriter;

/// Upstream's variable, of the runner or of the stack's runner pod, that turns the log of commands off.
pub(crate) const DISABLE_VARIABLE: &str = "DISABLE_TF_LOGS";

/// A command whose output belongs to the log.
#[derive(Clone, Debug)]
pub(crate) struct LoggedCommand {
    /// Program and arguments.
    pub(crate) title: String,
    /// The file of its standard output, unless that may be sensitive.
    pub(crate) stdout: Option<PathBuf>,
    /// The file of its error output.
    pub(crate) stderr: PathBuf,
}

/// The log of one run.
pub(crate) struct RunLog {
    pod: Option<PodLog>,
    is_disabled: Cell<bool>,
    commands: RefCell<Vec<LoggedCommand>>,
    /// Failed commands whose error output is not printed yet.
    failed: RefCell<Vec<LoggedCommand>>,
}

impl RunLog {
    /// An empty log. `pod` is the log of the pod, if the run has one.
    pub(crate) const fn new(pod: Option<PodLog>) -> Self {
        Self {
            pod,
            is_disabled: Cell::new(false),
            commands: RefCell::new(Vec::new()),
            failed: RefCell::new(Vec::new()),
        }
    }

    /// Keeps the output of commands out of the pod's log, the status and Secrets.
    pub(crate) fn disable(&self) {
        self.is_disabled.set(true);
    }

    /// Begins the log of a command.
    pub(crate) fn begin(&self, command: &LoggedCommand, secrets: &Redactor) {
        if command.stdout.is_some() {
            self.print_errors(secrets);
            self.print_title(command, secrets);
        }
        self.commands.borrow_mut().push(command.clone());
    }

    /// Prints the standard output of a command until it has ended.
    pub(crate) async fn follow<T>(
        &self,
        command: &LoggedCommand,
        status: &StatusWriter,
        running: impl Future<Output = T>,
    ) -> T {
        match (self.printer(), &command.stdout) {
            (Some(pod), Some(stdout)) => Follower::new(stdout, pod).follow(status, running).await,
            _ => running.await,
        }
    }

    /// Prints the error output of a command that has ended, or keeps it until more sensitive values are known. Returns the end of
    /// the log so far, for the status.
    pub(crate) fn end(
        &self,
        command: LoggedCommand,
        has_succeeded: bool,
        secrets: &Redactor,
    ) -> Option<String> {
        if !has_succeeded {
            self.failed.borrow_mut().push(command);
            return None;
        }
        self.print_error(&command, secrets);
        if command.stdout.is_none() || self.is_disabled.get() {
            return None;
        }
        last_output(&command, secrets, RunStatusLimit::LOG_TAIL_OF_SUCCESS).ok()
    }

    /// Ends the log of the run: prints what is left, records the end of the log in the status, and stores a longer one. Returns the
    /// parts of it that are not stored, but may be later.
    pub(crate) async fn conclude(
        &self,
        context: &Context,
        run: &TerraformRun,
        status: &StatusWriter,
        has_succeeded: bool,
    ) -> VecDeque<Secret> {
        let secrets = status.secrets().clone();
        self.print_errors(&secrets);
        if self.is_disabled.get() {
            return VecDeque::new();
        }
        let limit = if has_succeeded {
            RunStatusLimit::LOG_TAIL_OF_SUCCESS
        } else {
            RunStatusLimit::LOG_TAIL
        };
        let (commands, has_pod) = (self.commands.take(), self.pod.is_some());
        let collecting = tokio::task::spawn_blocking(move || collect(&commands, &secrets, limit, has_pod));
        match collecting.await.map_err(std::io::Error::other).flatten() {
            Ok(CollectedLog { tail, parts }) => {
                status.buffer(|status| status.log_tail = tail);
                let secrets = run_log::secrets(run, parts);
                store_parts(context, status, secrets.into()).await
            }
            Err(error) => {
                record_error(status, "the log", &error);
                VecDeque::new()
            }
        }
    }

    /// The log of the pod, unless it is disabled.
    fn printer(&self) -> Option<&PodLog> {
        self.pod.as_ref().filter(|_| !self.is_disabled.get())
    }

    fn print_title(&self, command: &LoggedCommand, secrets: &Redactor) {
        if let Some(pod) = self.printer() {
            pod.write(&title_line(command, secrets));
        }
    }

    /// Prints the error output of failed commands.
    fn print_errors(&self, secrets: &Redactor) {
        for command in self.failed.take() {
            self.print_error(&command, secrets);
        }
    }

    fn print_error(&self, command: &LoggedCommand, secrets: &Redactor) {
        let Some(pod) = self.printer() else { return };
        if collect::is_empty(&command.stderr) {
            return;
        }
        if command.stdout.is_none() {
            self.print_title(command, secrets);
        }
        let printed = copy_file(&command.stderr, PRINTED_ENDS, secrets, &mut |lines| {
            pod.write(lines);
            Ok(())
        });
        if let Err(error) = printed {
            tracing::warn!(%error, "the error output of a command cannot be read");
        }
    }
}

/// The line above the output of a command.
fn title_line(command: &LoggedCommand, secrets: &Redactor) -> Vec<u8> {
    let mut lines = LogLines::default();
    let mut line = lines.push(secrets, command.title.as_bytes());
    line.extend(lines.finish(secrets));
    line
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Printed(Arc<Mutex<Vec<u8>>>);

    impl Printed {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    impl std::io::Write for Printed {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            sluice_runtime::sync::lock(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn log() -> (RunLog, Printed) {
        let printed = Printed::default();
        (RunLog::new(Some(PodLog::new(printed.clone()))), printed)
    }

    fn command(dir: &std::path::Path, name: &str, errors: &str, is_captured: bool) -> LoggedCommand {
        let stderr = dir.join(format!("{name}.err"));
        std::fs::write(&stderr, errors).unwrap();
        LoggedCommand {
            title: format!("$ tofu {name} -var=hunter2"),
            stdout: (!is_captured).then(|| dir.join(format!("{name}.out"))),
            stderr,
        }
    }

    #[test]
    fn errors_of_a_failed_command_are_printed_once_more_values_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let (log, printed) = log();
        let mut secrets = Redactor::default();
        secrets.add_text("hunter2");
        let plan = command(dir.path(), "plan", "Error: a-value-of-the-state\n", false);
        log.begin(&plan, &secrets);
        assert_eq!(printed.take(), "$ tofu plan -var=(sensitive)\n");
        log.end(plan, false, &secrets);
        assert_eq!(printed.take(), "");
        // The query for the values of the state.
        let show = command(dir.path(), "show", "", true);
        log.begin(&show, &secrets);
        log.end(show, true, &secrets);
        assert_eq!(printed.take(), "");
        secrets.add_text("a-value-of-the-state");
        log.print_errors(&secrets);
        assert_eq!(printed.take(), "Error: (sensitive)\n");
        log.print_errors(&secrets);
        assert_eq!(printed.take(), "");
    }

    #[test]
    fn errors_of_a_captured_command_have_its_title() {
        let dir = tempfile::tempdir().unwrap();
        let (log, printed) = log();
        let secrets = Redactor::default();
        let show = command(dir.path(), "show", "Error: no state\n", true);
        log.begin(&show, &secrets);
        log.end(show, true, &secrets);
        assert_eq!(printed.take(), "$ tofu show -var=hunter2\nError: no state\n");
    }

    #[test]
    fn a_disabled_log_prints_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (log, printed) = log();
        log.disable();
        let secrets = Redactor::default();
        let plan = command(dir.path(), "plan", "Error: no\n", false);
        log.begin(&plan, &secrets);
        log.end(plan, true, &secrets);
        assert_eq!(printed.take(), "");
    }
}
