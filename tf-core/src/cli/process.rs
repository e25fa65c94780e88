//! Runs one CLI command: own process group, output into files, an interrupt first and a kill only after the grace.
//!
//! Output goes to files and not to pipes: should the runner be killed, the CLI must not die of a closed pipe half-way
//! through an apply.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::process_lock::ProcessLock;

/// Most of a command's error output that is kept in memory: its end, where the error stands.
const TAIL_LIMIT: u64 = 256 * 1024;
/// How often a running command's memory is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// One command to run.
#[derive(Debug)]
pub struct Invocation<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its words.
    pub words: &'a [String],
    /// The directory it runs in.
    pub directory: &'a Path,
    /// Its whole environment.
    pub environment: &'a BTreeMap<String, String>,
    /// File that gets its standard output.
    pub stdout: PathBuf,
    /// File that gets its error output.
    pub stderr: PathBuf,
    /// The locks that it holds when the runner is killed.
    pub locks: &'a [Arc<ProcessLock>],
}

/// When a command has to end early.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Somebody asked the run to stop.
    pub stop: CancellationToken,
    /// The run's deadline.
    pub deadline: Instant,
    /// From the interrupt to the kill.
    pub grace: Duration,
}

/// Why a command was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The runner was told to stop.
    Asked,
    /// The run's deadline passed.
    Deadline,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether and why it was interrupted.
    pub stopped: Option<Stopped>,
    /// Largest resident memory seen, of the command and its direct children, in bytes.
    pub peak_memory: u64,
    /// The file with its standard output.
    pub stdout: PathBuf,
}

impl Ended {
    /// `exit status 1`, or the signal, as Go's exec package words it.
    #[must_use]
    pub fn describe(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal: {signal}"),
            (None, None) => "no exit status".to_owned(),
        }
    }
}

/// Runs the command to its end.
///
/// # Errors
/// When it cannot be started or waited for.
pub async fn run(invocation: &Invocation<'_>, limits: &Limits) -> std::io::Result<Ended> {
    let mut child = spawn(invocation)?;
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    let mut peak_memory = 0;
    let ended = |status: ExitStatus, stopped, peak_memory| Ended {
        code: status.code(),
        signal: status.signal(),
        stopped,
        peak_memory,
        stdout: invocation.stdout.clone(),
    };
    let stopped = tokio::select! {
        status = watched(&mut child, pid, &mut peak_memory) => return Ok(ended(status?, None, peak_memory)),
        () = limits.stop.cancelled() => Stopped::Asked,
        () = tokio::time::sleep_until(limits.deadline) => Stopped::Deadline,
    };
    tracing::info!(?stopped, "interrupting the CLI");
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, Signal::INT);
    }
    let waited = tokio::time::timeout(limits.grace, watched(&mut child, pid, &mut peak_memory)).await;
    if let Ok(status) = waited {
        return Ok(ended(status?, Some(stopped), peak_memory));
    }
    tracing::warn!("the CLI did not end within its grace, killing it");
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    Ok(ended(child.wait().await?, Some(stopped), peak_memory))
}

/// Starts the command; the locks know of it from before it is there.
fn spawn(invocation: &Invocation<'_>) -> std::io::Result<Child> {
    let mut command = Command::new(invocation.program);
    command
        .args(invocation.words)
        .current_dir(invocation.directory)
        .env_clear()
        .envs(invocation.environment)
        .stdin(Stdio::null())
        .stdout(private_file(&invocation.stdout)?)
        .stderr(private_file(&invocation.stderr)?)
        .process_group(0);
    for lock in invocation.locks {
        lock.starting()?;
    }
    let spawned = command.spawn();
    for lock in invocation.locks {
        lock.started(spawned.as_ref().ok().and_then(Child::id));
    }
    spawned
}

/// Waits for the child and samples its memory meanwhile.
async fn watched(child: &mut Child, pid: Option<Pid>, peak: &mut u64) -> std::io::Result<ExitStatus> {
    let mut ticks = tokio::time::interval(SAMPLE_EVERY);
    loop {
        tokio::select! {
            status = child.wait() => return status,
            _ = ticks.tick() => if let Some(pid) = pid { *peak = (*peak).max(resident(pid)) },
        }
    }
}

/// High-water mark of a process plus those of its children (providers are children of the CLI), in bytes.
fn resident(pid: Pid) -> u64 {
    let pid = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let own = high_water(&pid.to_string());
    children
        .split_whitespace()
        .take(64)
        .fold(own, |sum, child| sum.saturating_add(high_water(child)))
}

fn high_water(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line
        .and_then(|text| text.split_whitespace().next())
        .and_then(|text| text.parse::<u64>().ok());
    kilobytes.unwrap_or_default().saturating_mul(1024)
}

/// A new or emptied file that only its owner reads: output may hold secrets.
fn private_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// The end of a file that a command wrote, at most 256 KiB, as text. It begins with a whole line: half a value is not known
/// for one that nobody may read.
///
/// # Errors
/// When the file cannot be read.
pub fn tail(path: &Path) -> std::io::Result<String> {
    use std::io::{Seek, SeekFrom};
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(TAIL_LIMIT);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_LIMIT).read_to_end(&mut bytes)?;
    let whole = if start == 0 {
        &bytes[..]
    } else {
        bytes.splitn(2, |byte| *byte == b'\n').nth(1).unwrap_or_default()
    };
    Ok(String::from_utf8_lossy(whole).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shell {
        dir: tempfile::TempDir,
    }

    impl Shell {
        fn new() -> Self {
            Self {
                dir: tempfile::tempdir().unwrap(),
            }
        }

        async fn run(&self, script: &str, limits: &Limits) -> Ended {
            // Whoever starts the tests may ignore interrupts, which a shell cannot undo for itself.
            let words = ["--default-signal=INT", "/bin/sh", "-c", script].map(str::to_owned);
            let environment = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
            let invocation = Invocation {
                program: Path::new("/usr/bin/env"),
                words: &words,
                directory: self.dir.path(),
                environment: &environment,
                stdout: self.dir.path().join("out"),
                stderr: self.dir.path().join("err"),
                locks: &[],
            };
            tokio::time::timeout(Duration::from_secs(30), run(&invocation, limits))
                .await
                .unwrap()
                .unwrap()
        }
    }

    fn limits(deadline: Duration, grace: Duration) -> Limits {
        Limits {
            stop: CancellationToken::new(),
            deadline: Instant::now() + deadline,
            grace,
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_end_of_a_long_file_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("err");
        let limit = usize::try_from(TAIL_LIMIT).unwrap();
        std::fs::write(&file, "x".repeat(limit)).unwrap();
        assert_eq!(tail(&file).unwrap().len(), limit, "nothing is cut");
        std::fs::write(
            &file,
            format!("secret-value{}\nlast line\n", "x".repeat(limit - 16)),
        )
        .unwrap();
        assert_eq!(tail(&file).unwrap(), "last line\n");
        std::fs::write(&file, "x".repeat(limit + 1)).unwrap();
        assert_eq!(tail(&file).unwrap(), "");
    }

    #[tokio::test]
    async fn output_and_exit_code_are_kept() {
        let shell = Shell::new();
        let ended = shell
            .run("echo out; echo err >&2; env >&2; exit 2", &limits(LONG, LONG))
            .await;
        assert_eq!((ended.code, ended.stopped), (Some(2), None));
        assert_eq!(
            std::fs::read_to_string(shell.dir.path().join("out")).unwrap(),
            "out\n"
        );
        let errors = tail(&shell.dir.path().join("err")).unwrap();
        assert!(
            errors.starts_with("err\n") && !errors.contains("HOME="),
            "{errors}"
        );
    }

    #[tokio::test]
    async fn a_stop_is_an_interrupt_first() {
        let shell = Shell::new();
        let limits = limits(LONG, LONG);
        let stop = limits.stop.clone();
        let started = shell.dir.path().join("started");
        let asker = tokio::spawn(async move {
            while !started.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            stop.cancel();
        });
        let script = "trap 'echo saved >&2; exit 7' INT; touch started; while :; do sleep 0.05; done";
        let ended = shell.run(script, &limits).await;
        asker.await.unwrap();
        assert_eq!((ended.code, ended.stopped), (Some(7), Some(Stopped::Asked)));
        assert_eq!(tail(&shell.dir.path().join("err")).unwrap(), "saved\n");
    }

    #[tokio::test]
    async fn who_ignores_the_interrupt_is_killed_after_the_grace() {
        let shell = Shell::new();
        let short = Duration::from_millis(50);
        let ended = shell.run("trap '' INT; sleep 60", &limits(short, short)).await;
        assert_eq!((ended.signal, ended.stopped), (Some(9), Some(Stopped::Deadline)));
        assert!(ended.peak_memory > 0);
    }
}
