//! The prepared module directory and the CLI in it: runs one command after another, keeps their output, words their errors.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use sluice_api::run::LockInfo;

use super::error::{RunError, Step};
use super::left::Left;
use super::report::Reporter;
use super::unshown::Unshown;
use super::workdir::{WorkDirectory, failed};
use crate::cli::process::{Ended, Invocation, Limits, Stopped, run, tail};
use crate::cli::text::presentable;
use crate::cli::tool::Tool;
use crate::cli::{answer, argv};
use crate::providers::LockedProvider;

/// The CLI in its directory.
pub(super) struct Workspace<'a> {
    pub(super) tool: Tool,
    pub(super) directory: &'a WorkDirectory,
    /// The module directory.
    pub(super) module: PathBuf,
    pub(super) environment: BTreeMap<String, String>,
    /// `TF_CLI_ARGS_init`.
    pub(super) init_arguments: Option<String>,
    /// The CLI cannot save its plans: they are shown, and applied without a file.
    pub(super) is_unsaved: Cell<bool>,
    pub(super) limits: Limits,
    pub(super) reporter: &'a Reporter,
    /// The state locks that commands of this run left behind.
    pub(super) left: RefCell<Left>,
    /// The providers that `init` chose, as the lock file named them before any code of the module ran.
    pub(super) providers: RefCell<Vec<LockedProvider>>,
    count: Cell<u32>,
}

impl<'a> Workspace<'a> {
    pub(super) const fn new(
        tool: Tool,
        directory: &'a WorkDirectory,
        module: PathBuf,
        environment: BTreeMap<String, String>,
        limits: Limits,
        reporter: &'a Reporter,
        left: Left,
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
    pub(super) fn plan_file(&self) -> PathBuf {
        self.module.join(argv::PLAN_FILE)
    }

    /// Runs a command that has to succeed.
    pub(super) async fn must(&self, step: Step, words: &[String]) -> Result<Ended, RunError> {
        self.expect(step, words, &[0]).await
    }

    /// Runs a command that has to end with one of `codes`.
    pub(super) async fn expect(
        &self,
        step: Step,
        words: &[String],
        codes: &[i32],
    ) -> Result<Ended, RunError> {
        let stdout = self.output_file(step, "out");
        self.attempt(step, words, codes, stdout, &self.limits).await
    }

    /// Runs a command whose output may hold sensitive values: it goes into the scratch directory.
    pub(super) async fn capture(&self, step: Step, words: &[String]) -> Result<PathBuf, RunError> {
        Ok(self.capture_expecting(step, words, &[0]).await?.stdout)
    }

    /// As [`Workspace::capture`], for a command that answers with an object of JSON: nothing else is in the file.
    pub(super) async fn capture_object(&self, step: Step, words: &[String]) -> Result<PathBuf, RunError> {
        let file = self.capture(step, words).await?;
        answer::lay_bare(&file).map_err(|source| failed(step.title(), source))?;
        Ok(file)
    }

    /// As [`Workspace::capture`], for a command that has to end with one of `codes`.
    pub(super) async fn capture_expecting(
        &self,
        step: Step,
        words: &[String],
        codes: &[i32],
    ) -> Result<Ended, RunError> {
        let stdout = self.scratch_file();
        self.attempt(step, words, codes, stdout, &self.limits).await
    }

    /// As [`Workspace::capture`], for a look after the run's own commands, which has limits of its own: the run may have been
    /// told to stop, and the exit code on record stays that of the command that failed.
    pub(super) async fn look(
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
    ) -> Result<Ended, RunError> {
        if let Some(stopped) = too_late(limits, step) {
            return Err(stopped);
        }
        let stderr = self.output_file(step, "err");
        let environment = self.environment_of(step);
        let invocation = Invocation {
            program: &self.tool.path,
            words,
            directory: &self.module,
            environment: &environment,
            stdout: stdout.clone(),
            stderr: stderr.clone(),
            locks: &self.directory.locks,
        };
        let began = Timestamp::now();
        let ended = run(&invocation, limits).await;
        let unshown = Unshown::read(&stdout, &stderr);
        self.clean(&[&stdout, &stderr]);
        let code = ended.as_ref().ok().and_then(|ended| ended.code);
        let is_well = code.is_some_and(|code| codes.contains(&code));
        self.note_lock(step, began, code, is_well, &unshown);
        let ended = ended.map_err(|source| failed(step.title(), source))?;
        self.note(step, &ended);
        if is_well {
            return Ok(ended);
        }
        // What is shown is of the file as it is now.
        let text = tail(&stderr).unwrap_or_default();
        Err(match ended.stopped {
            Some(stopped) => RunError::Stopped {
                step,
                why: format!("{} ({})", interrupted(stopped), ended.describe()),
                text: presentable(&text),
            },
            None => RunError::Command {
                step,
                text: presentable(&format!("{}\n{text}", ended.describe())),
                unshown,
            },
        })
    }

    /// The environment of a command: that of `init` also holds the arguments of the backend.
    pub(super) fn environment_of(&self, step: Step) -> Cow<'_, BTreeMap<String, String>> {
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
            if let Err(error) = secrets.clean(file) {
                tracing::warn!(%error, "a log file could not be cleaned of sensitive values");
            }
        }
    }

    /// Nothing is started any more once somebody asked the run to stop.
    pub(super) fn too_late(&self, step: Step) -> Option<RunError> {
        too_late(&self.limits, step)
    }

    fn note(&self, step: Step, ended: &Ended) {
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
    fn note_lock(&self, step: Step, began: Timestamp, code: Option<i32>, is_well: bool, unshown: &Unshown) {
        // A command that was killed says nothing, and one that crashed has another code than that of an error.
        let died = !is_well && code != Some(1);
        let may_leave_one = step.takes_the_lock() && (died || unshown.may_be_about_a_lock());
        if is_well && !may_leave_one {
            return;
        }
        let time = may_leave_one.then(|| began..=Timestamp::now());
        let met = unshown.lock().filter(|_| !is_well);
        let somebodys = self.left.borrow_mut().note(time, met);
        let told = somebodys.and_then(|lock| self.tellable(lock));
        let spans = self.left.borrow().spans();
        self.reporter.say(|status| {
            status.may_have_locked = spans;
            if told.is_some() {
                status.lock = told;
            }
        });
    }

    /// A lock as it may be told: a value that nobody may read may be in the name of its holder. One whose id may not be told is
    /// told not at all.
    fn tellable(&self, lock: LockInfo) -> Option<LockInfo> {
        let secrets = self.reporter.secrets();
        let hidden = |text: &str| secrets.hide(text).into_owned();
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

const fn interrupted(stopped: Stopped) -> &'static str {
    match stopped {
        Stopped::Asked => "was interrupted, because the runner was told to stop",
        Stopped::Deadline => "was interrupted, because the run's deadline passed",
    }
}
