//! A repository in a temporary folder, created and changed by the real `git`.
//!
//! Every commit has a fixed author and a date that only depends on the number of earlier commits and tags of the same
//! value, so the same calls give the same hashes on every machine. The machine's configuration is not read.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use crate::cli::on_path;

/// The date before the first commit, in seconds since 1970; each commit adds a minute.
const FIRST_DATE: u64 = 1_700_000_000;
pub(super) const AUTHOR: &str = "Ada Lovelace";
pub(super) const EMAIL: &str = "ada@example.com";

/// Why a repository could not be created or changed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// `git` could not be started.
    #[error("cannot start `git`: {0}")]
    Start(#[source] io::Error),
    /// `git` exited with an error.
    #[error("`git {arguments}` failed: {output}")]
    Failed {
        /// The arguments, joined by spaces.
        arguments: String,
        /// What it printed.
        output: String,
    },
    /// A file of the work tree could not be changed.
    #[error("cannot change {path} in the work tree: {source}")]
    File {
        /// Path inside the work tree.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// A work tree with its repository, in a temporary folder that is removed with the value.
#[derive(Debug)]
pub struct Repository {
    folder: TempDir,
    dates: AtomicU64,
}

impl Repository {
    /// Creates an empty repository (no commit yet) on branch `main`.
    ///
    /// # Errors
    /// When `git` is missing or fails, or the temporary folder cannot be created.
    pub fn create() -> Result<Self, GitError> {
        Self::create_with(&["--initial-branch=main"])
    }

    /// As [`Repository::create`], with these arguments of `git init`: `--object-format=sha256`.
    ///
    /// # Errors
    /// When `git` is missing or fails, or the temporary folder cannot be created.
    pub fn create_with(arguments: &[&str]) -> Result<Self, GitError> {
        let folder = TempDir::with_prefix("repository-").map_err(|source| GitError::File {
            path: std::env::temp_dir(),
            source,
        })?;
        let repository = Self {
            folder,
            dates: AtomicU64::new(FIRST_DATE),
        };
        repository.git(["init", "--quiet"].iter().chain(arguments))?;
        Ok(repository)
    }

    /// Returns the work tree.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the folder with objects and references.
    #[must_use]
    pub fn git_dir(&self) -> PathBuf {
        self.path().join(".git")
    }

    /// Writes a file into the work tree; creates its parent folders.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &str, contents: impl AsRef<[u8]>) -> Result<(), GitError> {
        self.change(path, |file| std::fs::write(file, contents.as_ref()))
    }

    /// Writes a file into the work tree and makes it executable.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_executable(&self, path: &str, contents: impl AsRef<[u8]>) -> Result<(), GitError> {
        self.change(path, |file| {
            std::fs::write(file, contents.as_ref())?;
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))
        })
    }

    /// Creates a symbolic link in the work tree; the target need not exist.
    ///
    /// # Errors
    /// When the link cannot be created.
    pub fn symlink(&self, path: &str, target: &str) -> Result<(), GitError> {
        self.change(path, |file| symlink(target, file))
    }

    /// Removes a file or folder from the work tree.
    ///
    /// # Errors
    /// When it does not exist or cannot be removed.
    pub fn remove(&self, path: &str) -> Result<(), GitError> {
        self.change(path, |file| {
            if file.is_dir() {
                std::fs::remove_dir_all(file)
            } else {
                std::fs::remove_file(file)
            }
        })
    }

    /// Commits the work tree (even if nothing changed) to the branch that is checked out. Returns the hash of the commit.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn commit(&self, message: &str) -> Result<String, GitError> {
        self.git(["add", "--all", "--force"])?;
        self.dates.fetch_add(60, Ordering::Relaxed);
        self.git(["commit", "--quiet", "--allow-empty", "--message", message])?;
        self.head()
    }

    /// Writes files and commits. Returns the hash of the commit.
    ///
    /// # Errors
    /// When a file cannot be written or `git` fails.
    pub fn commit_files<C: AsRef<[u8]>>(
        &self,
        files: &[(&str, C)],
        message: &str,
    ) -> Result<String, GitError> {
        for (path, contents) in files {
            self.write(path, contents)?;
        }
        self.commit(message)
    }

    /// Returns the hash of the commit that is checked out.
    ///
    /// # Errors
    /// When there is no commit yet.
    pub fn head(&self) -> Result<String, GitError> {
        self.resolve("HEAD")
    }

    /// Resolves a revision (`main`, `v1`, `v1^{}`, `HEAD~1`) to an object id.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn resolve(&self, revision: &str) -> Result<String, GitError> {
        self.git(["rev-parse", "--verify", "--quiet", revision])
    }

    /// Creates a branch at the commit that is checked out, or moves it there, and checks it out.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn branch(&self, name: &str) -> Result<(), GitError> {
        self.git(["checkout", "--quiet", "-B", name]).map(drop)
    }

    /// Checks out a branch, tag or commit.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn checkout(&self, name: &str) -> Result<(), GitError> {
        self.git(["checkout", "--quiet", name]).map(drop)
    }

    /// Creates or moves a lightweight tag at the commit that is checked out.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn tag(&self, name: &str) -> Result<(), GitError> {
        self.git(["tag", "--force", name]).map(drop)
    }

    /// Creates or moves an annotated tag at the commit that is checked out. Returns the hash of the tag object.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn annotated_tag(&self, name: &str, message: &str) -> Result<String, GitError> {
        self.dates.fetch_add(60, Ordering::Relaxed);
        self.git(["tag", "--force", "--annotate", "--message", message, name])?;
        self.resolve(&format!("refs/tags/{name}"))
    }

    /// Runs any `git` command in the work tree; returns its trimmed output.
    ///
    /// # Errors
    /// When `git` cannot be started or fails.
    pub fn git<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String, GitError> {
        let output = self.run(arguments, "")?;
        Ok(String::from_utf8_lossy(&output).trim().to_owned())
    }

    /// Returns a pack that `git pack-objects` makes of these revisions, one a line. Git computes the deltas again.
    ///
    /// # Errors
    /// When `git` cannot be started or fails.
    pub fn pack(&self, options: &[&str], revisions: &str) -> Result<Vec<u8>, GitError> {
        let fixed = [
            "pack-objects",
            "--stdout",
            "--quiet",
            "--revs",
            "--no-reuse-delta",
        ];
        self.run(fixed.iter().chain(options), revisions)
    }

    /// Adds the commits of a stream of `git fast-import`.
    pub(super) fn import(&self, stream: &str) -> Result<(), GitError> {
        self.run(["fast-import", "--quiet"], stream).map(drop)
    }

    /// Runs a `git` command in the work tree with this input; returns its output.
    fn run<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        input: &str,
    ) -> Result<Vec<u8>, GitError> {
        let date = format!("{} +0000", self.dates.load(Ordering::Relaxed));
        let mut command = hermetic(self.path());
        command
            .current_dir(self.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_COMMITTER_DATE", &date);
        let mut child = command.spawn().map_err(GitError::Start)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).map_err(GitError::Start)?;
        }
        let output = child.wait_with_output().map_err(GitError::Start)?;
        stdout_of(&command, output)
    }

    fn change(&self, path: &str, change: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), GitError> {
        let file = self.path().join(path);
        let above = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        above
            .and_then(|()| change(&file))
            .map_err(|source| GitError::File {
                path: path.into(),
                source,
            })
    }
}

/// Runs a `git` command in a folder, isolated from the machine; returns its output.
///
/// # Errors
/// When `git` cannot be started or fails.
pub fn run_git(folder: &Path, arguments: &[&str]) -> Result<String, GitError> {
    let mut command = hermetic(folder);
    command.current_dir(folder).args(arguments);
    let output = command.output().map_err(GitError::Start)?;
    let output = stdout_of(&command, output)?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Returns what a command printed, or its failure.
fn stdout_of(command: &Command, output: Output) -> Result<Vec<u8>, GitError> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    let printed = [output.stdout, output.stderr].concat();
    Err(GitError::Failed {
        arguments: arguments.join(" "),
        output: String::from_utf8_lossy(&printed).trim().to_owned(),
    })
}

/// Returns a `git` command isolated from the machine: no configuration of users or the system, no prompt, fixed author,
/// English messages. `home` must not contain a relevant `.gitconfig`.
pub(super) fn hermetic(home: &Path) -> Command {
    /// By its path: with a changed environment, the standard library searches a name only in a fork, which copies the page
    /// tables of all tests.
    static GIT: LazyLock<PathBuf> = LazyLock::new(|| on_path("git").unwrap_or_else(|| "git".into()));
    hermetic_program(&GIT, home)
}

/// Does so for a program of Git.
pub(super) fn hermetic_program(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command.env("HOME", home).env("LC_ALL", "C").env("TZ", "UTC");
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0");
    command
        .env("GIT_AUTHOR_NAME", AUTHOR)
        .env("GIT_AUTHOR_EMAIL", EMAIL);
    command
        .env("GIT_COMMITTER_NAME", AUTHOR)
        .env("GIT_COMMITTER_EMAIL", EMAIL);
    // In a container the temporary folder may belong to another user than the process; command scope is trusted.
    command.env("GIT_CONFIG_COUNT", "4");
    for (number, (key, value)) in [
        ("safe.directory", "*"),
        ("gc.auto", "0"),
        ("protocol.file.allow", "always"),
        // Without sample hooks: each repository has a dozen files less.
        ("init.templateDir", ""),
    ]
    .iter()
    .enumerate()
    {
        command
            .env(format!("GIT_CONFIG_KEY_{number}"), key)
            .env(format!("GIT_CONFIG_VALUE_{number}"), value);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_calls_give_the_same_hashes() {
        let make = || {
            let repository = Repository::create().unwrap();
            repository
                .commit_files(&[("a/main.tf", "locals {}\n")], "first")
                .unwrap();
            repository.commit("second").unwrap()
        };
        assert_eq!(make(), make());
    }

    #[test]
    fn a_commit_contains_modes_links_and_removals() {
        let repository = Repository::create().unwrap();
        repository.write_executable("run.sh", "#!/bin/sh\n").unwrap();
        repository.symlink("link", "nowhere").unwrap();
        repository.write("gone", "x").unwrap();
        repository.commit("first").unwrap();
        repository.remove("gone").unwrap();
        repository.commit("second").unwrap();
        let tree = repository.git(["ls-tree", "-r", "HEAD"]).unwrap();
        let modes: Vec<_> = tree
            .lines()
            .map(|line| (&line[..6], line.rsplit('\t').next().unwrap()))
            .collect();
        assert_eq!(modes, [("120000", "link"), ("100755", "run.sh")]);
    }

    #[test]
    fn a_failure_names_the_command_and_the_output_of_git() {
        let repository = Repository::create().unwrap();
        let error = repository.checkout("nothing").unwrap_err().to_string();
        assert!(
            error.contains("git checkout --quiet nothing") && error.contains("did not match"),
            "{error}"
        );
    }

    #[test]
    fn an_annotated_tag_is_its_own_object() {
        let repository = Repository::create().unwrap();
        let commit = repository.commit("first").unwrap();
        let tag = repository.annotated_tag("v1", "one").unwrap();
        assert_ne!(tag, commit);
        assert_eq!(repository.resolve("v1^{}").unwrap(), commit);
    }
}
