//! The CLI in its prepared module directory: runs commands, logs and redacts their output, and maps their failures to errors.

pub(crate) mod memory;
pub(crate) mod raw_output;
pub(crate) mod state_secrets;
pub(crate) mod version;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sluice_api::run::LockInfo;
use sluice_tf_core::cli::preamble;
use sluice_tf_core::cli::process::{self, CommandExit, Invocation, Limits, StopReason, tail};
use sluice_tf_core::cli::text::strip_and_mask;
use sluice_tf_core::cli::tool::Tool;

use crate::provider_cache::LockedProvider;
use crate::run::cli::memory::ContainerMemory;
use crate::run::cli::raw_output::RawOutput;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::log::{LoggedCommand, RunLog};
use crate::run::state_lock::leftover::LeftoverLock;
use crate::run::status::StatusWriter;
use crate::run::workdir::{WorkDirectory, directory_error};

/// File name of the plan in the module directory, as in tofu-controller.
pub(crate) const PLAN_FILE: &str = "tfplan";

/// The CLI in its directory.
pub(crate) struct Cli<'a> {
    pub(crate) tool: Tool,
    pub(crate) directory: &'a WorkDirectory,
    /// The module directory.
    pub(crate) module: PathBuf,
    pub(crate) environment: BTreeMap<String, String>,
    /// `TF_CLI_ARGS_init`.
    pub(crate) init_arguments: Option<String>,
    /// The container, if no other run shares it.
    pub(crate) container: Option<ContainerMemory>,
    /// The CLI cannot save plans: they are compared by their text, and applied without a file.
    pub(crate) is_unsaved: Cell<bool>,
    pub(crate) limits: Limits,
    pub(crate) status: &'a StatusWriter,
    log: &'a RunLog,
    /// The state lock that a command of this run left behind.
    pub(crate) leftover_lock: RefCell<LeftoverLock>,
    /// The providers of the dependency lock file after `init`, before any code of the module ran.
    pub(crate) providers: RefCell<Vec<LockedProvider>>,
    /// The output of `state pull` before the apply.
    pub(crate) pulled_state: RefCell<Option<PathBuf>>,
    output_count: Cell<u32>,
}

impl<'a> Cli<'a> {
    pub(crate) fn new(
        tool: Tool,
        directory: &'a WorkDirectory,
        module: PathBuf,
        environment: BTreeMap<String, String>,
        limits: Limits,
        status: &'a StatusWriter,
        log: &'a RunLog,
    ) -> Self {
        Self {
            tool,
            directory,
            module,
            environment,
            init_arguments: None,
            container: None,
            is_unsaved: Cell::new(false),
            limits,
            status,
            log,
            leftover_lock: RefCell::default(),
            providers: RefCell::new(Vec::new()),
            pulled_state: RefCell::new(None),
            output_count: Cell::new(0),
        }
    }

    pub(crate) fn plan_file(&self) -> PathBuf {
        self.module.join(PLAN_FILE)
    }

    /// Runs a command that has to succeed.
    pub(crate) async fn run(&self, step: Step, args: &[String]) -> Result<CommandExit, RunError> {
        self.run_expecting(step, args, &[0]).await
    }

    /// Runs a command that has to exit with one of `codes`.
    pub(crate) async fn run_expecting(
        &self,
        step: Step,
        args: &[String],
        codes: &[i32],
    ) -> Result<CommandExit, RunError> {
        let stdout = self.output_file(step, "out");
        self.execute(step, args, codes, stdout, &self.limits).await
    }

    /// Runs a command whose output may be sensitive, and writes it to the scratch directory.
    pub(crate) async fn capture(&self, step: Step, args: &[String]) -> Result<PathBuf, RunError> {
        Ok(self.capture_expecting(step, args, &[0]).await?.stdout)
    }

    /// As [`Cli::capture`], for a command that prints one JSON object. The file contains nothing else.
    pub(crate) async fn capture_object(&self, step: Step, args: &[String]) -> Result<PathBuf, RunError> {
        let file = self.capture(step, args).await?;
        preamble::strip_preamble(&file).map_err(|source| directory_error(step.title(), source))?;
        Ok(file)
    }

    /// As [`Cli::capture`], for a command that has to exit with one of `codes`.
    pub(crate) async fn capture_expecting(
        &self,
        step: Step,
        args: &[String],
        codes: &[i32],
    ) -> Result<CommandExit, RunError> {
        let stdout = self.scratch_file();
        self.execute(step, args, codes, stdout, &self.limits).await
    }

    /// As [`Cli::capture`], for a query after a failure. It has its own limits, because the run may have been stopped, and it does
    /// not replace the exit code on record.
    pub(crate) async fn query(
        &self,
        step: Step,
        args: &[String],
        limits: &Limits,
    ) -> Result<PathBuf, RunError> {
        let (stdout, code) = (self.scratch_file(), self.status.snapshot().exit_code);
        let queried = self.execute(step, args, &[0], stdout, limits).await;
        self.status.buffer(|status| status.exit_code = code);
        Ok(queried?.stdout)
    }

    fn scratch_file(&self) -> PathBuf {
        self.directory
            .scratch
            .path()
            .join(format!("{}.out", self.next_number()))
    }

    async fn execute(
        &self,
        step: Step,
        args: &[String],
        codes: &[i32],
        stdout: PathBuf,
        limits: &Limits,
    ) -> Result<CommandExit, RunError> {
        if let Some(stopped) = stop_error(limits, step) {
            return Err(stopped);
        }
        let stderr = self.output_file(step, "err");
        let environment = self.environment_of(step);
        let invocation = Invocation {
            program: &self.tool.path,
            arguments: args,
            directory: &self.module,
            environment: &environment,
            stdout: stdout.clone(),
            stderr: stderr.clone(),
            locks: &self.directory.locks,
        };
        let kills = self.killed_processes();
        let command = self.logged_command(args, &stdout, &stderr);
        self.log.begin(&command, &self.status.secrets().clone());
        let began = Timestamp::now();
        let running = process::run(&invocation, limits);
        let ended = self.log.follow(&command, self.status, running).await;
        let raw_output = RawOutput::read(&stdout, &stderr);
        self.redact_logs(&[&stdout, &stderr]);
        let code = ended.as_ref().ok().and_then(|ended| ended.code);
        let succeeded = code.is_some_and(|code| codes.contains(&code));
        self.record_lock(step, began, code, succeeded, &raw_output);
        self.end_log(command, succeeded);
        let ended = ended.map_err(|source| directory_error(step.title(), source))?;
        self.record_exit(step, &ended);
        if succeeded {
            return Ok(ended);
        }
        // Read again: the file is redacted now.
        let text = tail(&stderr).unwrap_or_default();
        let container = self
            .container
            .as_ref()
            .filter(|_| self.killed_processes() > kills);
        let out_of_memory = container.map(|container| container.describe(ended.peak_memory));
        Err(match ended.stop_reason {
            Some(stopped) => RunError::Stopped {
                step,
                why: format!("{} ({})", stop_cause(stopped), ended.describe()),
                text: strip_and_mask(&text),
            },
            None => RunError::Command {
                step,
                text: strip_and_mask(&match &out_of_memory {
                    Some(why) => format!("{why}\n{}\n{text}", ended.describe()),
                    None => format!("{}\n{text}", ended.describe()),
                }),
                is_out_of_memory: out_of_memory.is_some(),
                raw_output,
            },
        })
    }

    /// How many processes the kernel has killed for the memory limit of the container.
    fn killed_processes(&self) -> Option<u64> {
        self.container.as_ref()?.kills()
    }

    /// The environment of a command. That of `init` includes the arguments of the backend.
    pub(crate) fn environment_of(&self, step: Step) -> Cow<'_, BTreeMap<String, String>> {
        match &self.init_arguments {
            Some(arguments) if step == Step::Init => {
                let mut all = self.environment.clone();
                all.insert("TF_CLI_ARGS_init".to_owned(), arguments.clone());
                Cow::Owned(all)
            }
            _ => Cow::Borrowed(&self.environment),
        }
    }

    /// Redacts the log files. Captured output is not redacted.
    fn redact_logs(&self, files: &[&Path]) {
        let secrets = self.status.secrets().clone();
        for file in files.iter().filter(|file| file.starts_with(&self.directory.logs)) {
            if let Err(error) = secrets.redact_file(file) {
                tracing::warn!(%error, "a log file could not be redacted");
            }
        }
    }

    /// The error of a step that must not start, because the run was stopped or its deadline passed.
    pub(crate) fn stop_error(&self, step: Step) -> Option<RunError> {
        stop_error(&self.limits, step)
    }

    fn record_exit(&self, step: Step, ended: &CommandExit) {
        let peak = i64::try_from(ended.peak_memory).unwrap_or(i64::MAX);
        self.status.buffer(|status| {
            if step != Step::Version {
                // `version` runs in parallel with `init`, whose exit code is recorded.
                status.exit_code = ended.code;
            }
            status.peak_memory_bytes = Some(status.peak_memory_bytes.unwrap_or(0).max(peak));
        });
    }

    /// Records the foreign lock that a command met, and the time span in which the command may have left its own lock behind. A
    /// command that could not release its lock may succeed nevertheless.
    fn record_lock(
        &self,
        step: Step,
        began: Timestamp,
        code: Option<i32>,
        succeeded: bool,
        raw_output: &RawOutput,
    ) {
        // A killed command prints no error, and a crashed one does not exit with 1.
        let crashed = !succeeded && code != Some(1);
        let may_leave_lock = step.takes_state_lock() && (crashed || raw_output.may_mention_lock());
        if succeeded && !may_leave_lock {
            return;
        }
        let window = may_leave_lock.then(|| began..=Timestamp::now());
        let met = raw_output.lock().filter(|_| !succeeded);
        let foreign = self.leftover_lock.borrow_mut().record(window, met);
        let foreign = foreign.and_then(|lock| self.redact_lock(lock));
        let windows = self.leftover_lock.borrow().possible_windows();
        self.status.write(|status| {
            status.possible_lock_windows = windows;
            if foreign.is_some() {
                status.lock = foreign;
            }
        });
    }

    /// Redacts a lock, whose holder may contain a sensitive value. A lock with a sensitive id is not reported.
    fn redact_lock(&self, lock: LockInfo) -> Option<LockInfo> {
        let secrets = self.status.secrets();
        let redact = |text: &str| secrets.redact(text).into_owned();
        (redact(&lock.id) == lock.id).then(|| LockInfo {
            who: redact(&lock.who),
            created: redact(&lock.created),
            operation: redact(&lock.operation),
            id: lock.id,
        })
    }

    fn logged_command(&self, args: &[String], stdout: &Path, stderr: &Path) -> LoggedCommand {
        let is_logged = stdout.starts_with(&self.directory.logs);
        LoggedCommand {
            title: format!("$ {} {}", self.tool.name, args.join(" ")),
            stdout: is_logged.then(|| stdout.to_owned()),
            stderr: stderr.to_owned(),
        }
    }

    /// Ends the log of a command. Its end goes to the status with the next write.
    fn end_log(&self, command: LoggedCommand, succeeded: bool) {
        let secrets = self.status.secrets().clone();
        if let Some(tail) = self.log.end(command, succeeded, &secrets) {
            self.status.buffer(|status| status.log_tail = tail);
        }
    }

    fn output_file(&self, step: Step, suffix: &str) -> PathBuf {
        let title = step.title().replace(' ', "-").to_lowercase();
        self.directory
            .logs
            .join(format!("{:02}-{title}.{suffix}", self.next_number()))
    }

    fn next_number(&self) -> u32 {
        self.output_count.set(self.output_count.get() + 1);
        self.output_count.get()
    }
}

/// The arguments of a command. They are those of tofu-controller, so that plans are compatible.
pub(crate) fn arguments(list: &[&str]) -> Vec<String> {
    list.iter().map(|argument| (*argument).to_owned()).collect()
}

fn stop_error(limits: &Limits, step: Step) -> Option<RunError> {
    let is_late = tokio::time::Instant::now() >= limits.deadline;
    let is_stopped = limits.stop.is_cancelled();
    (is_late || is_stopped).then(|| {
        let why = if is_stopped {
            "the runner was terminated"
        } else {
            "the run's deadline passed"
        };
        RunError::Stopped {
            step,
            why: format!("was not started, because {why}"),
            text: String::new(),
        }
    })
}

const fn stop_cause(stopped: StopReason) -> &'static str {
    match stopped {
        StopReason::Requested => "was interrupted, because the runner was terminated",
        StopReason::Deadline => "was interrupted, because the run's deadline passed",
    }
}
