//! Runs the `git` program for the network, without which the libgit2 of this program is built.
//!
//! `git` knows all transports, and it uses the SSH keys, credential helpers, proxies and certificate authorities that the user has set
//! up already. Prompts are off: `sluice up` has no terminal for an answer.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Limit of what is kept of an output, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;
/// Limit of an error in a message, in characters.
const MAX_ERROR: usize = 1000;
/// Interval of the checks whether the program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time between SIGTERM and SIGKILL, and for the rest of the output.
const GRACE: Duration = Duration::from_secs(2);
/// Settings for each command. The hooks of the user are for work trees.
const SETTINGS: [&str; 2] = ["-c", "core.hooksPath=/dev/null"];
/// Variables that point to another repository, or write what may contain credentials to the output.
const REMOVED: [&str; 11] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_TRACE",
    "GIT_TRACE_CURL",
    "GIT_TRACE_PACKET",
    "GIT_CURL_VERBOSE",
];
/// Options of OpenSSH. A host must be in `known_hosts`. A connection that is kept open would keep the output open, too.
const SSH_OPTIONS: &str =
    " -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10 -o ControlMaster=no";

/// The result of a command.
#[derive(Debug)]
pub(super) struct Output {
    /// Whether its exit status is 0.
    pub(super) is_success: bool,
    /// Standard output, at most 64 KiB.
    pub(super) stdout: String,
    /// Standard error in one line, without credentials in URLs.
    pub(super) error: String,
}

/// Runs a command in a repository. Its outcome is unknown if it cannot be started or does not end in time; the error is the reason.
pub(super) fn run(repository: &Path, arguments: &[&str], deadline: Duration) -> Result<Output, String> {
    let mut child = command(repository, arguments)
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                "a remote repository needs the program `git`, which is not on the PATH: install it".to_owned()
            }
            _ => format!("cannot start `git`: {error}"),
        })?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let status = wait(&mut child, deadline).map_err(|error| format!("cannot wait for `git`: {error}"))?;
    let status = status.ok_or_else(|| format!("it did not end in {} s", deadline.as_secs()))?;
    Ok(Output {
        is_success: status.success(),
        stdout: received(&stdout),
        error: in_one_line(&received(&stderr)),
    })
}

fn command(repository: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .arg("--git-dir")
        .arg(repository)
        .args(SETTINGS)
        .args(arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // Ctrl-C on the terminal of `sluice up` must not end a push.
    command.process_group(0);
    for variable in REMOVED {
        command.env_remove(variable);
    }
    command
        .env("LC_ALL", "C")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GCM_INTERACTIVE", "never")
        .env("GIT_ALLOW_PROTOCOL", "file:http:https:ssh")
        .env("GIT_SSH_COMMAND", ssh_command());
    if std::env::var_os("GIT_ASKPASS").is_none() {
        // Otherwise Git opens the window of SSH_ASKPASS.
        command.env("GIT_ASKPASS", "");
    }
    command
}

/// Returns the SSH command of the user with our options.
fn ssh_command() -> OsString {
    let own = std::env::var_os("GIT_SSH_COMMAND");
    let mut command = own.unwrap_or_else(|| OsString::from("ssh"));
    command.push(SSH_OPTIONS);
    command
}

/// Reads an output in a thread of its own: the program must not block on a full pipe.
fn collect(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let Some(mut stream) = stream else { return };
        let mut kept = Vec::new();
        // The part that was read before an error counts.
        drop(stream.by_ref().take(MAX_OUTPUT).read_to_end(&mut kept));
        drop(sender.send(kept));
        drop(io::copy(&mut stream, &mut io::sink()));
    });
    receiver
}

fn received(output: &mpsc::Receiver<Vec<u8>>) -> String {
    // A process that `git` has left behind may keep the output open.
    let bytes = output.recv_timeout(GRACE).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the end of the program; ends it after the deadline and returns `None`.
fn wait(child: &mut Child, deadline: Duration) -> io::Result<Option<ExitStatus>> {
    if let Some(status) = wait_for(child, deadline)? {
        return Ok(Some(status));
    }
    let group = Pid::from_child(child);
    // SIGTERM first: then Git removes its lock files.
    for signal in [Signal::TERM, Signal::KILL] {
        let _ = kill_process_group(group, signal);
        if wait_for(child, GRACE)?.is_some() {
            break;
        }
    }
    Ok(None)
}

fn wait_for(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns an error without line breaks and credentials, at its length limit.
fn in_one_line(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    redacted(&lines.join("; ")).chars().take(MAX_ERROR).collect()
}

/// Removes user names and passwords from URLs: a user name can be a token, and a setting of the user (`url.….insteadOf`) can add them.
pub(super) fn redacted(text: &str) -> String {
    let mut parts = text.split("://");
    let mut redacted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let authority = part
            .find(|c: char| c == '/' || c == '\'' || c.is_whitespace())
            .unwrap_or(part.len());
        let host = part[..authority].rfind('@').map_or(0, |at| at + 1);
        redacted.push_str("://");
        redacted.push_str(&part[host..]);
    }
    redacted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_no_credentials() {
        let error =
            "fatal: unable to access 'https://me:s3cret@a.example/b.git/':\n  refused by ssh://c@d.example\n";
        assert_eq!(
            in_one_line(error),
            "fatal: unable to access 'https://a.example/b.git/':; refused by ssh://d.example"
        );
        assert_eq!(redacted("https://a.example/b@c"), "https://a.example/b@c");
    }

    #[test]
    fn a_command_ends_at_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        // Git runs an alias that begins with `!` as a program, which waits longer than the deadline.
        let arguments = ["-c", "alias.wait=!sleep 60", "wait"];
        let begin = Instant::now();
        let error = run(dir.path(), &arguments, Duration::from_millis(100)).unwrap_err();
        assert!(error.contains("did not end"), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(30), "it was ended");
    }
}
