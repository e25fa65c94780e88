//! The remote repository of a clone: the branch of the clone is where the remote one was at the last look, and a commit counts once
//! the remote has it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use git2::{Error, Oid, Reference, Repository};

use super::GitOptions;
use super::branch::{Branch, Edits};
use super::command::{self, Output};
use super::signing::SigningKey;
use crate::store::StorageHealth;

/// Deadline of a look at the remote branch.
const LOOK_DEADLINE: Duration = Duration::from_secs(10);
/// Deadline of a push. Writes of other objects wait for it.
const PUSH_DEADLINE: Duration = Duration::from_secs(15);
/// Deadline for the new commits of others during a write. Writes of other objects wait for it, too.
const FETCH_DEADLINE: Duration = Duration::from_secs(15);
/// Deadline for the new commits of others during a poll, for which nothing waits.
const DOWNLOAD_DEADLINE: Duration = Duration::from_mins(1);
/// Deadline for the whole history at the start.
const CLONE_DEADLINE: Duration = Duration::from_mins(10);
/// Deadline for the compaction of the clone. The end of the program waits for it.
const COMPACTION_DEADLINE: Duration = Duration::from_mins(1);
/// Where a poll downloads the branch to. The branch itself moves only under the lock of the store.
const DOWNLOADED: &str = "refs/sluice/downloaded";
/// Shortest pause after a command that failed. It is as long as the command took, so that a remote that does not answer delays the
/// writes of other objects during at most half of the time.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// What Git and servers say if another process has moved the branch, or moves it now.
const RACES: [&str; 5] = [
    "[rejected]",
    "failed to update ref",
    "cannot lock ref",
    "incorrect old value",
    "reference already exists",
];

/// A branch of a remote repository. Copies share their state, so that a download can run beside a write.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    url: String,
    clone: PathBuf,
    reference: String,
    /// Set after a failure until a command succeeds.
    away: Arc<Mutex<Option<Away>>>,
    /// Set after a download until it is taken.
    download: Arc<Mutex<Option<Download>>>,
}

/// The remote repository cannot be used.
#[derive(Debug)]
struct Away {
    /// Time of the next attempt.
    until: Instant,
    reason: String,
}

/// What a poll has found.
#[derive(Debug)]
struct Download {
    /// Newest commit of the clone before the download.
    known: Option<Oid>,
    /// Newest commit of the remote repository.
    tip: Option<Oid>,
}

/// Opens the branch of a store, in a clone if its repository is remote.
pub(super) fn connect(options: &GitOptions) -> Result<(Branch, Option<Remote>), Error> {
    let clone = |url| Remote::open(url, &options.repository, &options.branch);
    let remote = options.remote.as_deref().map(clone).transpose()?;
    let mut branch = Branch::open(&options.repository, &options.branch, &options.subdir)?;
    if let Some(path) = &options.signing_key {
        let key = SigningKey::read(path).map_err(|reason| Error::from_str(&reason))?;
        branch.sign_with(key);
    }
    if let Some(remote) = &remote {
        remote.start(&branch)?;
    }
    Ok((branch, remote))
}

impl Remote {
    /// Opens or creates the clone, a bare repository that only this process uses.
    fn open(url: &str, clone: &Path, branch: &str) -> Result<Self, Error> {
        let reference = format!("refs/heads/{branch}");
        let is_option = url.starts_with('-') || branch.starts_with('-');
        if is_option || !Reference::is_valid_name(&reference) {
            return Err(Error::from_str("the URL or the name of the branch is not valid"));
        }
        if has_password(url) {
            return Err(Error::from_str(
                "the URL must not contain a password, which other users of this machine could see; give it to a credential helper of git",
            ));
        }
        if !clone.join("HEAD").exists() {
            Repository::init_bare(clone)?;
        }
        Ok(Self {
            url: url.to_owned(),
            clone: clone.to_owned(),
            reference,
            away: Arc::default(),
            download: Arc::default(),
        })
    }

    /// Fetches the whole history of the branch, and checks with a dry run that this process can push.
    fn start(&self, branch: &Branch) -> Result<(), Error> {
        match self.tip()? {
            Some(_) => self.fetch_to(&self.reference, CLONE_DEADLINE)?,
            None => branch.forget()?,
        }
        let head = branch.head()?;
        let commit = branch.write(head, &Edits::new(), "check the permission to push\n", 0)?;
        let output = self.run_push(head, commit, true)?;
        if output.is_success || is_race(&output) {
            return Ok(());
        }
        Err(Error::from_str(&refusal(&output)))
    }

    /// Moves the branch of the clone to where the remote one is.
    pub(super) fn fetch(&self, branch: &Branch) -> Result<(), Error> {
        let tip = self.tip()?;
        if tip.is_none() {
            branch.forget()
        } else if tip == branch.head()? {
            Ok(())
        } else {
            self.fetch_to(&self.reference, FETCH_DEADLINE)
        }
    }

    /// Downloads the new commits of the remote branch. The branch of the clone, which is at `known`, does not move.
    pub(super) fn download(&self, known: Option<Oid>) -> Result<(), Error> {
        let tip = self.tip()?;
        if tip.is_some() && tip != known {
            self.fetch_to(DOWNLOADED, DOWNLOAD_DEADLINE)?;
        }
        *lock(&self.download) = Some(Download { known, tip });
        Ok(())
    }

    /// Moves the branch of the clone to what was downloaded, unless a write has moved it since: the next poll looks again then.
    pub(super) fn take_download(&self, branch: &Branch) -> Result<(), Error> {
        let Some(Download { known, tip }) = lock(&self.download).take() else {
            return Ok(());
        };
        if tip == known || branch.head()? != known {
            return Ok(());
        }
        match tip {
            // The remote branch can have moved after the look, so what counts is the reference.
            Some(_) => branch.advance_to(known, DOWNLOADED).map(drop),
            None => branch.forget(),
        }
    }

    /// Packs the loose objects of the clone, if there are many: each write makes some. The error is the reason.
    pub(super) fn compact(&self) -> Result<(), String> {
        let arguments = ["-c", "gc.autoDetach=false", "gc", "--auto", "--quiet"];
        let output = command::run(&self.clone, &arguments, COMPACTION_DEADLINE)
            .map_err(|reason| format!("`git gc` failed: {reason}"))?;
        if output.is_success {
            Ok(())
        } else {
            Err(format!("`git gc` failed: {}", output.error))
        }
    }

    /// Moves the remote branch from one commit to another. The inner error says why it is not moved: it is not at the first one, or
    /// another process moves it now.
    ///
    /// After an error the remote may have the commit all the same; the next fetch shows it.
    pub(super) fn push(
        &self,
        branch: &Branch,
        old: Option<Oid>,
        new: Oid,
    ) -> Result<Result<(), String>, Error> {
        let output = self.run_push(old, new, false)?;
        if output.is_success {
            // It is stored. A branch that stays behind in the clone follows with the next fetch.
            if let Err(error) = branch.advance(old, new) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot move the branch of the clone"
                );
            }
            return Ok(Ok(()));
        }
        if is_race(&output) || self.tip()? != old {
            return Ok(Err(format!(
                "{} cannot be moved: {}",
                self.reference,
                refusal(&output)
            )));
        }
        Err(Error::from_str(&refusal(&output)))
    }

    /// Fails during the pause after a failure.
    pub(super) fn check(&self) -> Result<(), Error> {
        match &*lock(&self.away) {
            Some(away) if Instant::now() < away.until => Err(Error::from_str(&away.reason)),
            _ => Ok(()),
        }
    }

    /// Returns whether the remote repository answered the last command.
    pub(super) fn health(&self) -> StorageHealth {
        match &*lock(&self.away) {
            Some(away) => StorageHealth::RemoteAway(away.reason.clone()),
            None => StorageHealth::Writable,
        }
    }

    /// Returns the newest commit of the remote branch; `None` if the branch does not exist.
    fn tip(&self) -> Result<Option<Oid>, Error> {
        let arguments = [
            "ls-remote",
            "--quiet",
            "--",
            self.url.as_str(),
            self.reference.as_str(),
        ];
        let output = self.run(&arguments, LOOK_DEADLINE)?;
        let mut lines = output.stdout.lines().filter_map(|line| line.split_once('\t'));
        // The name is a pattern that also finds the end of longer names.
        let found = lines.find(|(_, name)| *name == self.reference);
        found.map(|(id, _)| Oid::from_str(id)).transpose()
    }

    /// Fetches the branch to a reference of the clone.
    fn fetch_to(&self, reference: &str, deadline: Duration) -> Result<(), Error> {
        // No other process uses the clone, so a lock is the rest of a process that was killed.
        drop(std::fs::remove_file(self.clone.join(format!("{reference}.lock"))));
        let refspec = format!("+{}:{reference}", self.reference);
        let options = [
            "--quiet",
            "--no-tags",
            // The compaction does it, and nothing waits for that.
            "--no-auto-gc",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
        ];
        let mut arguments = vec!["fetch"];
        arguments.extend(options);
        arguments.extend(["--", self.url.as_str(), refspec.as_str()]);
        self.run(&arguments, deadline).map(drop)
    }

    fn run_push(&self, old: Option<Oid>, new: Oid, is_dry: bool) -> Result<Output, Error> {
        // An empty hash stands for a branch that does not exist.
        let old = old.map(|id| id.to_string()).unwrap_or_default();
        let lease = format!("--force-with-lease={}:{old}", self.reference);
        let refspec = format!("{new}:{}", self.reference);
        let mut arguments = vec![
            "push",
            "--porcelain",
            "--no-verify",
            "--no-follow-tags",
            "--recurse-submodules=no",
            &lease,
        ];
        if is_dry {
            arguments.push("--dry-run");
        }
        arguments.extend(["--", self.url.as_str(), refspec.as_str()]);
        self.run(&arguments, PUSH_DEADLINE)
    }

    /// Runs a command that uses the network. A rejection of a push is an answer; each other failure is an error, and begins a pause.
    fn run(&self, arguments: &[&str], deadline: Duration) -> Result<Output, Error> {
        self.check()?;
        let begin = Instant::now();
        let failure = match command::run(&self.clone, arguments, deadline) {
            Ok(output) if output.is_success || rejection(&output).is_some() => {
                *lock(&self.away) = None;
                return Ok(output);
            }
            Ok(output) => output.error,
            Err(reason) => reason,
        };
        let name = arguments.first().copied().unwrap_or_default();
        let reason = format!("`git {name}` failed: {failure}");
        let until = Instant::now() + begin.elapsed().clamp(MIN_PAUSE, MAX_PAUSE);
        let error = Error::from_str(&reason);
        *lock(&self.away) = Some(Away { until, reason });
        Err(error)
    }
}

/// Locks a value whose every change is one assignment.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns why a push was rejected; `None` if it was not, or failed before.
fn rejection(output: &Output) -> Option<&str> {
    let mut lines = output.stdout.lines();
    let line = lines.find(|line| line.starts_with("!\t"))?;
    line.rsplit('\t').next()
}

fn is_race(output: &Output) -> bool {
    rejection(output).is_some_and(|reason| RACES.iter().any(|race| reason.contains(race)))
}

fn refusal(output: &Output) -> String {
    let reason = rejection(output).unwrap_or_default();
    format!(
        "the remote repository does not accept a push {reason}: {}",
        output.error
    )
}

/// Returns whether a URL contains a password.
fn has_password(url: &str) -> bool {
    let authority = url
        .split_once("://")
        .map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    let user = authority.and_then(|authority| authority.rsplit_once('@'));
    user.is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(stdout: &str) -> Output {
        Output {
            is_success: false,
            stdout: stdout.to_owned(),
            error: "no".to_owned(),
        }
    }

    #[test]
    fn a_push_that_came_second_is_not_one_that_is_refused() {
        let line = |reason: &str| {
            output(&format!(
                "To https://a.example/b\n!\tx:refs/heads/main\t{reason}\nDone\n"
            ))
        };
        for race in [
            "[rejected] (stale info)",
            "[remote rejected] (failed to update ref)",
        ] {
            assert!(is_race(&line(race)), "{race}");
        }
        let refused = line("[remote rejected] (protected branch)");
        assert!(!is_race(&refused));
        assert!(refusal(&refused).contains("(protected branch)"));
        assert!(rejection(&output("fatal: x\n")).is_none());
    }

    #[test]
    fn no_name_is_an_option() {
        let dir = tempfile::tempdir().unwrap();
        let open = |url, branch| Remote::open(url, &dir.path().join("a.git"), branch);
        open("https://a.example/b", "main").unwrap();
        open("--upload-pack=x", "main").unwrap_err();
        open("https://a.example/b", "-x").unwrap_err();
        open("https://a.example/b", "a..b").unwrap_err();
    }
}
