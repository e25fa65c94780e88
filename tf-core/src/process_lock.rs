//! A file lock that tells whether a runner, or the CLI that it left behind, still works.
//!
//! Two files, each with an advisory lock. That of the path itself belongs to the runner alone and is free once the runner has
//! ended. That of the file beside it (`.cli`) is inherited by the CLI, which holds it even when the runner has been killed. What
//! a provisioner starts inherits it too and may live for ever, so the file also names the processes of the CLI, each by its id
//! and its start: where none of them lives, whatever else holds the file does not count.

use sluice_runtime::sync::lock;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::FlockOperation;
use rustix::io::{Errno, FdFlags};

/// What the name of the second file ends in, in place of the first one's ending.
pub const CLI_SUFFIX: &str = "cli";
/// Largest record of processes that is read, in bytes.
const RECORD_LIMIT: u64 = 64 * 1024;
/// A command that is about to be started.
const STARTING: &str = "starting";

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct ProcessLock {
    runner: File,
    cli: File,
    cli_path: PathBuf,
    commands: Mutex<Commands>,
    /// Its files are no longer there.
    is_removed: bool,
}

/// The processes of the CLI.
#[derive(Debug, Default)]
struct Commands {
    /// Commands that are about to be started.
    starting: usize,
    started: Vec<Process>,
}

/// One process of one machine: an id may be used again, together with the start it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    /// Clock ticks from the start of the machine to that of the process.
    start: u64,
    /// The namespace in which the id is known, as `/proc/self/ns/pid` names it.
    namespace: String,
}

impl ProcessLock {
    /// Takes the lock; `None` while a runner holds it, or a CLI that outlived its runner.
    ///
    /// # Errors
    /// When the files cannot be made or locked.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let runner = loop {
            let file = open(OpenOptions::new().create(true).truncate(false), path)?;
            if !try_lock(&file)? {
                return Ok(None);
            }
            // The holder before may have removed the file between the two steps: then the lock is that of no path.
            if is_at(&file, path)? {
                break file;
            }
        };
        let cli_path = path.with_extension(CLI_SUFFIX);
        if cli_lives(&cli_path)? {
            return Ok(None);
        }
        // A fresh file: what an earlier run left running may still hold the old one.
        remove(&cli_path)?;
        let cli = open(OpenOptions::new().create_new(true), &cli_path)?;
        rustix::fs::flock(&cli, FlockOperation::NonBlockingLockExclusive)?;
        rustix::io::fcntl_setfd(&cli, FdFlags::empty())?;
        let commands = Mutex::default();
        Ok(Some(Self {
            runner,
            cli,
            cli_path,
            commands,
            is_removed: false,
        }))
    }

    /// Removes the files and opens the lock. Who waits for it makes them again.
    ///
    /// # Errors
    /// When the file of the path cannot be removed. `path` is the one that was taken.
    pub fn remove(mut self, path: &Path) -> io::Result<()> {
        remove(&self.cli_path)?;
        // From here on the next holder makes both again: the end of this one must leave them alone.
        self.is_removed = true;
        remove(path)
    }

    /// A command is about to be started.
    ///
    /// # Errors
    /// When that cannot be put on record: the command must not be started then.
    pub fn starting(&self) -> io::Result<()> {
        let mut commands = lock(&self.commands);
        commands.starting += 1;
        // An empty record means that anything may live: it counts until the whole one stands.
        self.cli.set_len(0)?;
        self.write(&commands)
    }

    /// The command was started as this process, or not at all.
    pub fn started(&self, id: Option<u32>) {
        let mut commands = lock(&self.commands);
        let Some(process) = id.map(Process::of) else {
            commands.starting = commands.starting.saturating_sub(1);
            return;
        };
        let Some(process) = process else {
            return; // it stays on record as one that is about to be started
        };
        commands.starting = commands.starting.saturating_sub(1);
        commands.started.retain(Process::lives);
        commands.started.push(process);
        if let Err(error) = self.cli.set_len(0).and_then(|()| self.write(&commands)) {
            tracing::warn!(%error, "the processes of the CLI are not on record");
        }
    }

    fn write(&self, commands: &Commands) -> io::Result<()> {
        self.cli.write_all_at(commands.record().as_bytes(), 0)
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        // The end of a run opens the lock for all, so that what a provisioner left running holds nothing.
        if !self.is_removed {
            let _ = remove(&self.cli_path);
        }
        let _ = rustix::fs::flock(&self.cli, FlockOperation::Unlock);
        let _ = rustix::fs::flock(&self.runner, FlockOperation::Unlock);
    }
}

impl Commands {
    fn record(&self) -> String {
        let mut text = format!("{STARTING}\n").repeat(self.starting);
        for Process { id, start, namespace } in &self.started {
            let _ = writeln!(text, "{id} {start} {namespace}");
        }
        text
    }
}

impl Process {
    /// The process of this id, as far as it can be seen.
    fn of(id: u32) -> Option<Self> {
        Some(Self {
            id,
            start: start_of(id)?,
            namespace: namespace()?,
        })
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let process = Self {
            id: words.next()?.parse().ok()?,
            start: words.next()?.parse().ok()?,
            namespace: words.next()?.to_owned(),
        };
        words.next().is_none().then_some(process)
    }

    /// Whether it lives, or may live where it cannot be seen.
    fn lives(&self) -> bool {
        namespace().is_none_or(|own| own != self.namespace) || start_of(self.id) == Some(self.start)
    }
}

/// Whether a living runner holds the lock of this path, or a CLI that outlived its runner.
///
/// # Errors
/// When the files are there and cannot be opened.
pub fn is_locked(path: &Path) -> io::Result<bool> {
    let runner = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    // Nobody takes the lock while the second file is looked at.
    Ok(!try_lock(&runner)? || cli_lives(&path.with_extension(CLI_SUFFIX))?)
}

/// Whether a process of the CLI holds this file.
fn cli_lives(path: &Path) -> io::Result<bool> {
    let cli = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    if try_lock(&cli)? {
        return Ok(false);
    }
    let mut record = String::new();
    let is_text = cli.take(RECORD_LIMIT).read_to_string(&mut record).is_ok();
    Ok(!is_text || may_live(&record))
}

/// Whether a process of this record may live (pure, but for the look at the processes): so it is where the record is not whole.
fn may_live(record: &str) -> bool {
    let Some(lines) = record.strip_suffix('\n') else {
        return true;
    };
    lines
        .split('\n')
        .any(|line| Process::read(line).is_none_or(|process| process.lives()))
}

/// When the process began; `None` where it is not there any more, or waits to be buried.
fn start_of(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in parentheses, may hold anything.
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start)
}

/// The namespace of process ids that this process lives in.
fn namespace() -> Option<String> {
    let name = std::fs::read_link("/proc/self/ns/pid").ok()?;
    name.into_os_string().into_string().ok()
}

fn open(how: &mut OpenOptions, path: &Path) -> io::Result<File> {
    how.write(true).mode(0o600).open(path)
}

/// Whether the path still leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        found => found.map(|found| (found.dev(), found.ino()) == (opened.dev(), opened.ino())),
    }
}

fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Ended(Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A process that lives until its input ends.
    fn sleeper() -> Ended {
        Ended(
            Command::new("cat")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// The runner is killed: nothing is opened for what inherited the lock.
    fn killed(lock: ProcessLock) {
        let ProcessLock { runner, cli, .. } = &lock;
        rustix::fs::flock(runner, FlockOperation::Unlock).unwrap();
        let _ = cli;
        std::mem::forget(lock);
    }

    #[test]
    fn the_cli_of_a_killed_runner_holds_the_lock_and_what_it_leaves_behind_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.lock");
        let lock = ProcessLock::take(&path).unwrap().unwrap();
        assert!(is_locked(&path).unwrap() && ProcessLock::take(&path).unwrap().is_none());
        lock.starting().unwrap();
        let cli = sleeper();
        lock.started(Some(cli.0.id()));
        let left_over = sleeper();
        killed(lock);
        assert!(is_locked(&path).unwrap() && ProcessLock::take(&path).unwrap().is_none());
        drop(cli);
        assert!(!is_locked(&path).unwrap(), "what is left over holds nothing");
        let next = ProcessLock::take(&path).unwrap().unwrap();
        assert!(is_locked(&path).unwrap());
        drop(next);
        assert!(!is_locked(&path).unwrap());
        drop(left_over);
    }

    #[test]
    fn of_those_who_take_a_lock_that_is_removed_meanwhile_one_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.lock");
        let holders = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let Some(lock) = ProcessLock::take(&path).unwrap() else {
                            continue;
                        };
                        assert_eq!(holders.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        holders.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        lock.remove(&path).unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_command_that_is_not_on_record_yet_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.lock");
        let lock = ProcessLock::take(&path).unwrap().unwrap();
        let first = sleeper();
        lock.starting().unwrap();
        lock.started(Some(first.0.id()));
        drop(first);
        lock.starting().unwrap();
        let second = sleeper();
        killed(lock);
        assert!(is_locked(&path).unwrap(), "the second command may live");
        drop(second);
    }

    #[test]
    fn of_two_commands_at_once_each_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.lock");
        let lock = ProcessLock::take(&path).unwrap().unwrap();
        let commands = [sleeper(), sleeper()];
        for command in &commands {
            lock.starting().unwrap();
            lock.started(Some(command.0.id()));
        }
        let left_over = sleeper();
        killed(lock);
        let [first, second] = commands;
        drop(second);
        assert!(is_locked(&path).unwrap());
        drop(first);
        assert!(!is_locked(&path).unwrap());
        drop(left_over);
    }

    #[test]
    fn a_record_that_is_not_whole_counts_as_a_process() {
        let own = Process::of(std::process::id()).unwrap();
        let other = Process {
            start: own.start + 1,
            ..own.clone()
        };
        let elsewhere = Process {
            namespace: "pid:[1]".into(),
            ..other.clone()
        };
        let record = |started: &[&Process]| {
            let started = started.iter().map(|process| (*process).clone()).collect();
            Commands { starting: 0, started }.record()
        };
        assert!(may_live(&record(&[&own])) && may_live(&record(&[&other, &own])));
        assert!(!may_live(&record(&[&other])), "the id is that of another process");
        assert!(may_live(&record(&[&elsewhere])), "it cannot be seen from here");
        let whole = record(&[&other]);
        assert!(may_live("") && may_live("\n") && may_live(&whole[..whole.len() - 1]));
        assert!(may_live(&format!("{STARTING}\n{whole}")));
    }
}
