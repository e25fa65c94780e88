//! Lists the remote branch and its journal, and fetches their commits.

use std::time::Duration;

use git2::{Error, Oid};

use super::{Remote, lock};
use crate::store::git::branch::{Branch, Heads};

/// Deadline of `git ls-remote`.
const LS_REMOTE_DEADLINE: Duration = Duration::from_secs(10);
/// Deadline of a fetch of new commits during a write. Writes of other objects wait for it, too.
const FETCH_DEADLINE: Duration = Duration::from_secs(15);
/// Deadline of a fetch of new commits during a poll. No write waits for it.
const DOWNLOAD_DEADLINE: Duration = Duration::from_mins(1);
/// References to which a poll downloads the branch and its journal. The branch and the journal of the clone move only under the lock of the
/// store.
const DOWNLOADED: [&str; 2] = ["refs/sluice/downloaded", "refs/sluice/downloaded-status"];

/// The result of a poll.
#[derive(Debug)]
pub(super) struct Download {
    /// Newest commits of the clone before the download.
    known: Heads,
    /// Newest commits of the remote repository.
    tips: Heads,
}

impl Remote {
    /// Moves the branch of the clone, and its journal, to the commits of the remote ones.
    pub(in crate::store::git) fn fetch(&self, branch: &Branch) -> Result<(), Error> {
        let tips = self.tips()?;
        branch.forget(tips)?;
        if tips == branch.heads()? {
            return Ok(());
        }
        self.fetch_to(self.references(), tips, FETCH_DEADLINE)
    }

    /// Downloads the new commits of the remote branch. The branch of the clone does not move from the known commits.
    pub(in crate::store::git) fn download(&self, known: Heads) -> Result<(), Error> {
        let tips = self.tips()?;
        if tips != known {
            self.fetch_to(DOWNLOADED, tips, DOWNLOAD_DEADLINE)?;
        }
        *lock(&self.download) = Some(Download { known, tips });
        Ok(())
    }

    /// Moves the branch of the clone to the downloaded commit. If a write has moved the branch since, it does nothing, and the next poll
    /// tries again.
    pub(in crate::store::git) fn take_download(&self, branch: &Branch) -> Result<(), Error> {
        let Some(Download { known, tips }) = lock(&self.download).take() else {
            return Ok(());
        };
        if tips == known || branch.heads()? != known {
            return Ok(());
        }
        branch.advance_to(known, tips, DOWNLOADED)
    }

    /// Returns the newest commits of the remote branch and of its journal.
    pub(super) fn tips(&self) -> Result<Heads, Error> {
        let mut arguments = vec![
            "ls-remote",
            "--quiet",
            "--",
            self.url.as_str(),
            self.reference.as_str(),
        ];
        arguments.extend(self.journal.as_deref());
        let output = self.run(&arguments, LS_REMOTE_DEADLINE)?;
        // The name is a pattern that also finds the end of longer names.
        let find = |reference: &str| {
            let mut lines = output.stdout.lines().filter_map(|line| line.split_once('\t'));
            let found = lines.find(|(_, name)| *name == reference);
            found.map(|(id, _)| Oid::from_str(id)).transpose()
        };
        let journal = self.journal.as_deref().map(find).transpose()?.flatten();
        let branch = find(&self.reference)?;
        Ok(Heads { branch, journal })
    }

    /// Fetches the branch and its journal, as far as they exist, to references of the clone.
    pub(super) fn fetch_to(
        &self,
        references: [&str; 2],
        tips: Heads,
        deadline: Duration,
    ) -> Result<(), Error> {
        let exists = [tips.branch.is_some(), tips.journal.is_some()];
        let mut refspecs = Vec::new();
        for ((from, to), _) in (self.references().iter().zip(references))
            .zip(exists)
            .filter(|(_, exists)| *exists)
        {
            // No other process uses the clone, so a killed process has left this lock.
            drop(std::fs::remove_file(self.clone.join(format!("{to}.lock"))));
            refspecs.push(format!("+{from}:{to}"));
        }
        if refspecs.is_empty() {
            return Ok(());
        }
        let options = [
            "--quiet",
            "--no-tags",
            // The compaction packs objects, and nothing waits for it.
            "--no-auto-gc",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
        ];
        let mut arguments = vec!["fetch"];
        arguments.extend(options);
        arguments.extend(["--", self.url.as_str()]);
        arguments.extend(refspecs.iter().map(String::as_str));
        self.run(&arguments, deadline).map(drop)
    }
}
