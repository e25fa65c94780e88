//! Who holds a process lock, as its files name it.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::processes::Process;
use super::{CLI_SUFFIX, RECORD_LIMIT};

/// The holder of a process lock, for the message of a run that waits for it. It does not tell whether the lock is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The runner of a run.
    Runner {
        /// The name of the run.
        run: String,
        /// The process id.
        process: u32,
    },
    /// The CLI of a run, whose runner has ended.
    Cli {
        /// The name of the run.
        run: String,
        /// The process ids; none while a command may be about to start.
        processes: Vec<u32>,
    },
    /// The files do not name it. A controller that removes files is not named.
    Unknown,
}

impl Holder {
    /// Reads the holder from the files of a lock.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let Some((run, process)) = recorded_runner(path) else {
            return Self::Unknown;
        };
        if process.may_be_alive() {
            return Self::Runner {
                run,
                process: process.id,
            };
        }
        let cli = read(&path.with_extension(CLI_SUFFIX));
        let processes = cli.lines().filter_map(Process::parse);
        let alive = processes.filter(Process::may_be_alive);
        Self::Cli {
            run,
            processes: alive.map(|process| process.id).collect(),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runner { run, process } => write!(formatter, "run {run} (process {process})"),
            Self::Cli { run, processes } => {
                write!(formatter, "the CLI of run {run}")?;
                let ids: Vec<_> = processes.iter().map(u32::to_string).collect();
                match ids.len() {
                    0 => Ok(()),
                    1 => write!(formatter, " (process {})", ids[0]),
                    _ => write!(formatter, " (processes {})", ids.join(", ")),
                }
            }
            Self::Unknown => write!(formatter, "another process"),
        }
    }
}

/// Returns the id of the runner that the first file names, for a signal. `None`: it has ended, or it is in another pid namespace, and
/// here the id may be that of another process.
#[must_use]
pub fn visible_runner(path: &Path) -> Option<u32> {
    let (_, process) = recorded_runner(path)?;
    process.is_visible().then_some(process.id)
}

/// Returns the run and the runner that the first file names.
fn recorded_runner(path: &Path) -> Option<(String, Process)> {
    let text = read(path);
    let (run, process) = text.strip_suffix('\n')?.split_once(' ')?;
    Some((run.to_owned(), Process::parse(process)?))
}

/// Returns the content of the first file if this process holds the lock for a run; `None` if the process is not visible.
pub(super) fn record(run: &str) -> Option<String> {
    Process::find(std::process::id()).map(|process| format!("{run} {process}\n"))
}

/// Reads a file of a lock; empty if it is missing or not text.
fn read(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(RECORD_LIMIT).read_to_string(&mut text));
    read.map(|_| text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_of_another_pid_namespace_is_named_and_gets_no_signal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.lock");
        assert_eq!(visible_runner(&path), None);
        let own = record("net-0a-1").unwrap();
        std::fs::write(&path, &own).unwrap();
        assert_eq!(visible_runner(&path), Some(std::process::id()));
        let (process, _) = own.rsplit_once(' ').unwrap();
        std::fs::write(&path, format!("{process} pid:[1]\n")).unwrap();
        assert!(matches!(Holder::read(&path), Holder::Runner { .. }));
        assert_eq!(visible_runner(&path), None);
    }
}
