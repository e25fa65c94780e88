//! The process lock: a file lock that shows whether a runner, or a CLI that outlived its runner, is alive.
//!
//! It has two files with an advisory lock each. The runner holds the lock of the first, which names it, and releases it when it
//! ends. The CLI inherits the lock of the second (`.cli`) and holds it even after the runner was killed. Processes of provisioners
//! inherit it as well and may never end. So the second file lists the processes of the CLI by id and start time, and its lock
//! counts only while one of them is alive.

mod holder;
mod processes;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

pub use holder::{Holder, visible_runner};
use processes::{Commands, Process, may_be_alive};
use rustix::fs::FlockOperation;
use rustix::io::{Errno, FdFlags};
use sluice_runtime::sync::lock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Extension of the second file, in place of that of the first.
pub const CLI_SUFFIX: &str = "cli";
/// Interval of attempts to take a lock that another process holds.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Size limit of the list of processes, in bytes.
const RECORD_LIMIT: u64 = 64 * 1024;

/// A process lock. It is released on drop.
#[derive(Debug)]
pub struct ProcessLock {
    runner: File,
    cli: File,
    cli_path: PathBuf,
    commands: Mutex<Commands>,
    /// Its files are removed.
    is_removed: bool,
}

impl ProcessLock {
    /// Acquires the lock. Returns `None` while a runner, or a CLI that outlived its runner, holds it.
    ///
    /// # Errors
    /// The files cannot be created or locked.
    pub fn acquire(path: &Path) -> io::Result<Option<Self>> {
        let runner = loop {
            let file = open(OpenOptions::new().create(true).truncate(false), path)?;
            if !try_lock(&file)? {
                return Ok(None);
            }
            // The previous holder may have removed the file after it was opened.
            if is_file_of_path(&file, path)? {
                break file;
            }
        };
        let cli_path = path.with_extension(CLI_SUFFIX);
        if is_cli_alive(&cli_path)? {
            return Ok(None);
        }
        // A new file: processes of an earlier run may hold the lock of the old one.
        remove(&cli_path)?;
        // It names the previous holder.
        runner.set_len(0)?;
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

    /// Acquires the lock, and waits while another process holds it. Returns `None` if it still does after `timeout`, or at the stop.
    ///
    /// # Errors
    /// The files cannot be created or locked.
    pub async fn wait(path: &Path, timeout: Duration, stop: &CancellationToken) -> io::Result<Option<Self>> {
        let until = Instant::now() + timeout;
        loop {
            let lock = Self::acquire(path)?;
            if lock.is_some() || Instant::now() >= until || stop.is_cancelled() {
                return Ok(lock);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Records in the first file that this process holds the lock for a run, see [`Holder`]. Without the record, the holder is
    /// unknown to those who wait for it.
    pub fn record_holder(&self, run: &str) {
        let Some(record) = holder::record(run) else {
            return;
        };
        if let Err(error) = self.runner.write_all_at(record.as_bytes(), 0) {
            tracing::warn!(%error, "cannot record the holder of a process lock");
        }
    }

    /// Removes the files and releases the lock. `path` is that of [`Self::acquire`].
    ///
    /// # Errors
    /// The first file cannot be removed.
    pub fn remove(mut self, path: &Path) -> io::Result<()> {
        remove(&self.cli_path)?;
        // The next holder creates both files, so `drop` must not remove them.
        self.is_removed = true;
        remove(path)
    }

    /// Records that a command is about to start.
    ///
    /// # Errors
    /// The record cannot be written. The command must not start then.
    pub(crate) fn before_start(&self) -> io::Result<()> {
        let mut commands = lock(&self.commands);
        commands.starting += 1;
        // While the file is empty, the lock counts as held.
        self.cli.set_len(0)?;
        self.write(&commands)
    }

    /// Records the process of a started command, or `None` if the start failed.
    pub(crate) fn after_start(&self, id: Option<u32>) {
        let mut commands = lock(&self.commands);
        let Some(process) = id.map(Process::find) else {
            commands.starting = commands.starting.saturating_sub(1);
            return;
        };
        let Some(process) = process else {
            return; // unknown process: the command stays recorded as about to start
        };
        commands.add(process);
        if let Err(error) = self.cli.set_len(0).and_then(|()| self.write(&commands)) {
            tracing::warn!(%error, "cannot record the processes of the CLI");
        }
    }

    fn write(&self, commands: &Commands) -> io::Result<()> {
        self.cli.write_all_at(commands.record().as_bytes(), 0)
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        // Unlocks for all inheritors, so that processes of provisioners do not hold the lock.
        if !self.is_removed {
            let _ = remove(&self.cli_path);
        }
        let _ = rustix::fs::flock(&self.cli, FlockOperation::Unlock);
        let _ = rustix::fs::flock(&self.runner, FlockOperation::Unlock);
    }
}

/// Whether a runner, or a CLI that outlived its runner, holds the lock.
///
/// # Errors
/// A file exists but cannot be opened.
pub fn is_locked(path: &Path) -> io::Result<bool> {
    let runner = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    // The first lock stays held while the second file is read.
    Ok(!try_lock(&runner)? || is_cli_alive(&path.with_extension(CLI_SUFFIX))?)
}

/// Whether a process of the CLI holds the lock of this file.
fn is_cli_alive(path: &Path) -> io::Result<bool> {
    let cli = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    if try_lock(&cli)? {
        return Ok(false);
    }
    let mut record = String::new();
    let is_text = cli.take(RECORD_LIMIT).read_to_string(&mut record).is_ok();
    Ok(!is_text || may_be_alive(&record))
}

fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.write(true).mode(0o600).open(path)
}

/// Whether the path is still that of this file.
fn is_file_of_path(file: &File, path: &Path) -> io::Result<bool> {
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

    struct KillOnDrop(Child);

    impl Drop for KillOnDrop {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts a process that ends with its input.
    fn sleeper() -> KillOnDrop {
        KillOnDrop(
            Command::new("cat")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// Releases what the kernel releases when the runner is killed: inherited locks stay.
    fn kill_runner(lock: ProcessLock) {
        let ProcessLock { runner, cli, .. } = &lock;
        rustix::fs::flock(runner, FlockOperation::Unlock).unwrap();
        let _ = cli;
        std::mem::forget(lock);
    }

    #[test]
    fn the_cli_of_a_killed_runner_holds_the_lock_but_its_leftover_processes_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.lock");
        let lock = ProcessLock::acquire(&path).unwrap().unwrap();
        assert!(is_locked(&path).unwrap() && ProcessLock::acquire(&path).unwrap().is_none());
        lock.before_start().unwrap();
        let cli = sleeper();
        lock.after_start(Some(cli.0.id()));
        let provisioner = sleeper();
        kill_runner(lock);
        assert!(is_locked(&path).unwrap() && ProcessLock::acquire(&path).unwrap().is_none());
        drop(cli);
        assert!(
            !is_locked(&path).unwrap(),
            "the process of a provisioner does not hold the lock"
        );
        let next = ProcessLock::acquire(&path).unwrap().unwrap();
        assert!(is_locked(&path).unwrap());
        drop(next);
        assert!(!is_locked(&path).unwrap());
        drop(provisioner);
    }

    #[tokio::test]
    async fn who_waits_for_a_lock_gives_up_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let (path, stop) = (dir.path().join("net.lock"), CancellationToken::new());
        let wait = || ProcessLock::wait(&path, Duration::from_millis(150), &stop);
        let held = wait().await.unwrap();
        assert!(held.is_some() && wait().await.unwrap().is_none());
        drop(held);
        assert!(wait().await.unwrap().is_some());
    }

    #[test]
    fn of_concurrent_lockers_of_a_removed_file_one_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.lock");
        let holders = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let Some(lock) = ProcessLock::acquire(&path).unwrap() else {
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
    fn an_unrecorded_command_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.lock");
        let lock = ProcessLock::acquire(&path).unwrap().unwrap();
        let first = sleeper();
        lock.before_start().unwrap();
        lock.after_start(Some(first.0.id()));
        drop(first);
        lock.before_start().unwrap();
        let second = sleeper();
        kill_runner(lock);
        assert!(is_locked(&path).unwrap(), "the second command may live");
        drop(second);
    }

    #[test]
    fn each_of_two_concurrent_commands_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.lock");
        let lock = ProcessLock::acquire(&path).unwrap().unwrap();
        let commands = [sleeper(), sleeper()];
        for command in &commands {
            lock.before_start().unwrap();
            lock.after_start(Some(command.0.id()));
        }
        let provisioner = sleeper();
        kill_runner(lock);
        let [first, second] = commands;
        drop(second);
        assert!(is_locked(&path).unwrap());
        drop(first);
        assert!(!is_locked(&path).unwrap());
        drop(provisioner);
    }

    #[test]
    fn the_holder_is_named_while_it_or_its_cli_lives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.lock");
        assert_eq!(Holder::read(&path), Holder::Unknown);
        let lock = ProcessLock::acquire(&path).unwrap().unwrap();
        assert_eq!(Holder::read(&path), Holder::Unknown, "it is not recorded yet");
        lock.record_holder("net-0a-1");
        let process = std::process::id();
        let runner = Holder::Runner {
            run: "net-0a-1".to_owned(),
            process,
        };
        assert_eq!(Holder::read(&path), runner);
        assert_eq!(runner.to_string(), format!("run net-0a-1 (process {process})"));
        lock.before_start().unwrap();
        let cli = sleeper();
        lock.after_start(Some(cli.0.id()));
        kill_runner(lock);
        // The runner has ended: its id is that of a process with another start time.
        let record = std::fs::read_to_string(&path).unwrap();
        let [run, id, _, namespace] = record.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{record}");
        };
        std::fs::write(&path, format!("{run} {id} 1 {namespace}")).unwrap();
        let left = Holder::Cli {
            run: "net-0a-1".to_owned(),
            processes: vec![cli.0.id()],
        };
        assert_eq!(Holder::read(&path), left);
        assert_eq!(
            left.to_string(),
            format!("the CLI of run net-0a-1 (process {})", cli.0.id())
        );
        drop(cli);
        let next = ProcessLock::acquire(&path).unwrap().unwrap();
        assert_eq!(
            Holder::read(&path),
            Holder::Unknown,
            "the record of the previous holder is removed"
        );
        drop(next);
    }
}
