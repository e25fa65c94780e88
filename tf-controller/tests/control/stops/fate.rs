//! What happens to whom: the steps of a story by name, the one step at which something goes wrong, and the deaths.

use super::laws::Laws;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Who makes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    Controller,
    /// A runner, by its process.
    Runner(i32),
    /// A CLI's call of the API, by the process of its runner.
    Cli(i32),
}

/// What goes wrong at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// Who writes is killed before the write reaches the server, or the command is started.
    Before,
    /// Who writes is killed once it is done, before it hears of it.
    After,
    /// The runner is killed while its command goes on.
    During,
    /// The machine stops before the write: the controller, the runners and their commands.
    MachineBefore,
    /// The machine stops after the write.
    MachineAfter,
    /// The write never reaches the server, and its writer is told of a broken connection.
    CutBefore,
    /// The write is done, and its writer is told of a broken connection.
    CutAfter,
    /// The server refuses the write.
    Refused,
    /// A watch event is held back past the next writes.
    Late,
    /// A watch event never comes: only the next list tells.
    Lost,
}

impl Side {
    const CONTROLLER: &[Self] = &[Self::Before, Self::After, Self::CutBefore, Self::CutAfter];
    const RUNNER: &[Self] = &[
        Self::Before,
        Self::After,
        Self::MachineBefore,
        Self::MachineAfter,
        Self::CutBefore,
        Self::CutAfter,
    ];
    const COMMAND: &[Self] = &[Self::Before, Self::During, Self::After];
    /// Nothing may depend on a Kubernetes event: also not where it may not be written at all.
    const POST: &[Self] = &[
        Self::Before,
        Self::After,
        Self::CutBefore,
        Self::CutAfter,
        Self::Refused,
    ];
    const CLI: &[Self] = &[
        Self::MachineBefore,
        Self::MachineAfter,
        Self::CutBefore,
        Self::CutAfter,
    ];
    const EVENT: &[Self] = &[Self::Late, Self::Lost];

    /// All that can go wrong at a step of this name.
    pub(crate) fn of(step: &str) -> &'static [Self] {
        let mut words = step.split(' ');
        let (who, resource) = (words.next(), words.nth(1));
        match who {
            Some("controller") if resource == Some("events") => Self::POST,
            Some("controller") => Self::CONTROLLER,
            Some("runner") => Self::RUNNER,
            Some("command") => Self::COMMAND,
            Some("cli") => Self::CLI,
            _ => Self::EVENT,
        }
    }
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) step: String,
    pub(crate) side: Side,
}

/// A command of the CLI that was begun.
#[derive(Clone, Debug)]
struct Command {
    word: String,
    directory: PathBuf,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
struct Held {
    armed: bool,
    cut: Option<Cut>,
    happened: bool,
    steps: Vec<String>,
    counts: HashMap<String, u32>,
    controller: Option<i32>,
    runners: BTreeSet<i32>,
    commands: BTreeMap<i32, Command>,
    violations: Vec<String>,
    machine_died: bool,
    apply_died: bool,
}

/// The fate of one telling.
#[derive(Clone)]
pub(crate) struct Fate {
    /// What is never broken.
    pub(crate) laws: Laws,
    folder: Arc<PathBuf>,
    held: Arc<Mutex<Held>>,
}

impl Fate {
    /// Of the processes that work below `folder`.
    pub(crate) fn new(folder: &Path, cut: Option<Cut>, laws: Laws) -> Self {
        let held = Held {
            cut,
            ..Held::default()
        };
        Self {
            laws,
            folder: Arc::new(folder.to_owned()),
            held: Arc::new(Mutex::new(held)),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap()
    }

    /// From now on steps count.
    pub(crate) fn arm(&self) {
        self.held().armed = true;
    }

    /// Counts a step and tells what goes wrong at it.
    pub(crate) fn step(&self, name: &str) -> Option<Side> {
        let mut held = self.held();
        if !held.armed {
            return None;
        }
        let count = held.counts.entry(name.to_owned()).or_default();
        *count += 1;
        let numbered = format!("{name} #{count}");
        held.steps.push(numbered.clone());
        let side = held.cut.as_ref().filter(|cut| cut.step == numbered)?.side;
        held.happened = true;
        Some(side)
    }

    /// The steps so far.
    pub(crate) fn steps(&self) -> Vec<String> {
        self.held().steps.clone()
    }

    /// Whether what was to go wrong did.
    pub(crate) fn happened(&self) -> bool {
        self.held().happened
    }

    /// Whether the whole machine stopped.
    pub(crate) fn machine_died(&self) -> bool {
        self.held().machine_died
    }

    /// Whether the machine stopped while a command applied, so that things may have been made of which no state tells.
    pub(crate) fn apply_died(&self) -> bool {
        self.held().apply_died
    }

    /// The process of the controller from now on.
    pub(crate) fn controller_is(&self, process: Option<u32>) {
        self.held().controller = process.map(u32::cast_signed);
    }

    /// A runner was heard of.
    pub(crate) fn saw_runner(&self, process: i32) {
        self.held().runners.insert(process);
    }

    /// Kills whoever makes the step, with a real SIGKILL.
    pub(crate) fn kill(&self, actor: Actor) {
        match actor {
            Actor::Controller => {
                let controller = self.held().controller;
                if let Some(process) = controller {
                    self.end(process, false);
                }
            }
            Actor::Runner(process) | Actor::Cli(process) => self.end(process, false),
        }
    }

    /// Kills everything, as if the machine stopped.
    pub(crate) fn stop_machine(&self) {
        let mut held = self.held();
        held.machine_died = true;
        let (controller, runners) = (held.controller, held.runners.clone());
        let commands = std::mem::take(&mut held.commands);
        held.apply_died |= commands.values().any(|command| command.word == "apply");
        drop(held);
        for process in controller.into_iter().chain(runners) {
            self.end(process, false);
        }
        for process in commands.into_keys() {
            self.end(process, true);
        }
    }

    /// Ends a process of this telling; one that is none of it any more is left alone.
    fn end(&self, process: i32, group: bool) {
        let Some(pid) = Pid::from_raw(process).filter(|_| self.is_here(process)) else {
            return;
        };
        // It may end by itself at this moment.
        let _ = if group {
            kill_process_group(pid, Signal::KILL)
        } else {
            kill_process(pid, Signal::KILL)
        };
    }

    /// Whether a process lives and works below the telling's folder.
    fn is_here(&self, process: i32) -> bool {
        let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        let place = std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default();
        place.starts_with(self.folder.as_path()) || words.contains(&*self.folder.to_string_lossy())
    }

    /// The processes of this telling that live, but for the controller.
    pub(crate) fn alive(&self) -> Vec<i32> {
        let controller = self.held().controller;
        let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let processes = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
        processes
            .filter(|process| Some(*process) != controller && self.is_here(*process))
            .collect()
    }

    /// A command of the CLI begins.
    pub(crate) fn command_begins(&self, process: i32, word: &str, directory: &Path) {
        let mut held = self.held();
        let applying = |command: &Command| command.word == "apply" && command.directory == directory;
        let other = held.commands.iter().find(|(_, command)| applying(command));
        let other = other.map(|(process, _)| *process);
        if word == "apply"
            && let Some(other) = other.filter(|other| self.is_here(*other))
        {
            held.violations
                .push(format!("two applies at once in {}: {other}", directory.display()));
        }
        let command = Command {
            word: word.to_owned(),
            directory: directory.to_owned(),
        };
        held.commands.insert(process, command);
    }

    /// A command of the CLI has ended.
    pub(crate) fn command_ended(&self, process: i32) {
        self.held().commands.remove(&process);
    }

    /// A law was broken.
    pub(crate) fn broken(&self, law: String) {
        self.held().violations.push(law);
    }

    /// The laws that were broken.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.held().violations.clone()
    }
}
