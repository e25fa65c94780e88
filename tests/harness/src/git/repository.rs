//! A repository in a temporary folder, made and changed by the real `git`.
//!
//! Every commit has a fixed author and a date that depends only on how many commits and tags were made before it
//! through the same value, so the same calls give the same hashes on every machine. No configuration of the machine is read.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

/// The date of the first commit, in seconds since 1970; each further commit is a minute later.
const FIRST_DATE: u64 = 1_700_000_000;
const AUTHOR: &str = "Ada Lovelace";
const EMAIL: &str = "ada@example.com";

/// Why a repository could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// `git` could not be started at all.
    #[error("cannot start `git`: {0}")]
    Start(#[source] io::Error),
    /// `git` ended with a failure.
    #[error("`git {arguments}` failed: {output}")]
    Failed {
        /// The arguments it was given, joined by spaces.
        arguments: String,
        /// What it printed.
        output: String,
    },
    /// A file of the work tree could not be changed.
    #[error("cannot change {path} in the work tree: {source}")]
    File {
        /// Path inside the work tree.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A work tree with its repository in a temporary folder that goes away with this value.
#[derive(Debug)]
pub struct Repository {
    folder: TempDir,
    dates: AtomicU64,
}

impl Repository {
    /// An empty repository (no commit yet) on branch `main`.
    ///
    /// # Errors
    /// When `git` is missing or fails, or no temporary folder can be made.
    pub fn create() -> Result<Self, GitError> {
        Self::create_with(&["--initial-branch=main"])
    }

    /// As [`Repository::create`], with one's own arguments to `git init`: `--object-format=sha256`, say.
    ///
    /// # Errors
    /// When `git` is missing or fails, or no temporary folder can be made.
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

    /// The work tree.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The repository proper: objects and references.
    #[must_use]
    pub fn git_dir(&self) -> PathBuf {
        self.path().join(".git")
    }

    /// Writes a file into the work tree, with the folders above it.
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

    /// Makes a symbolic link in the work tree; the target need not be there.
    ///
    /// # Errors
    /// When the link cannot be made.
    pub fn symlink(&self, path: &str, target: &str) -> Result<(), GitError> {
        self.change(path, |file| symlink(target, file))
    }

    /// Removes a file or a whole folder from the work tree.
    ///
    /// # Errors
    /// When it is not there or cannot be removed.
    pub fn remove(&self, path: &str) -> Result<(), GitError> {
        self.change(path, |file| {
            if file.is_dir() {
                std::fs::remove_dir_all(file)
            } else {
                std::fs::remove_file(file)
            }
        })
    }

    /// Commits the work tree as it is (also when nothing changed) to the branch that is checked out.
    /// Answers the hash of the commit.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn commit(&self, message: &str) -> Result<String, GitError> {
        self.git(["add", "--all", "--force"])?;
        self.dates.fetch_add(60, Ordering::Relaxed);
        self.git(["commit", "--quiet", "--allow-empty", "--message", message])?;
        self.head()
    }

    /// Writes files and commits. Answers the hash of the commit.
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

    /// The hash of the commit that is checked out.
    ///
    /// # Errors
    /// When there is no commit yet.
    pub fn head(&self) -> Result<String, GitError> {
        self.resolve("HEAD")
    }

    /// The hash of the object that `revision` names (`main`, `v1`, `v1^{}`, `HEAD~1`).
    ///
    /// # Errors
    /// When nothing has that name.
    pub fn resolve(&self, revision: &str) -> Result<String, GitError> {
        self.git(["rev-parse", "--verify", "--quiet", revision])
    }

    /// Starts a branch at the commit that is checked out, or moves it there, and checks it out.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn branch(&self, name: &str) -> Result<(), GitError> {
        self.git(["checkout", "--quiet", "-B", name]).map(drop)
    }

    /// Checks out a branch, tag or commit.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn checkout(&self, name: &str) -> Result<(), GitError> {
        self.git(["checkout", "--quiet", name]).map(drop)
    }

    /// Makes or moves a lightweight tag at the commit that is checked out.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn tag(&self, name: &str) -> Result<(), GitError> {
        self.git(["tag", "--force", name]).map(drop)
    }

    /// Makes or moves an annotated tag at the commit that is checked out. Answers the hash of the tag object.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn annotated_tag(&self, name: &str, message: &str) -> Result<String, GitError> {
        self.dates.fetch_add(60, Ordering::Relaxed);
        self.git(["tag", "--force", "--annotate", "--message", message, name])?;
        self.resolve(&format!("refs/tags/{name}"))
    }

    /// Runs any other `git` command in the work tree; answers what it printed, without the white space around it.
    ///
    /// # Errors
    /// When `git` cannot be started or fails.
    pub fn git<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String, GitError> {
        let date = format!("{} +0000", self.dates.load(Ordering::Relaxed));
        let mut command = hermetic(self.path());
        command
            .current_dir(self.path())
            .args(arguments)
            .stdin(Stdio::null());
        command
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_COMMITTER_DATE", &date);
        let output = command.output().map_err(GitError::Start)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        let words: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
        let said = [output.stdout, output.stderr].concat();
        let arguments = words.join(" ");
        Err(GitError::Failed {
            arguments,
            output: String::from_utf8_lossy(&said).trim().to_owned(),
        })
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

/// `git` with nothing of the machine in its environment but PATH: no user's or system's configuration, no prompt,
/// fixed author, English messages. `home` only has to be a folder without a `.gitconfig` that matters.
pub(super) fn hermetic(home: &Path) -> Command {
    let mut command = Command::new("git");
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
    // The temporary folder may belong to another user than the process (containers): command scope is trusted.
    command.env("GIT_CONFIG_COUNT", "3");
    for (number, (key, value)) in [
        ("safe.directory", "*"),
        ("gc.auto", "0"),
        ("protocol.file.allow", "always"),
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
    fn a_commit_holds_modes_links_and_removals() {
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
    fn a_failure_names_the_command_and_what_git_said() {
        let repository = Repository::create().unwrap();
        let error = repository.checkout("nothing").unwrap_err().to_string();
        assert!(
            error.contains("git checkout --quiet nothing") && error.contains("did not match"),
            "{error}"
        );
    }

    #[test]
    fn an_annotated_tag_is_an_object_of_its_own() {
        let repository = Repository::create().unwrap();
        let commit = repository.commit("first").unwrap();
        let tag = repository.annotated_tag("v1", "one").unwrap();
        assert_ne!(tag, commit);
        assert_eq!(repository.resolve("v1^{}").unwrap(), commit);
    }
}
