//! Runs one CLI command in its own process group. To stop it, sends an interrupt, and kills it after the grace period.
//!
//! The output goes to files instead of pipes, so that an apply continues if the runner is killed.

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

/// Limit of the bytes that [`tail`] returns.
const TAIL_LIMIT: u64 = 256 * 1024;
/// Interval of the memory samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// One command to run.
#[derive(Debug)]
pub struct Invocation<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [String],
    /// Its working directory.
    pub directory: &'a Path,
    /// Its environment variables; none are inherited.
    pub environment: &'a BTreeMap<String, String>,
    /// File for its standard output.
    pub stdout: PathBuf,
    /// File for its standard error.
    pub stderr: PathBuf,
    /// Process locks that the command inherits.
    pub locks: &'a [Arc<ProcessLock>],
}

/// Conditions that stop a command.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Cancelled to stop the run.
    pub stop: CancellationToken,
    /// The run's deadline.
    pub deadline: Instant,
    /// Grace period between interrupt and kill.
    pub grace: Duration,
}

/// Why a command was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The run was requested to stop.
    Requested,
    /// The run's deadline passed.
    Deadline,
}

/// The exit of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandExit {
    /// Its exit code; `None` after a signal.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why it was interrupted, if it was.
    pub stop_reason: Option<StopReason>,
    /// Maximum resident memory of the command and its direct children, in bytes.
    pub peak_memory: u64,
    /// The file with its standard output.
    pub stdout: PathBuf,
}

impl CommandExit {
    /// Returns `exit status 1`, or the signal, in the format of Go's `os/exec`.
    #[must_use]
    pub fn describe(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal: {signal}"),
            (None, None) => "no exit status".to_owned(),
        }
    }
}

/// Runs a command until it ends.
///
/// # Errors
/// The command cannot be started or waited for.
pub async fn run(invocation: &Invocation<'_>, limits: &Limits) -> std::io::Result<CommandExit> {
    let mut child = spawn(invocation)?;
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    let mut peak_memory = 0;
    let exit = |status: ExitStatus, stop_reason, peak_memory| CommandExit {
        code: status.code(),
        signal: status.signal(),
        stop_reason,
        peak_memory,
        stdout: invocation.stdout.clone(),
    };
    let reason = tokio::select! {
        status = wait_and_sample(&mut child, pid, &mut peak_memory) => return Ok(exit(status?, None, peak_memory)),
        () = limits.stop.cancelled() => StopReason::Requested,
        () = tokio::time::sleep_until(limits.deadline) => StopReason::Deadline,
    };
    tracing::info!(stopped = ?reason, "interrupting the CLI");
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, Signal::INT);
    }
    let waited = tokio::time::timeout(limits.grace, wait_and_sample(&mut child, pid, &mut peak_memory)).await;
    if let Ok(status) = waited {
        return Ok(exit(status?, Some(reason), peak_memory));
    }
    tracing::warn!("the CLI did not end within the grace period, killing it");
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    Ok(exit(child.wait().await?, Some(reason), peak_memory))
}

/// Starts the command and records it in the process locks.
fn spawn(invocation: &Invocation<'_>) -> std::io::Result<Child> {
    let mut command = Command::new(invocation.program);
    command
        .args(invocation.arguments)
        .current_dir(invocation.directory)
        .env_clear()
        .envs(invocation.environment)
        .stdin(Stdio::null())
        .stdout(private_file(&invocation.stdout)?)
        .stderr(private_file(&invocation.stderr)?)
        .process_group(0);
    for lock in invocation.locks {
        lock.before_start()?;
    }
    let spawned = command.spawn();
    for lock in invocation.locks {
        lock.after_start(spawned.as_ref().ok().and_then(Child::id));
    }
    spawned
}

/// Waits for the child and samples its memory.
async fn wait_and_sample(child: &mut Child, pid: Option<Pid>, peak: &mut u64) -> std::io::Result<ExitStatus> {
    let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
    loop {
        tokio::select! {
            status = child.wait() => return status,
            _ = ticks.tick() => if let Some(pid) = pid { *peak = (*peak).max(peak_of_tree(pid)) },
        }
    }
}

/// Returns the peak memory of a process and its children (the providers), in bytes.
fn peak_of_tree(pid: Pid) -> u64 {
    let pid = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let own = peak_of_process(&pid.to_string());
    children
        .split_whitespace()
        .take(64)
        .fold(own, |sum, child| sum.saturating_add(peak_of_process(child)))
}

fn peak_of_process(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line
        .and_then(|text| text.split_whitespace().next())
        .and_then(|text| text.parse::<u64>().ok());
    kilobytes.unwrap_or_default().saturating_mul(1024)
}

/// Creates or truncates a file that only its owner can read: output may be sensitive.
fn private_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// Returns the last 256 KiB of a file, from the start of a line: a partial sensitive value could not be found for redaction.
///
/// # Errors
/// The file cannot be read.
pub fn tail(path: &Path) -> std::io::Result<String> {
    use std::io::{Seek, SeekFrom};
    let mut file = File::open(path)?;
    let start = file.metadata()?.len().saturating_sub(TAIL_LIMIT);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_LIMIT).read_to_end(&mut bytes)?;
    let lines = if start == 0 {
        &bytes[..]
    } else {
        bytes.splitn(2, |byte| *byte == b'\n').nth(1).unwrap_or_default()
    };
    Ok(String::from_utf8_lossy(lines).into_owned())
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

        async fn run(&self, script: &str, limits: &Limits) -> CommandExit {
            // The parent of the tests may ignore interrupts, and a shell cannot restore them itself.
            let arguments = ["--default-signal=INT", "/bin/sh", "-c", script].map(str::to_owned);
            let environment = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
            let invocation = Invocation {
                program: Path::new("/usr/bin/env"),
                arguments: &arguments,
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

    const LONG: Duration = Duration::from_mins(1);

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
    async fn output_and_exit_code_are_returned() {
        let shell = Shell::new();
        let exit = shell
            .run("echo out; echo err >&2; env >&2; exit 2", &limits(LONG, LONG))
            .await;
        assert_eq!((exit.code, exit.stop_reason), (Some(2), None));
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
    async fn a_stop_begins_with_an_interrupt() {
        let shell = Shell::new();
        let limits = limits(LONG, LONG);
        let stop = limits.stop.clone();
        let started = shell.dir.path().join("started");
        let requester = tokio::spawn(async move {
            while !started.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            stop.cancel();
        });
        let script = "trap 'echo saved >&2; exit 7' INT; touch started; while :; do sleep 0.05; done";
        let exit = shell.run(script, &limits).await;
        requester.await.unwrap();
        assert_eq!(
            (exit.code, exit.stop_reason),
            (Some(7), Some(StopReason::Requested))
        );
        assert_eq!(tail(&shell.dir.path().join("err")).unwrap(), "saved\n");
    }

    #[tokio::test]
    async fn a_process_that_ignores_the_interrupt_is_killed_after_the_grace_period() {
        let shell = Shell::new();
        let short = Duration::from_millis(50);
        let exit = shell.run("trap '' INT; sleep 60", &limits(short, short)).await;
        assert_eq!(
            (exit.signal, exit.stop_reason),
            (Some(9), Some(StopReason::Deadline))
        );
        assert!(exit.peak_memory > 0);
    }
}
