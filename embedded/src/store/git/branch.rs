//! The branch of a bare repository: reads files of commits, writes commits, and moves the branch by compare and swap.

mod changes;
mod journal;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use git2::build::TreeUpdateBuilder;
use git2::{Error, ErrorCode, FileMode, Oid, Repository, Signature, Time, Tree};

pub(super) use self::journal::{ELSEWHERE, Heads};
use super::signing::SigningKey;
use super::{message, subdir};

/// Author of the commits.
const AUTHOR: (&str, &str) = ("sluice", "sluice@localhost");

/// Largest file that is read or written, in bytes: several thousand objects. A push must not fill the memory.
const MAX_FILE: usize = 16 << 20;

/// Commits that are read with one repository. libgit2 keeps up to 256 MiB of the commits and directories that it has read
/// (`git_cache__max_storage` in its `cache.c`), and a long history needs them once.
pub(super) const COMMITS_PER_REPOSITORY: usize = 1024;

/// The text of a file, or why it is not read.
pub(super) type FileText = Result<String, String>;

/// New content of files by path; `None` removes a file.
pub(super) type Edits = BTreeMap<String, Option<String>>;

/// Whether a branch was moved. The error says why not: it points to another commit, or another process moves it now.
pub(super) type Moved = Result<(), String>;

/// A branch of a repository on this machine, which may be the clone of a remote one.
pub(super) struct Branch {
    repository: Repository,
    reference: String,
    /// Reference of the journal of the branch; `None` if the status is in the files of the objects.
    journal: Option<String>,
    /// Directory of the objects with a trailing slash, or empty.
    prefix: String,
    /// Signs the commits.
    signing_key: Option<SigningKey>,
}

impl fmt::Debug for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branch")
            .field("reference", &self.reference)
            .finish_non_exhaustive()
    }
}

/// The time and the message of a commit.
#[derive(Debug)]
pub(super) struct CommitInfo {
    /// Seconds since 1970.
    pub(super) time: i64,
    /// Whole message; empty if it is not UTF-8.
    pub(super) message: String,
}

/// Refuses a file that is too large. The error is the reason.
pub(super) fn check_size(bytes: usize) -> Result<(), String> {
    if bytes > MAX_FILE {
        return Err(format!(
            "it has {bytes} bytes, and the limit is {MAX_FILE}: split it"
        ));
    }
    Ok(())
}

impl Branch {
    /// Opens a branch, which need not exist yet, of a bare repository.
    pub(super) fn open(path: &Path, branch: &str, subdir: &str) -> Result<Self, Error> {
        let repository = Repository::open_bare(path).map_err(|error| {
            let reason = error.message();
            Error::from_str(&format!(
                "{reason}; `git init --bare PATH` makes a bare repository"
            ))
        })?;
        Ok(Self {
            prefix: subdir::prefix(subdir).map_err(|reason| Error::from_str(&reason))?,
            repository,
            reference: format!("refs/heads/{branch}"),
            journal: None,
            signing_key: None,
        })
    }

    /// Opens the branch a second time, to read it. What libgit2 has kept of the reads is free when that is closed.
    pub(super) fn reopened(&self) -> Result<Self, Error> {
        Ok(Self {
            repository: Repository::open_bare(self.repository.path())?,
            reference: self.reference.clone(),
            journal: self.journal.clone(),
            prefix: self.prefix.clone(),
            signing_key: None,
        })
    }

    /// Closes the repository and opens it again, which frees what libgit2 has kept of the reads.
    pub(super) fn reopen(&mut self) -> Result<(), Error> {
        self.repository = Repository::open_bare(self.repository.path())?;
        Ok(())
    }

    /// Signs the commits with a key from now on.
    pub(super) fn sign_with(&mut self, key: SigningKey) {
        self.signing_key = Some(key);
    }

    /// Returns the newest commit; `None` if the branch does not exist.
    pub(super) fn head(&self) -> Result<Option<Oid>, Error> {
        self.find(&self.reference)
    }

    fn find(&self, reference: &str) -> Result<Option<Oid>, Error> {
        match self.repository.refname_to_id(reference) {
            Ok(id) => Ok(Some(id)),
            // A repository that is away must not be taken for one without the branch.
            Err(error)
                if error.code() == ErrorCode::NotFound && self.repository.path().join("HEAD").exists() =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn remove(&self, reference: &str) -> Result<(), Error> {
        match self.repository.find_reference(reference) {
            Ok(mut reference) => reference.delete(),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the commits after `until` up to `head`, oldest first; `None` if `until` is not in the history of `head`.
    ///
    /// A merge continues with the parent whose history has `until`. If several have it, or all of the history is read, with the parent that
    /// has the most commits of the store: `git pull` makes the commit of a user the first parent. The first one wins a tie.
    pub(super) fn line(&self, until: Option<Oid>, head: Oid) -> Result<Option<Vec<Oid>>, Error> {
        if let Some(until) = until
            && !self.has_ancestor(head, until)?
        {
            return Ok(None);
        }
        let mut line = Vec::new();
        let mut next = Some(head);
        let mut reader: Option<Self> = None;
        while next != until {
            let Some(id) = next else { return Ok(None) };
            line.push(id);
            if line.len().is_multiple_of(COMMITS_PER_REPOSITORY) {
                reader = Some(self.reopened()?);
            }
            next = reader.as_ref().unwrap_or(self).previous(id, until)?;
        }
        line.reverse();
        Ok(Some(line))
    }

    /// Whether a commit is another one or in its history.
    pub(super) fn has_ancestor(&self, id: Oid, ancestor: Oid) -> Result<bool, Error> {
        if id == ancestor {
            return Ok(true);
        }
        match self.repository.find_commit(ancestor) {
            Ok(_) => self.repository.graph_descendant_of(id, ancestor),
            // After a rewrite the repository may have removed it.
            Err(error) if error.code() == ErrorCode::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn previous(&self, id: Oid, until: Option<Oid>) -> Result<Option<Oid>, Error> {
        let parents: Vec<Oid> = self.repository.find_commit(id)?.parent_ids().collect();
        if parents.len() < 2 {
            return Ok(parents.first().copied());
        }
        let mut best = None;
        for parent in parents {
            let is_possible = match until {
                Some(until) => self.has_ancestor(parent, until)?,
                None => true,
            };
            if is_possible && self.is_better(parent, best)? {
                best = Some(parent);
            }
        }
        Ok(best)
    }

    fn is_better(&self, parent: Oid, best: Option<Oid>) -> Result<bool, Error> {
        let Some(best) = best else { return Ok(true) };
        Ok(self.own_commits(parent, best)? > self.own_commits(best, parent)?)
    }

    /// Returns the number of commits of stores in the history of one commit and not in that of the other.
    fn own_commits(&self, id: Oid, other: Oid) -> Result<usize, Error> {
        let mut walk = self.repository.revwalk()?;
        walk.push(id)?;
        walk.hide(other)?;
        let mut count = 0;
        for id in walk {
            let commit = self.repository.find_commit(id?)?;
            let is_own = commit.author().email_bytes() == AUTHOR.1.as_bytes();
            let message = commit.message().unwrap_or_default();
            count += usize::from(is_own && !message::parse(message).versions.is_empty());
        }
        Ok(count)
    }

    /// Returns what a commit says besides its files.
    pub(super) fn info(&self, id: Oid) -> Result<CommitInfo, Error> {
        let commit = self.repository.find_commit(id)?;
        Ok(CommitInfo {
            time: commit.time().seconds(),
            message: commit.message().unwrap_or_default().to_owned(),
        })
    }

    /// Returns the content of a file in a commit; `None` if it has none.
    pub(super) fn read(&self, commit: Oid, path: &str) -> Result<Option<FileText>, Error> {
        let blob = self.blob(commit, path)?;
        blob.map(|blob| self.read_blob(blob)).transpose()
    }

    /// Returns the hash of the content of a file in a commit; `None` if it has none.
    pub(super) fn blob(&self, commit: Oid, path: &str) -> Result<Option<Oid>, Error> {
        let tree = self.repository.find_commit(commit)?.tree()?;
        let full = format!("{}{path}", self.prefix);
        match tree.get_path(Path::new(&full)) {
            Ok(entry) => Ok((entry.kind() == Some(git2::ObjectType::Blob)).then(|| entry.id())),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the content of a file by the hash of its content.
    pub(super) fn read_blob(&self, id: Oid) -> Result<FileText, Error> {
        let (size, _) = self.repository.odb()?.read_header(id)?;
        if let Err(reason) = check_size(size) {
            return Ok(Err(reason));
        }
        let blob = self.repository.find_blob(id)?;
        let text = String::from_utf8(blob.content().to_vec());
        Ok(text.map_err(|_| "it is not UTF-8".to_owned()))
    }

    /// Writes a commit with edited files. The branch does not move.
    pub(super) fn write(
        &self,
        parent: Option<Oid>,
        edits: &Edits,
        message: &str,
        time: i64,
    ) -> Result<Oid, Error> {
        let before = match parent {
            Some(parent) => self.repository.find_commit(parent)?.tree()?,
            None => self.empty_tree()?,
        };
        let parents: Vec<Oid> = parent.into_iter().collect();
        self.write_tree(&before, edits, &parents, message, time)
    }

    fn empty_tree(&self) -> Result<Tree<'_>, Error> {
        let empty = self.repository.treebuilder(None)?.write()?;
        self.repository.find_tree(empty)
    }

    /// Writes a commit with the files of a tree and edits of them.
    fn write_tree(
        &self,
        before: &Tree<'_>,
        edits: &Edits,
        parents: &[Oid],
        message: &str,
        time: i64,
    ) -> Result<Oid, Error> {
        let mut update = TreeUpdateBuilder::new();
        for (path, content) in edits {
            let path = format!("{}{path}", self.prefix);
            match content {
                Some(text) => update.upsert(path, self.repository.blob(text.as_bytes())?, FileMode::Blob),
                None => update.remove(path),
            };
        }
        let tree = if edits.is_empty() {
            before.id()
        } else {
            update.create_updated(&self.repository, before)?
        };
        let tree = self.repository.find_tree(tree)?;
        let author = Signature::new(AUTHOR.0, AUTHOR.1, &Time::new(time, 0))?;
        let find = |id: &Oid| self.repository.find_commit(*id);
        let parents = parents.iter().map(find).collect::<Result<Vec<_>, Error>>()?;
        let parents: Vec<_> = parents.iter().collect();
        let Some(key) = &self.signing_key else {
            return self
                .repository
                .commit(None, &author, &author, message, &tree, &parents);
        };
        let commit = self
            .repository
            .commit_create_buffer(&author, &author, message, &tree, &parents)?;
        let commit = commit.as_str()?;
        let signature = key.sign(commit).map_err(|reason| Error::from_str(&reason))?;
        self.repository.commit_signed(commit, &signature, None)
    }

    /// Moves the branch from one commit to another.
    pub(super) fn try_advance(&self, old: Option<Oid>, new: Oid) -> Result<Moved, Error> {
        self.try_advance_reference(&self.reference, old, new)
    }

    fn try_advance_reference(&self, reference: &str, old: Option<Oid>, new: Oid) -> Result<Moved, Error> {
        let log = "sluice";
        let moved = match old {
            Some(old) => self.repository.reference_matching(reference, new, true, old, log),
            None => self.repository.reference(reference, new, false, log),
        };
        match moved {
            Ok(_) => Ok(Ok(())),
            Err(error) => race(reference, error).map(Err),
        }
    }
}

/// Returns why a reference cannot be moved if another process has moved it, moves it now, or has left its lock file.
fn race(reference: &str, error: Error) -> Result<String, Error> {
    match error.code() {
        ErrorCode::Modified | ErrorCode::Exists | ErrorCode::Locked | ErrorCode::NotFound => {
            Ok(format!("{reference} cannot be moved: {}", error.message()))
        }
        _ => Err(error),
    }
}
