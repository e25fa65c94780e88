//! Reads the commits of a long history ahead, on a thread of its own: a start reads and parses files while it applies those before them.

use std::sync::mpsc::{self, SyncSender};
use std::thread;

use git2::{Error, Oid};

use super::branch::{Branch, COMMITS_PER_REPOSITORY, Heads};
use super::commit_content::CommitContent;
use super::entry_content::EntryContent;

/// Length of a history that has a thread of its own.
const LONG: usize = 64;
/// Commits that wait to be applied.
const WAITING: usize = 32;
/// Bytes of the files of one commit that are read ahead. Together with [`WAITING`] it limits the memory. The rest is read when the commit
/// is applied.
const MAX_BYTES: usize = 256 << 10;
/// Files of one commit that is read ahead: each needs memory, also an empty one. A commit with more files is compared again when it is
/// applied.
const MAX_FILES: usize = 4096;

/// Calls `apply` with the commits of a line, oldest first. `previous` is the commit before the first one.
pub(super) fn for_each_commit(
    branch: &Branch,
    previous: Option<Oid>,
    line: &[Oid],
    mut apply: impl FnMut(Oid, CommitContent) -> Result<(), Error>,
) -> Result<(), Error> {
    let max_files = max_files(line);
    let mut read_before = previous;
    let read = move |branch: &Branch, id: Oid| -> Result<Option<CommitContent>, Error> {
        let mut content = CommitContent::of(branch, read_before, id)?;
        read_before = Some(id);
        if content.files.len() > max_files {
            return Ok(None);
        }
        content.read(branch, MAX_BYTES)?;
        Ok(Some(content))
    };
    let mut applied_before = previous;
    let apply = |id: Oid, content: Option<CommitContent>| {
        let content = match content {
            Some(content) => content,
            None => CommitContent::of(branch, applied_before, id)?,
        };
        applied_before = Some(id);
        apply(id, content)
    };
    for_each(branch, line, read, apply)
}

/// Calls `apply` with what the commits of a journal change, oldest first. `known` are the newest commits before the first one.
pub(super) fn for_each_entry(
    branch: &Branch,
    known: Heads,
    chain: &[Oid],
    mut apply: impl FnMut(Oid, EntryContent) -> Result<(), Error>,
) -> Result<(), Error> {
    let max_files = max_files(chain);
    let mut read_before = known;
    let read = move |branch: &Branch, id: Oid| -> Result<Option<EntryContent>, Error> {
        let mut content = EntryContent::of(branch, read_before, id)?;
        read_before = heads_after(read_before, id, &content);
        if content.count() > max_files {
            return Ok(None);
        }
        content.read(branch, id, MAX_BYTES)?;
        Ok(Some(content))
    };
    let mut applied_before = known;
    let apply = |id: Oid, content: Option<EntryContent>| {
        let content = match content {
            Some(content) => content,
            None => EntryContent::of(branch, applied_before, id)?,
        };
        applied_before = heads_after(applied_before, id, &content);
        apply(id, content)
    };
    for_each(branch, chain, read, apply)
}

/// Returns the limit of the files of one commit: a short history is not read ahead.
const fn max_files(ids: &[Oid]) -> usize {
    if ids.len() < LONG { usize::MAX } else { MAX_FILES }
}

/// Returns the newest commits after the commit `id` of a journal.
fn heads_after(known: Heads, id: Oid, content: &EntryContent) -> Heads {
    Heads {
        branch: content.head.or(known.branch),
        journal: Some(id),
    }
}

/// Reads commits in their order, and applies each.
fn for_each<T: Send>(
    branch: &Branch,
    ids: &[Oid],
    mut read: impl FnMut(&Branch, Oid) -> Result<T, Error> + Send,
    mut apply: impl FnMut(Oid, T) -> Result<(), Error>,
) -> Result<(), Error> {
    if ids.len() < LONG {
        return ids.iter().try_for_each(|id| apply(*id, read(branch, *id)?));
    }
    let reader = branch.reopened()?;
    let (sender, contents) = mpsc::sync_channel(WAITING);
    thread::scope(|scope| {
        thread::Builder::new()
            .spawn_scoped(scope, move || read_all(&reader, ids, read, &sender))
            .map_err(|error| Error::from_str(&error.to_string()))?;
        for (id, content) in ids.iter().zip(contents) {
            apply(*id, content?)?;
        }
        Ok(())
    })
}

/// Sends what commits change, up to the first error.
fn read_all<T>(
    branch: &Branch,
    ids: &[Oid],
    mut read: impl FnMut(&Branch, Oid) -> Result<T, Error>,
    sender: &SyncSender<Result<T, Error>>,
) {
    for part in ids.chunks(COMMITS_PER_REPOSITORY) {
        let reader = match branch.reopened() {
            Ok(reader) => reader,
            Err(error) => {
                // The receiver is gone after an error of its own.
                drop(sender.send(Err(error)));
                return;
            }
        };
        for id in part {
            let content = read(&reader, *id);
            let is_last = content.is_err();
            if sender.send(content).is_err() || is_last {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::branch::Edits;
    use super::super::commit_content::ChangedFile;
    use super::super::message;
    use super::*;

    const PATH: &str = "a.yaml";

    /// Writes commits that change one file each.
    fn history(folder: &Path, texts: impl Iterator<Item = String>) -> (Branch, Vec<Oid>) {
        git2::Repository::init_bare(folder).unwrap();
        let branch = Branch::open(folder, "main", "").unwrap();
        let mut line = Vec::new();
        for text in texts {
            let edits = Edits::from([(PATH.to_owned(), Some(text))]);
            let id = branch.write(line.last().copied(), &edits, "test\n", 0).unwrap();
            line.push(id);
        }
        (branch, line)
    }

    #[test]
    fn commits_are_read_in_their_order() {
        for length in [LONG - 1, 2 * LONG] {
            let folder = tempfile::tempdir().unwrap();
            let (branch, line) = history(folder.path(), (0..length).map(|number| format!("n: {number}\n")));
            let (mut ids, mut numbers) = (Vec::new(), Vec::new());
            let add = |id: Oid, mut content: CommitContent| {
                let file = content.files.remove(PATH).unwrap().into_parsed(&branch)?;
                ids.push(id);
                numbers.push(file.documents[0]["n"].as_u64().unwrap());
                Ok(())
            };
            for_each_commit(&branch, None, &line, add).unwrap();
            assert_eq!(ids, line);
            assert!(numbers.into_iter().eq(0..u64::try_from(length).unwrap()));
        }
    }

    #[test]
    fn a_history_that_several_repositories_read_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let (branch, mut line) = history(folder.path(), std::iter::once("n: 1\n".to_owned()));
        for _ in 0..=2 * COMMITS_PER_REPOSITORY {
            let parent = line.last().copied();
            line.push(branch.write(parent, &Edits::new(), "test\n", 0).unwrap());
        }
        let head = *line.last().unwrap();
        assert_eq!(branch.line(None, head).unwrap().as_deref(), Some(&*line));
        assert_eq!(branch.chain(None, head).unwrap().as_deref(), Some(&*line));
        let mut files = 0;
        let add = |_: Oid, content: CommitContent| {
            files += content.files.len();
            Ok(())
        };
        for_each_commit(&branch, None, &line, add).unwrap();
        assert_eq!(files, 1, "each is compared with the one before it");
    }

    #[test]
    fn files_above_the_limit_are_read_later() {
        let folder = tempfile::tempdir().unwrap();
        let texts = ["n: 1\n".to_owned(), format!("# {}\n", "x".repeat(MAX_BYTES))];
        let (branch, line) = history(folder.path(), texts.into_iter());
        let mut is_read = Vec::new();
        let add = |_: Oid, content: CommitContent| {
            is_read.push(matches!(content.files[PATH], ChangedFile::Parsed(_)));
            Ok(())
        };
        for_each_commit(&branch, None, &line, add).unwrap();
        assert_eq!(is_read, [true, false]);
    }

    /// Returns edits that add empty files, one more than are read ahead.
    fn many_files() -> Edits {
        let paths = (0..=MAX_FILES).map(|number| format!("widgets.example.dev/default/{number}.yaml"));
        paths.map(|path| (path, Some(String::new()))).collect()
    }

    #[test]
    fn a_commit_of_more_files_than_the_limit_is_read_later() {
        let folder = tempfile::tempdir().unwrap();
        let texts = (0..LONG).map(|number| format!("n: {number}\n"));
        let (branch, mut line) = history(folder.path(), texts);
        let parent = line.last().copied();
        line.push(branch.write(parent, &many_files(), "test\n", 0).unwrap());
        let edits = Edits::from([(PATH.to_owned(), Some("n: 0\n".to_owned()))]);
        let parent = line.last().copied();
        line.push(branch.write(parent, &edits, "test\n", 0).unwrap());
        let mut counts = Vec::new();
        let add = |_: Oid, content: CommitContent| {
            let is_read = |file: &&ChangedFile| matches!(file, ChangedFile::Parsed(_));
            counts.push((
                content.files.len(),
                content.files.values().filter(is_read).count(),
            ));
            Ok(())
        };
        for_each_commit(&branch, None, &line, add).unwrap();
        assert_eq!(counts[LONG - 1..], [(1, 1), (MAX_FILES + 1, 0), (1, 1)]);
    }

    #[test]
    fn a_commit_of_the_journal_with_more_files_than_the_limit_is_read_later() {
        let folder = tempfile::tempdir().unwrap();
        git2::Repository::init_bare(folder.path()).unwrap();
        let branch = Branch::open(folder.path(), "main", "").unwrap().with_journal();
        let head = branch.write(None, &Edits::new(), "test\n", 0).unwrap();
        let mut newest = None;
        let mut write = |head: Option<Oid>, edits: &Edits| {
            let message = head.map_or_else(|| "test\n".to_owned(), message::take_over);
            newest = Some(branch.write_entry(newest, head, edits, &message, 0).unwrap());
            newest.unwrap()
        };
        write(Some(head), &many_files());
        let mut last = None;
        for number in 0..LONG {
            let path = "widgets.example.dev/default/0.yaml".to_owned();
            last = Some(write(
                None,
                &Edits::from([(path, Some(format!("n: {number}\n")))]),
            ));
        }
        let chain = branch.chain(None, last.unwrap()).unwrap().unwrap();
        let mut counts = Vec::new();
        let add = |_: Oid, content: EntryContent| {
            counts.push((content.keys.len(), content.statuses.len(), content.step.is_some()));
            Ok(())
        };
        for_each_entry(&branch, Heads::default(), &chain, add).unwrap();
        let large = counts.iter().position(|(keys, ..)| *keys > 1).unwrap();
        assert_eq!(counts[large], (MAX_FILES + 1, 0, true));
        assert!(counts[large + 1..].iter().all(|counts| *counts == (1, 1, true)));
    }

    #[test]
    fn the_first_error_ends_the_read() {
        let folder = tempfile::tempdir().unwrap();
        let (branch, mut line) = history(folder.path(), (0..LONG).map(|number| format!("n: {number}\n")));
        let mut applied = 0;
        let refuse = |_: Oid, _: CommitContent| {
            applied += 1;
            Err(Error::from_str("no"))
        };
        for_each_commit(&branch, None, &line, refuse).unwrap_err();
        assert_eq!(applied, 1);
        line[2] = Oid::from_str("1234567890123456789012345678901234567890").unwrap();
        let mut applied = 0;
        let count = |_: Oid, _: CommitContent| {
            applied += 1;
            Ok(())
        };
        for_each_commit(&branch, None, &line, count).unwrap_err();
        assert_eq!(applied, 2, "a missing commit");
    }
}
