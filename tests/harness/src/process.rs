//! A child process that cannot outlive the tests, however they end.
//!
//! The child runs under a small shell that holds one end of a pipe. When this process ends, even by SIGKILL, the pipe
//! closes and the shell kills the child. Processes are never looked up or signalled by name.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};

/// `$1` is the log, `$2` a folder to remove if the tests die (or empty), the rest the command.
const SUPERVISOR: &str = r#"
log=$1 scratch=$2; shift 2
exec 3<&0
"$@" </dev/null 3<&- >>"$log" 2>&1 &
child=$!
echo "$child"
( read -r _ <&3; kill -KILL "$child"; [ -z "$scratch" ] || { sleep 1; rm -rf -- "$scratch"; } ) >/dev/null 2>&1 &
watcher=$!
exec >/dev/null
wait "$child"; code=$?
kill "$watcher" 2>/dev/null
exit "$code"
"#;

/// How long a stopped process may take until all its threads have stopped.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A running child with its log.
#[derive(Debug)]
pub(crate) struct Process {
    supervisor: Child,
    pid: Pid,
    log: PathBuf,
}

impl Process {
    /// Starts `program` and appends its output to `log`. `scratch` is removed if the tests are killed.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        log: &Path,
        scratch: Option<&Path>,
    ) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", SUPERVISOR, "supervisor"])
            .arg(log)
            .arg(scratch.unwrap_or_else(|| Path::new("")));
        shell.arg(program).args(arguments);
        let mut supervisor = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = supervisor.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the supervising shell did not start"))?;
        Ok(Self {
            supervisor,
            pid,
            log: log.to_owned(),
        })
    }

    /// Returns its process id.
    pub(crate) const fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }

    /// Stops it (SIGSTOP), and waits until no thread of it runs: on a busy machine some still answer after the signal.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let tasks = format!("/proc/{}/task", self.pid.as_raw_nonzero());
        let deadline = Instant::now() + STOP_LIMIT;
        while !fs::read_dir(&tasks)?.all(|task| task.is_ok_and(|task| is_stopped(&task.path()))) {
            if Instant::now() > deadline {
                return Err(io::Error::other("its threads do not stop"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Whether it has exited by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.supervisor.try_wait(), Ok(None))
    }

    /// Waits for its end, at most this long. The pipe stays open meanwhile: at its end the shell kills the child.
    pub(crate) async fn wait_at_most(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.supervisor.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                let what = format!("it has not ended after {limit:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills all of its descendants.
    pub(crate) fn kill_descendants(&self) {
        let parents = parents();
        let mut family = vec![self.pid.as_raw_nonzero().get()];
        let mut at = 0;
        while let Some(parent) = family.get(at).copied() {
            family.extend(
                parents
                    .iter()
                    .filter(|(_, of)| *of == parent)
                    .map(|(child, _)| *child),
            );
            at += 1;
        }
        for pid in family.into_iter().skip(1).filter_map(Pid::from_raw) {
            let _already_gone = kill_process(pid, Signal::KILL);
        }
    }

    /// Returns the process ids of its children.
    pub(crate) fn children(&self) -> Vec<i32> {
        let own = self.pid.as_raw_nonzero().get();
        let of_own = parents().into_iter().filter(|(_, parent)| *parent == own);
        of_own.map(|(child, _)| child).collect()
    }

    /// Returns the last lines of its output.
    pub(crate) fn log_tail(&self, lines: usize) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let all: Vec<_> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The shell reaps its child only after the kill, so the number cannot belong to another process yet.
        if matches!(self.supervisor.try_wait(), Ok(None)) {
            let _already_gone = kill_process(self.pid, Signal::KILL);
        }
        drop(self.supervisor.wait());
    }
}

/// Returns every process with its parent.
fn parents() -> Vec<(i32, i32)> {
    let of = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name is in parentheses and may contain anything.
        let parent = stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()?;
        Some((pid, parent))
    };
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| of(entry.ok()?)).collect()
}

/// Whether the thread is stopped, or has ended meanwhile.
fn is_stopped(task: &Path) -> bool {
    let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['T', 'Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(pid: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status
            .rsplit(") ")
            .next()
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
        let started = Instant::now();
        while started.elapsed() < limit {
            if done() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    #[test]
    fn a_child_ends_with_its_value_and_its_log_remains() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let command = ["-c".to_owned(), "echo ready; exec sleep 300".to_owned()];
        let process = Process::start(Path::new("/bin/sh"), &command, &log, None).unwrap();
        let pid = process.pid.as_raw_nonzero().get();
        assert!(alive(pid));
        assert!(within(Duration::from_secs(20), || process.log_tail(1) == "ready"));
        drop(process);
        assert!(!alive(pid));
    }

    #[tokio::test]
    async fn a_wait_has_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let start = |seconds: &str| {
            let log = folder.path().join("log");
            Process::start(Path::new("/bin/sleep"), &[seconds.to_owned()], &log, None).unwrap()
        };
        let status = start("0").wait_at_most(Duration::from_mins(1)).await;
        assert!(status.unwrap().success());
        let error = start("300").wait_at_most(Duration::from_millis(20)).await;
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn descendants_of_a_child_can_be_killed() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let command = ["-c".to_owned(), "sleep 300 & echo $!; wait".to_owned()];
        let process = Process::start(Path::new("/bin/sh"), &command, &log, None).unwrap();
        let started = || process.log_tail(1).parse::<i32>().ok();
        assert!(within(Duration::from_secs(20), || started().is_some()));
        let grandchild = started().unwrap();
        assert!(alive(grandchild));
        process.kill_descendants();
        assert!(within(Duration::from_secs(20), || !alive(grandchild)));
    }

    #[test]
    fn a_child_ends_when_the_pipe_closes_as_when_the_tests_are_killed() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = folder.path().join("scratch");
        fs::create_dir(&scratch).unwrap();
        let log = folder.path().join("log");
        let mut process =
            Process::start(Path::new("/bin/sleep"), &["300".into()], &log, Some(&scratch)).unwrap();
        let pid = process.pid.as_raw_nonzero().get();
        drop(process.supervisor.stdin.take());
        assert!(within(Duration::from_secs(20), || !alive(pid) && process.has_ended()));
    }
}
