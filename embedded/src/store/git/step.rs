//! One commit of others: its files, each read and parsed once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use git2::{Error, Oid};
use serde_json::Value;

use super::branch::{Branch, CommitInfo};
use super::commit_content::{self, ChangedFile, CommitContent};
use super::kinds::{Content, Kinds};
use super::message::{self, Trailers};
use super::parsed_files::ParsedFiles;
use super::status;
use super::yaml::ParsedFile;
use crate::store::backend::InvalidFile;
use crate::store::state::Key;

/// One commit that is applied.
pub(super) struct Step<'a> {
    pub(super) branch: &'a Branch,
    pub(super) id: Oid,
    /// The commit before it.
    pub(super) previous: Option<Oid>,
    /// The commit of the journal with the status of the objects.
    pub(super) journal: Option<Oid>,
    pub(super) info: CommitInfo,
    pub(super) trailers: Trailers,
    /// The files that differ from the commit before it.
    pub(super) files: BTreeMap<String, ChangedFile>,
    /// Objects in the files that were read, by path. Other kinds make other objects of the same files.
    pub(super) contents: BTreeMap<String, BTreeMap<Key, Value>>,
    /// Status files of the journal that were read; `None` for one that does not exist or parse.
    pub(super) statuses: BTreeMap<Key, Option<Value>>,
}

impl<'a> Step<'a> {
    /// Creates the step to a commit of the branch.
    pub(super) fn new(
        branch: &'a Branch,
        previous: Option<Oid>,
        id: Oid,
        journal: Option<Oid>,
    ) -> Result<Self, Error> {
        let content = CommitContent::of(branch, previous, id)?;
        Ok(Self::with_content(branch, previous, id, journal, content))
    }

    /// Creates the step to a commit of the branch that was compared with the one before it.
    pub(super) fn with_content(
        branch: &'a Branch,
        previous: Option<Oid>,
        id: Oid,
        journal: Option<Oid>,
        content: CommitContent,
    ) -> Self {
        Self {
            branch,
            id,
            previous,
            journal,
            trailers: message::parse(&content.info.message),
            info: content.info,
            files: content.files,
            contents: BTreeMap::new(),
            statuses: BTreeMap::new(),
        }
    }

    /// Returns the document of an object in a file; `None` if it has none. Each document can be taken once. `parsed` are files that were
    /// read before.
    pub(super) fn take(
        &mut self,
        kinds: &Kinds,
        path: &str,
        key: &Key,
        parsed: Option<&mut ParsedFiles>,
    ) -> Result<Option<Value>, Error> {
        let objects = match self.contents.entry(path.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let file = match parsed {
                    Some(parsed) => parsed.read(self.branch, self.id, path)?,
                    None => read(self.branch, self.id, path)?,
                };
                entry.insert(kinds.content(file).objects)
            }
        };
        Ok(objects.remove(key))
    }

    /// Returns the status file of an object; `None` if there is none, or it does not parse.
    pub(super) fn take_status(&mut self, key: &Key) -> Result<Option<Value>, Error> {
        match self.statuses.remove(key) {
            Some(status) => Ok(status),
            None => status::read(self.branch, self.journal, key),
        }
    }

    /// Returns what a changed file contains. Its objects can be taken then.
    pub(super) fn read_changed(
        &mut self,
        kinds: &Kinds,
        path: &str,
        file: ChangedFile,
    ) -> Result<Content, Error> {
        let file = file.into_parsed(self.branch)?;
        Ok(self.add(kinds, path, file))
    }

    /// Reads a file again with other kinds, and returns what it contains.
    pub(super) fn read_again(&mut self, kinds: &Kinds, path: &str) -> Result<Content, Error> {
        let file = read(self.branch, self.id, path)?;
        Ok(self.add(kinds, path, file))
    }

    fn add(&mut self, kinds: &Kinds, path: &str, file: ParsedFile) -> Content {
        let mut content = kinds.content(file);
        let objects = std::mem::take(&mut content.objects);
        if !objects.is_empty() {
            self.contents.insert(path.to_owned(), objects);
        }
        content
    }

    /// Returns the report of an edit that changes nothing because it is not valid.
    pub(super) fn report(&self, key: &Key, path: &str, reason: &str) -> InvalidFile {
        InvalidFile {
            key: key.clone(),
            path: path.to_owned(),
            commit: self.id.to_string(),
            reason: reason.to_owned(),
        }
    }
}

/// Reads and parses a file of a commit. One that does not exist has no documents.
fn read(branch: &Branch, id: Oid, path: &str) -> Result<ParsedFile, Error> {
    let text = branch.read(id, path)?;
    Ok(text.map(commit_content::parse).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::branch::Edits;
    use super::*;

    #[test]
    fn a_changed_file_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        git2::Repository::init_bare(folder.path()).unwrap();
        let branch = Branch::open(folder.path(), "main", "").unwrap();
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let edits = Edits::from([("a.yaml".to_owned(), Some(text.to_owned()))]);
        let id = branch.write(None, &edits, "test\n", 0).unwrap();
        let kinds = Kinds::new(&[]).unwrap();
        let mut step = Step::new(&branch, None, id, None).unwrap();
        let Some(ChangedFile::Blob(blob)) = step.files.remove("a.yaml") else {
            panic!("it is not read before")
        };
        let file = || ChangedFile::Blob(blob);
        let content = step.read_changed(&kinds, "a.yaml", file()).unwrap();
        let hash = blob.to_string();
        std::fs::remove_file(folder.path().join("objects").join(&hash[..2]).join(&hash[2..])).unwrap();
        let object = step.take(&kinds, "a.yaml", &content.keys[0], None).unwrap();
        assert_eq!(object.unwrap()["metadata"]["name"], "a");
        step.read_changed(&kinds, "a.yaml", file()).unwrap_err();
    }
}
