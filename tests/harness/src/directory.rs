//! A temporary directory of processes that may outlive their test, such as runners and their CLI.
//!
//! A [`tempfile::TempDir`] of such a process stays: the process writes into it during the removal, or makes it again afterwards.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Time limit of the removal.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two attempts of the removal.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A temporary directory. Its drop kills the processes that use it, and removes it.
#[derive(Debug)]
pub struct TestDirectory(TempDir);

impl TestDirectory {
    /// Creates an empty directory.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create() -> io::Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    /// Returns its path, which is canonical if that of temporary files is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        loop {
            let processes = processes_in(self.path());
            for process in &processes {
                let _already_gone = kill_process(*process, Signal::KILL);
            }
            let removed = std::fs::remove_dir_all(self.path());
            let is_gone = removed.map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true);
            if is_gone && processes.is_empty() || Instant::now() > deadline {
                return;
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }
}

/// Returns the other processes that have this path in their command, or work in it. The name of a temporary directory is random, so
/// they belong to the test.
fn processes_in(path: &Path) -> Vec<Pid> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of = |process: PathBuf| {
        let id = process
            .file_name()?
            .to_str()
            .filter(|id| *id != own)?
            .parse()
            .ok()?;
        let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let is_named = String::from_utf8_lossy(&command).contains(path.to_str()?);
        let works_there = || std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(path));
        (is_named || works_there()).then(|| Pid::from_raw(id))?
    };
    entries.filter_map(|entry| of(entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// Starts a shell that writes into the directory until it is killed, and makes it again if it is removed.
    fn writer(directory: &Path, arguments: &[&str]) -> Child {
        let script = "touch started; while :; do mkdir -p \"$0/left\"; : > \"$0/left/$$\"; done";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).args(arguments).current_dir(directory);
        let child = shell.spawn().unwrap();
        while !directory.join("started").exists() {
            std::thread::sleep(RETRY_INTERVAL);
        }
        child
    }

    #[test]
    fn a_directory_is_removed_while_processes_write_into_it() {
        let other = TestDirectory::create().unwrap();
        let mut sleep = Command::new("sleep");
        let mut bystander = sleep.arg("60").current_dir(other.path()).spawn().unwrap();
        let directory = TestDirectory::create().unwrap();
        let path = directory.path().to_owned();
        let text = path.to_str().unwrap();
        let mut writers = [writer(&path, &[text]), writer(&path, &["."])];
        drop(directory);
        let is_killed = |child: &mut Child| !child.wait().unwrap().success();
        assert!(writers.iter_mut().all(is_killed) && !path.exists());
        assert!(
            bystander.try_wait().unwrap().is_none(),
            "it uses another directory"
        );
        drop(other);
        assert!(!bystander.wait().unwrap().success());
    }
}
