//! One commit of others: its files, each parsed once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use git2::{Error, Oid};
use serde_json::Value;

use super::branch::{Branch, CommitInfo};
use super::kinds::Kinds;
use super::message::{self, Trailers};
use super::yaml;
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
    /// Objects in the files that were read, by path. Other kinds make other objects of the same files.
    pub(super) contents: BTreeMap<String, BTreeMap<Key, Value>>,
}

impl<'a> Step<'a> {
    /// Creates the step to a commit of the branch.
    pub(super) fn new(
        branch: &'a Branch,
        previous: Option<Oid>,
        id: Oid,
        journal: Option<Oid>,
    ) -> Result<Self, Error> {
        let info = branch.info(id)?;
        Ok(Self {
            branch,
            id,
            previous,
            journal,
            trailers: message::parse(&info.message),
            info,
            contents: BTreeMap::new(),
        })
    }

    /// Returns the document of an object in a file; `None` if it has none. Each document can be taken once.
    pub(super) fn take(&mut self, kinds: &Kinds, path: &str, key: &Key) -> Result<Option<Value>, Error> {
        let objects = match self.contents.entry(path.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let text = self.branch.read(self.id, path)?;
                let text = text.and_then(Result::ok).unwrap_or_default();
                entry.insert(parse(kinds, &text))
            }
        };
        Ok(objects.remove(key))
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

/// Returns the objects of a file by identity, of several documents of one the first.
fn parse(kinds: &Kinds, text: &str) -> BTreeMap<Key, Value> {
    let mut objects = BTreeMap::new();
    for range in yaml::documents(text) {
        let content = yaml::parse(&text[range]).unwrap_or_default();
        if let Some(key) = kinds.key(&content) {
            objects.entry(key).or_insert(content);
        }
    }
    objects
}
