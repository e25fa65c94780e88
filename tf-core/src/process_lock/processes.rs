//! The processes of the CLI in the second file of a process lock.

use std::fmt::{self, Write as _};

/// The line of a command that is about to start.
const STARTING: &str = "starting";

/// The processes of the CLI.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Number of commands that are about to start.
    pub(super) starting: usize,
    started: Vec<Process>,
}

/// A process. Ids are reused, but not with the same start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: u32,
    /// Start time in clock ticks since boot.
    start: u64,
    /// The pid namespace of the id, as `/proc/self/ns/pid` names it.
    namespace: String,
}

impl Commands {
    /// Adds the process of a command that was about to start, in place of those that have ended.
    pub(super) fn add(&mut self, process: Process) {
        self.starting = self.starting.saturating_sub(1);
        self.started.retain(Process::may_be_alive);
        self.started.push(process);
    }

    /// The content of the second file.
    pub(super) fn record(&self) -> String {
        let mut text = format!("{STARTING}\n").repeat(self.starting);
        for process in &self.started {
            let _ = writeln!(text, "{process}");
        }
        text
    }
}

impl fmt::Display for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, start, namespace } = self;
        write!(formatter, "{id} {start} {namespace}")
    }
}

impl Process {
    /// Returns the process with this id, if it is visible.
    pub(super) fn find(id: u32) -> Option<Self> {
        Some(Self {
            id,
            start: start_time(id)?,
            namespace: pid_namespace()?,
        })
    }

    /// Parses a line of the record.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let process = Self {
            id: words.next()?.parse().ok()?,
            start: words.next()?.parse().ok()?,
            namespace: words.next()?.to_owned(),
        };
        words.next().is_none().then_some(process)
    }

    /// Whether the process is alive in this pid namespace.
    pub(super) fn is_visible(&self) -> bool {
        Self::find(self.id).as_ref() == Some(self)
    }

    /// Whether the process is alive, or may be alive in another pid namespace.
    pub(super) fn may_be_alive(&self) -> bool {
        pid_namespace().is_none_or(|own| own != self.namespace) || start_time(self.id) == Some(self.start)
    }
}

/// Whether a process of this record may be alive; true for an incomplete record.
pub(super) fn may_be_alive(record: &str) -> bool {
    let Some(lines) = record.strip_suffix('\n') else {
        return true;
    };
    lines
        .split('\n')
        .any(|line| Process::parse(line).is_none_or(|process| process.may_be_alive()))
}

/// Returns the start time of a process; `None` if it does not exist or is a zombie.
fn start_time(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The program name is in parentheses and may contain any character.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start)
}

/// Returns the pid namespace of this process.
fn pid_namespace() -> Option<String> {
    let name = std::fs::read_link("/proc/self/ns/pid").ok()?;
    name.into_os_string().into_string().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_record_is_treated_as_a_process() {
        let own = Process::find(std::process::id()).unwrap();
        let other = Process {
            start: own.start + 1,
            ..own.clone()
        };
        let elsewhere = Process {
            namespace: "pid:[1]".into(),
            ..other.clone()
        };
        let record = |processes: &[&Process]| {
            let started = processes.iter().map(|process| (*process).clone()).collect();
            Commands { starting: 0, started }.record()
        };
        assert!(may_be_alive(&record(&[&own])) && may_be_alive(&record(&[&other, &own])));
        assert!(
            !may_be_alive(&record(&[&other])),
            "the id is that of another process"
        );
        assert!(
            may_be_alive(&record(&[&elsewhere])),
            "it is in another pid namespace"
        );
        let complete = record(&[&other]);
        assert!(may_be_alive("") && may_be_alive("\n") && may_be_alive(&complete[..complete.len() - 1]));
        assert!(may_be_alive(&format!("{STARTING}\n{complete}")));
    }
}
