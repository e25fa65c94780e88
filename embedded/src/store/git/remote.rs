//! The remote repository of a clone. The branch of the clone points to the commit that the remote branch had at the last poll or push, and
//! a commit counts once the remote has it.

mod fetch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use git2::{Error, Reference, Repository};

use self::fetch::Download;
use super::branch::{Branch, ELSEWHERE, Edits, Heads, Moved};
use super::command::{self, Output};
use super::signing::SigningKey;
use super::{GitOptions, StatusLocation};
use crate::store::StorageHealth;

/// Deadline of a push. Writes of other objects wait for it.
const PUSH_DEADLINE: Duration = Duration::from_secs(15);
/// Deadline for the whole history at the start.
const CLONE_DEADLINE: Duration = Duration::from_mins(10);
/// Deadline for the compaction of the clone. The end of the program waits for it.
const COMPACTION_DEADLINE: Duration = Duration::from_mins(1);
/// Shortest pause after a command that failed. It is as long as the command took, so that a remote that does not answer delays the
/// writes of other objects during at most half of the time.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Parts of the messages of Git and of servers for a push that another process outpaced: it has moved the branch, or moves it now.
const RACE_REJECTIONS: [&str; 6] = [
    "[rejected]",
    "failed to update ref",
    "cannot lock ref",
    "incorrect old value",
    "reference already exists",
    "atomic transaction failed",
];

/// A branch of a remote repository. Copies share their state, so that a download can run beside a write.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    url: String,
    clone: PathBuf,
    reference: String,
    /// Reference of the journal; `None` without one.
    journal: Option<String>,
    /// Set after a failure until a command succeeds.
    away: Arc<Mutex<Option<Away>>>,
    /// Set after a download until [`Remote::take_download`] applies it.
    download: Arc<Mutex<Option<Download>>>,
}

/// The remote repository cannot be used.
#[derive(Debug)]
struct Away {
    /// Time of the next attempt.
    until: Instant,
    reason: String,
}

/// Opens the branch of a store, in a clone if its repository is remote.
pub(super) fn connect(options: &GitOptions) -> Result<(Branch, Option<Remote>), Error> {
    let has_journal = options.status == StatusLocation::Branch;
    let clone = |url| Remote::open(url, &options.repository, &options.branch, has_journal);
    let remote = options.remote.as_deref().map(clone).transpose()?;
    let mut branch = Branch::open(&options.repository, &options.branch, &options.subdir)?;
    if has_journal {
        branch = branch.with_journal();
    }
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
    fn open(url: &str, clone: &Path, branch: &str, has_journal: bool) -> Result<Self, Error> {
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
            journal: has_journal.then(|| format!("{reference}-status")),
            reference,
            away: Arc::default(),
            download: Arc::default(),
        })
    }

    /// Fetches the whole history of the branch, and checks with a dry run that this process can push.
    fn start(&self, branch: &Branch) -> Result<(), Error> {
        let tips = self.tips().map_err(|error| {
            let reason = error.message();
            Error::from_str(&format!(
                "{reason}; `git` must be able to read and push to it without a question"
            ))
        })?;
        branch.forget(tips)?;
        self.fetch_to(self.references(), tips, CLONE_DEADLINE)?;
        let known = branch.heads()?;
        let message = "check the permission to push\n";
        let commit = branch.write(known.branch, &Edits::new(), message, 0)?;
        let mut new = Heads {
            branch: Some(commit),
            ..known
        };
        if branch.has_journal() {
            let none = Edits::new();
            new.journal = Some(branch.write_entry(known.journal, Some(commit), &none, message, 0)?);
        }
        let output = self
            .run_push(known, new, true)
            .map_err(|error| self.advised(&error))?;
        if output.is_success || is_race(&output) {
            return Ok(());
        }
        Err(self.advised(&Error::from_str(&refusal(&output))))
    }

    /// Adds the remedy to the error of a server that does not accept both branches at once.
    fn advised(&self, error: &Error) -> Error {
        match &self.journal {
            Some(journal) => Error::from_str(&format!(
                "{}; `--status file` needs no push of {journal}",
                error.message()
            )),
            None => Error::from_str(error.message()),
        }
    }

    /// Packs the loose objects of the clone if there are many, because each write creates some. The error is the reason.
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

    /// Moves the remote branch, its journal, or both at once. The inner error says why they are not moved: they point to other commits, or
    /// another process moves them now.
    ///
    /// After an error the remote may have the commits all the same; the next fetch shows them.
    pub(super) fn push(&self, branch: &Branch, old: Heads, new: Heads) -> Result<Moved, Error> {
        if old == new {
            // Without a branch, Git would push the one that its settings name.
            return Ok(Ok(()));
        }
        let output = self.run_push(old, new, false)?;
        if output.is_success && is_up_to_date(&output) {
            // Git ignores the lease then. Two processes that write the same in the same second make the same commit, and one comes second.
            return Ok(Err(ELSEWHERE.to_owned()));
        }
        if output.is_success {
            // The remote has stored it. The next fetch moves a branch of the clone that could not be moved.
            if let Err(error) = branch.advance_heads(old, new) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot move the branch of the clone"
                );
            }
            return Ok(Ok(()));
        }
        if is_race(&output) || self.tips()? != old {
            let [branch, journal] = self.references();
            let reference = if new.branch == old.branch { journal } else { branch };
            return Ok(Err(format!("{reference} cannot be moved: {}", refusal(&output))));
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

    /// Returns the references of the branch and of its journal.
    fn references(&self) -> [&str; 2] {
        [&self.reference, self.journal.as_deref().unwrap_or_default()]
    }

    fn run_push(&self, old: Heads, new: Heads, is_dry: bool) -> Result<Output, Error> {
        let [branch, journal] = self.references();
        let moves = [
            (branch, old.branch, new.branch),
            (journal, old.journal, new.journal),
        ];
        let (mut leases, mut refspecs) = (Vec::new(), Vec::new());
        for (reference, old, new) in moves {
            if let Some(new) = new.filter(|new| Some(*new) != old) {
                // An empty hash stands for a branch that does not exist.
                let old = old.map(|id| id.to_string()).unwrap_or_default();
                leases.push(format!("--force-with-lease={reference}:{old}"));
                refspecs.push(format!("{new}:{reference}"));
            }
        }
        let mut arguments = vec![
            "push",
            "--porcelain",
            "--no-verify",
            "--no-follow-tags",
            "--recurse-submodules=no",
        ];
        arguments.extend(leases.iter().map(String::as_str));
        if refspecs.len() > 1 {
            arguments.push("--atomic");
        }
        if is_dry {
            arguments.push("--dry-run");
        }
        arguments.extend(["--", self.url.as_str()]);
        arguments.extend(refspecs.iter().map(String::as_str));
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

/// Returns why a push was rejected; `None` if it was not, or failed before. Of two branches one can have the reason of the other.
fn rejection(output: &Output) -> Option<&str> {
    let lines = output.stdout.lines().filter(|line| line.starts_with("!\t"));
    let reasons = lines.filter_map(|line| line.rsplit('\t').next());
    reasons.min_by_key(|reason| reason.contains("(atomic push"))
}

/// Whether a branch had its new commit before the push.
fn is_up_to_date(output: &Output) -> bool {
    output.stdout.lines().any(|line| line.starts_with("=\t"))
}

fn is_race(output: &Output) -> bool {
    rejection(output).is_some_and(|reason| RACE_REJECTIONS.iter().any(|race| reason.contains(race)))
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
    fn names_that_look_like_options_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = |url, branch| Remote::open(url, &dir.path().join("a.git"), branch, true);
        open("https://a.example/b", "main").unwrap();
        open("--upload-pack=x", "main").unwrap_err();
        open("https://a.example/b", "-x").unwrap_err();
        open("https://a.example/b", "a..b").unwrap_err();
    }
}
