//! The prepared module directory and the CLI in it: runs one command after another, keeps their output, words their errors.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sluice_api::run::LockInfo;

use crate::providers::LockedProvider;
use crate::run::commands::raw_output::RawOutput;
use crate::run::lifecycle::error::{RunError, Step};
use crate::run::state_lock::leftover::LeftoverLock;
use crate::run::status::writer::Reporter;
use crate::run::workdir::{WorkDirectory, failed};
use sluice_tf_core::cli::process::{CommandExit, Invocation, Limits, StopReason, run, tail};
use sluice_tf_core::cli::text::strip_and_mask;
use sluice_tf_core::cli::tool::Tool;
use sluice_tf_core::cli::{argv, preamble};

/// The CLI in its directory.
pub(crate) struct Workspace<'a> {
    pub(crate) tool: Tool,
    pub(crate) directory: &'a WorkDirectory,
    /// The module directory.
    pub(crate) module: PathBuf,
    pub(crate) environment: BTreeMap<String, String>,
    /// `TF_CLI_ARGS_init`.
    pub(crate) init_arguments: Option<String>,
    /// The CLI cannot save its plans: they are shown, and applied without a file.
    pub(crate) is_unsaved: Cell<bool>,
    pub(crate) limits: Limits,
    pub(crate) reporter: &'a Reporter,
    /// The state locks that commands of this run left behind.
    pub(crate) left: RefCell<LeftoverLock>,
    /// The providers that `init` chose, as the lock file named them before any code of the module ran.
    pub(crate) providers: RefCell<Vec<LockedProvider>>,
    count: Cell<u32>,
}

impl<'a> Workspace<'a> {
    pub(crate) const fn new(
        tool: Tool,
        directory: &'a WorkDirectory,
        module: PathBuf,
        environment: BTreeMap<String, String>,
        limits: Limits,
        reporter: &'a Reporter,
        left: LeftoverLock,
    ) -> Self {
        Self {
            tool,
            directory,
            module,
            environment,
            init_arguments: None,
            is_unsaved: Cell::new(false),
            limits,
            reporter,
            left: RefCell::new(left),
            providers: RefCell::new(Vec::new()),
            count: Cell::new(0),
        }
    }

    /// The plan file.
    pub(crate) fn plan_file(&self) -> PathBuf {
        self.module.join(argv::PLAN_FILE)
    }

    /// Runs a command that has to succeed.
    pub(crate) async fn must(&self, step: Step, words: &[String]) -> Result<CommandExit, RunError> {
        self.expect(step, words, &[0]).await
    }

    /// Runs a command that has to end with one of `codes`.
    pub(crate) async fn expect(
        &self,
        step: Step,
        words: &[String],
        codes: &[i32],
    ) -> Result<CommandExit, RunError> {
        let stdout = self.output_file(step, "out");
        self.attempt(step, words, codes, stdout, &self.limits).await
    }

    /// Runs a command whose output may hold sensitive values: it goes into the scratch directory.
    pub(crate) async fn capture(&self, step: Step, words: &[String]) -> Result<PathBuf, RunError> {
        Ok(self.capture_expecting(step, words, &[0]).await?.stdout)
    }

    /// As [`Workspace::capture`], for a command that answers with an object of JSON: nothing else is in the file.
    pub(crate) async fn capture_object(&self, step: Step, words: &[String]) -> Result<PathBuf, RunError> {
        let file = self.capture(step, words).await?;
        preamble::strip_preamble(&file).map_err(|source| failed(step.title(), source))?;
        Ok(file)
    }

    /// As [`Workspace::capture`], for a command that has to end with one of `codes`.
    pub(crate) async fn capture_expecting(
        &self,
        step: Step,
        words: &[String],
        codes: &[i32],
    ) -> Result<CommandExit, RunError> {
        let stdout = self.scratch_file();
        self.attempt(step, words, codes, stdout, &self.limits).await
    }

    /// As [`Workspace::capture`], for a look after the run's own commands, which has limits of its own: the run may have been
    /// told to stop, and the exit code on record stays that of the command that failed.
    pub(crate) async fn look(
        &self,
        step: Step,
        words: &[String],
        limits: &Limits,
    ) -> Result<PathBuf, RunError> {
        let (stdout, code) = (self.scratch_file(), self.reporter.said().exit_code);
        let looked = self.attempt(step, words, &[0], stdout, limits).await;
        self.reporter.note(|status| status.exit_code = code);
        Ok(looked?.stdout)
    }

    fn scratch_file(&self) -> PathBuf {
        self.directory.scratch.path().join(format!("{}.out", self.next()))
    }

    async fn attempt(
        &self,
        step: Step,
        words: &[String],
        codes: &[i32],
        stdout: PathBuf,
        limits: &Limits,
    ) -> Result<CommandExit, RunError> {
        if let Some(stopped) = too_late(limits, step) {
            return Err(stopped);
        }
        let stderr = self.output_file(step, "err");
        let environment = self.environment_of(step);
        let invocation = Invocation {
            program: &self.tool.path,
            arguments: words,
            directory: &self.module,
            environment: &environment,
            stdout: stdout.clone(),
            stderr: stderr.clone(),
            locks: &self.directory.locks,
        };
        let began = Timestamp::now();
        let ended = run(&invocation, limits).await;
        let raw_output = RawOutput::read(&stdout, &stderr);
        self.clean(&[&stdout, &stderr]);
        let code = ended.as_ref().ok().and_then(|ended| ended.code);
        let is_well = code.is_some_and(|code| codes.contains(&code));
        self.note_lock(step, began, code, is_well, &raw_output);
        let ended = ended.map_err(|source| failed(step.title(), source))?;
        self.note(step, &ended);
        if is_well {
            return Ok(ended);
        }
        // What is shown is of the file as it is now.
        let text = tail(&stderr).unwrap_or_default();
        Err(match ended.stop_reason {
            Some(stopped) => RunError::Stopped {
                step,
                why: format!("{} ({})", interrupted(stopped), ended.describe()),
                text: strip_and_mask(&text),
            },
            None => RunError::Command {
                step,
                text: strip_and_mask(&format!("{}\n{text}", ended.describe())),
                raw_output,
            },
        })
    }

    /// The environment of a command: that of `init` also holds the arguments of the backend.
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

    /// Takes what nobody may read out of the logs. What is captured for the run itself stays as it is.
    fn clean(&self, files: &[&Path]) {
        let secrets = self.reporter.secrets().clone();
        for file in files.iter().filter(|file| file.starts_with(&self.directory.logs)) {
            if let Err(error) = secrets.redact_file(file) {
                tracing::warn!(%error, "a log file could not be cleaned of sensitive values");
            }
        }
    }

    /// Nothing is started any more once somebody asked the run to stop.
    pub(crate) fn too_late(&self, step: Step) -> Option<RunError> {
        too_late(&self.limits, step)
    }

    fn note(&self, step: Step, ended: &CommandExit) {
        let peak = i64::try_from(ended.peak_memory).unwrap_or(i64::MAX);
        self.reporter.note(|status| {
            if step != Step::Version {
                // It runs beside another command, whose exit code is the one that counts.
                status.exit_code = ended.code;
            }
            status.peak_memory_bytes = Some(status.peak_memory_bytes.unwrap_or(0).max(peak));
        });
    }

    /// What a command says about the lock of somebody; that this run may have left one behind is for its record. A command that
    /// could not release its lock may end well all the same.
    fn note_lock(
        &self,
        step: Step,
        began: Timestamp,
        code: Option<i32>,
        is_well: bool,
        raw_output: &RawOutput,
    ) {
        // A command that was killed says nothing, and one that crashed has another code than that of an error.
        let died = !is_well && code != Some(1);
        let may_leave_one = step.takes_the_lock() && (died || raw_output.may_be_about_a_lock());
        if is_well && !may_leave_one {
            return;
        }
        let time = may_leave_one.then(|| began..=Timestamp::now());
        let met = raw_output.lock().filter(|_| !is_well);
        let somebodys = self.left.borrow_mut().note(time, met);
        let told = somebodys.and_then(|lock| self.tellable(lock));
        let spans = self.left.borrow().spans();
        self.reporter.say(|status| {
            status.possible_lock_windows = spans;
            if told.is_some() {
                status.lock = told;
            }
        });
    }

    /// A lock as it may be told: a value that nobody may read may be in the name of its holder. One whose id may not be told is
    /// told not at all.
    fn tellable(&self, lock: LockInfo) -> Option<LockInfo> {
        let secrets = self.reporter.secrets();
        let hidden = |text: &str| secrets.redact(text).into_owned();
        (hidden(&lock.id) == lock.id).then(|| LockInfo {
            who: hidden(&lock.who),
            created: hidden(&lock.created),
            operation: hidden(&lock.operation),
            id: lock.id,
        })
    }

    fn output_file(&self, step: Step, suffix: &str) -> PathBuf {
        let title = step.title().replace(' ', "-").to_lowercase();
        self.directory
            .logs
            .join(format!("{:02}-{title}.{suffix}", self.next()))
    }

    fn next(&self) -> u32 {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }
}

fn too_late(limits: &Limits, step: Step) -> Option<RunError> {
    let late = tokio::time::Instant::now() >= limits.deadline;
    let asked = limits.stop.is_cancelled();
    (late || asked).then(|| {
        let why = if asked {
            "the runner was told to stop"
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

const fn interrupted(stopped: StopReason) -> &'static str {
    match stopped {
        StopReason::Requested => "was interrupted, because the runner was told to stop",
        StopReason::Deadline => "was interrupted, because the run's deadline passed",
    }
}
