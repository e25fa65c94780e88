//! The steps of a scenario by name, the step with an injected fault, and the kills.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::invariants::Invariants;

/// The process that makes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    Controller,
    /// A runner, by its process id.
    Runner(i32),
    /// An API request of a CLI, by the process id of its runner.
    Cli(i32),
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// The process is killed before the write reaches the server or the command is started.
    Before,
    /// The process is killed after the step, before it receives the response.
    After,
    /// The runner is killed while its command is running.
    During,
    /// The machine stops before the write: controller, runners and their commands.
    MachineBefore,
    /// The machine stops after the write.
    MachineAfter,
    /// The write does not reach the server; the connection breaks.
    CutBefore,
    /// The write is executed; the connection breaks before the response.
    CutAfter,
    /// The server refuses the write.
    Refused,
    /// A watch event is delayed until after the next writes.
    Late,
    /// A watch event is lost: only the next list reveals the change.
    Lost,
}

impl Fault {
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
    /// Nothing may depend on a Kubernetes event, not even if it cannot be written.
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

    /// Returns all faults that are possible at a step with this name.
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

/// One injected fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Injection {
    pub(crate) step: String,
    pub(crate) fault: Fault,
}

/// A running command of the CLI.
#[derive(Clone, Debug)]
struct Command {
    word: String,
    directory: PathBuf,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent observation")]
struct State {
    armed: bool,
    injection: Option<Injection>,
    is_injected: bool,
    steps: Vec<String>,
    counts: HashMap<String, u32>,
    controller: Option<i32>,
    runners: BTreeSet<i32>,
    commands: BTreeMap<i32, Command>,
    violations: Vec<String>,
    machine_died: bool,
    apply_died: bool,
}

/// The state of one execution of a scenario.
#[derive(Clone)]
pub(crate) struct FaultState {
    /// The invariants.
    pub(crate) invariants: Invariants,
    folder: Arc<PathBuf>,
    state: Arc<Mutex<State>>,
}

impl FaultState {
    /// Creates the state for processes that work below `folder`.
    pub(crate) fn new(folder: &Path, injection: Option<Injection>, invariants: Invariants) -> Self {
        let state = State {
            injection,
            ..State::default()
        };
        Self {
            invariants,
            folder: Arc::new(folder.to_owned()),
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Starts counting steps.
    pub(crate) fn arm(&self) {
        self.state().armed = true;
    }

    /// Counts a step; returns the fault to inject.
    pub(crate) fn step(&self, name: &str) -> Option<Fault> {
        let mut state = self.state();
        if !state.armed {
            return None;
        }
        let count = state.counts.entry(name.to_owned()).or_default();
        *count += 1;
        let numbered = format!("{name} #{count}");
        state.steps.push(numbered.clone());
        let fault = state
            .injection
            .as_ref()
            .filter(|injection| injection.step == numbered)?
            .fault;
        state.is_injected = true;
        Some(fault)
    }

    /// Returns the steps so far.
    pub(crate) fn steps(&self) -> Vec<String> {
        self.state().steps.clone()
    }

    /// Whether the fault was injected.
    pub(crate) fn is_injected(&self) -> bool {
        self.state().is_injected
    }

    /// Whether the whole machine stopped.
    pub(crate) fn machine_died(&self) -> bool {
        self.state().machine_died
    }

    /// Whether the machine stopped during an apply, so that resources may exist that no state contains.
    pub(crate) fn apply_died(&self) -> bool {
        self.state().apply_died
    }

    /// Sets the process of the controller.
    pub(crate) fn set_controller(&self, process: Option<u32>) {
        self.state().controller = process.map(u32::cast_signed);
    }

    /// Records a runner.
    pub(crate) fn add_runner(&self, process: i32) {
        self.state().runners.insert(process);
    }

    /// Kills the process that makes the step by SIGKILL.
    pub(crate) fn kill(&self, actor: Actor) {
        match actor {
            Actor::Controller => {
                let controller = self.state().controller;
                if let Some(process) = controller {
                    self.end(process, false);
                }
            }
            Actor::Runner(process) | Actor::Cli(process) => self.end(process, false),
        }
    }

    /// Kills all processes, as if the machine stopped.
    pub(crate) fn stop_machine(&self) {
        let mut state = self.state();
        state.machine_died = true;
        let (controller, runners) = (state.controller, state.runners.clone());
        let commands = std::mem::take(&mut state.commands);
        state.apply_died |= commands.values().any(|command| command.word == "apply");
        drop(state);
        for process in controller.into_iter().chain(runners) {
            self.end(process, false);
        }
        for process in commands.into_keys() {
            self.end(process, true);
        }
    }

    /// Kills a process of this execution; ignores others.
    fn end(&self, process: i32, group: bool) {
        let Some(pid) = Pid::from_raw(process).filter(|_| self.is_own_process(process)) else {
            return;
        };
        // It may exit at the same time.
        let _ = if group {
            kill_process_group(pid, Signal::KILL)
        } else {
            kill_process(pid, Signal::KILL)
        };
    }

    /// Whether a process is alive and works below the folder.
    fn is_own_process(&self, process: i32) -> bool {
        let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        let place = std::fs::read_link(format!("/proc/{process}/cwd")).unwrap_or_default();
        place.starts_with(self.folder.as_path()) || words.contains(&*self.folder.to_string_lossy())
    }

    /// Returns the live processes of this execution, except the controller.
    pub(crate) fn alive(&self) -> Vec<i32> {
        let controller = self.state().controller;
        let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let processes = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
        processes
            .filter(|process| Some(*process) != controller && self.is_own_process(*process))
            .collect()
    }

    /// Records the start of a CLI command.
    pub(crate) fn command_begins(&self, process: i32, word: &str, directory: &Path) {
        let mut state = self.state();
        let applying = |command: &Command| command.word == "apply" && command.directory == directory;
        let other = state.commands.iter().find(|(_, command)| applying(command));
        let other = other.map(|(process, _)| *process);
        if word == "apply"
            && let Some(other) = other.filter(|other| self.is_own_process(*other))
        {
            state
                .violations
                .push(format!("two applies at once in {}: {other}", directory.display()));
        }
        let command = Command {
            word: word.to_owned(),
            directory: directory.to_owned(),
        };
        state.commands.insert(process, command);
    }

    /// Records the end of a CLI command.
    pub(crate) fn command_ended(&self, process: i32) {
        self.state().commands.remove(&process);
    }

    /// Records a violated invariant.
    pub(crate) fn report_violation(&self, law: String) {
        self.state().violations.push(law);
    }

    /// Returns the violated invariants.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }
}
