//! Identities that objects of the Git store keep after a rewrite of their history, and the newest known commit, by which the next start
//! detects a rewrite. Objects on this machine name their owners by uid, so the uids are in the same file.

use std::collections::BTreeMap;

use redb::{ReadableDatabase, ReadableTable, TableDefinition, TableError};

use super::{File, NUMBERS, REVISION, database_error};
use crate::store::error::StoreError;

/// Uid and creation time, with a space between them, by the uid that follows from the history.
const IDENTITIES: TableDefinition<'_, &str, &str> = TableDefinition::new("identities");

/// Texts by name.
const TEXTS: TableDefinition<'_, &str, &str> = TableDefinition::new("texts");
/// Name of the newest known commit.
const HEAD: &str = "head";
/// Name of that of the journal.
const JOURNAL: &str = "journal";
/// Name of the version from which watches can resume.
const RESUMABLE_FROM: &str = "resumable-from";
/// Name of the digest of what the objects follow from beside the commits.
const INPUTS: &str = "inputs";

/// Distinguishes an object from another one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Identity {
    /// Its uid.
    pub(in crate::store) uid: String,
    /// Its creation time.
    pub(in crate::store) created: String,
}

/// Identities by the uid that follows from the history.
pub(in crate::store) type Identities = BTreeMap<String, Identity>;

impl File {
    /// Returns the stored identities.
    pub(in crate::store) fn identities(&self) -> Result<Identities, StoreError> {
        self.read_identities()
            .map_err(|source| database_error(&self.path, source))
    }

    /// Stores identities.
    pub(in crate::store) fn set_identities(&self, identities: &Identities) -> Result<(), StoreError> {
        self.write_identities(identities)
            .map_err(|source| database_error(&self.path, source))
    }

    /// Returns the newest known commit.
    pub(in crate::store) fn head(&self) -> Result<Option<String>, StoreError> {
        self.read_text(HEAD)
            .map_err(|source| database_error(&self.path, source))
    }

    /// Returns the newest known commit of the journal.
    pub(in crate::store) fn journal(&self) -> Result<Option<String>, StoreError> {
        self.read_text(JOURNAL)
            .map_err(|source| database_error(&self.path, source))
    }

    /// Stores the newest known commit, that of the journal if there is one, and the newest published revision.
    pub(in crate::store) fn set_heads(
        &self,
        head: &str,
        journal: Option<&str>,
        revision: u64,
    ) -> Result<(), StoreError> {
        self.write_texts(&[(HEAD, Some(head)), (JOURNAL, journal)], Some(revision))
            .map_err(|source| database_error(&self.path, source))
    }

    /// Returns the version from which watches can resume after a restart; `None` if they cannot.
    pub(in crate::store) fn resumable_from(&self) -> Result<Option<u64>, StoreError> {
        let text = self
            .read_text(RESUMABLE_FROM)
            .map_err(|source| database_error(&self.path, source))?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    /// Stores the version from which watches can resume after a restart. Writes nothing if it is stored: a start on a full disk needs no
    /// space then.
    pub(in crate::store) fn set_resumable_from(&self, version: Option<u64>) -> Result<(), StoreError> {
        if self.resumable_from()? == version {
            return Ok(());
        }
        let text = version.map(|version| version.to_string());
        self.write_texts(&[(RESUMABLE_FROM, text.as_deref())], None)
            .map_err(|source| database_error(&self.path, source))
    }

    /// Returns the digest of the inputs of the last run.
    pub(in crate::store) fn inputs_digest(&self) -> Result<Option<String>, StoreError> {
        self.read_text(INPUTS)
            .map_err(|source| database_error(&self.path, source))
    }

    /// Stores the digest of the inputs from a revision on, before which no watch can resume.
    pub(in crate::store) fn set_inputs_digest(&self, digest: &str, revision: u64) -> Result<(), StoreError> {
        self.write_texts(&[(INPUTS, Some(digest)), (RESUMABLE_FROM, None)], Some(revision))
            .map_err(|source| database_error(&self.path, source))
    }

    fn read_text(&self, name: &str) -> Result<Option<String>, redb::Error> {
        let Some(database) = &self.database else {
            return Err(redb::Error::DatabaseClosed);
        };
        let transaction = database.begin_read()?;
        let table = match transaction.open_table(TEXTS) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(table.get(name)?.map(|text| text.value().to_owned()))
    }

    /// Stores texts by name, and removes those that are `None`. Stores the revision if it is newer than the stored one.
    fn write_texts(&self, texts: &[(&str, Option<&str>)], revision: Option<u64>) -> Result<(), redb::Error> {
        let Some(database) = &self.database else {
            return Err(redb::Error::DatabaseClosed);
        };
        let transaction = database.begin_write()?;
        {
            let mut table = transaction.open_table(TEXTS)?;
            for (name, text) in texts {
                match text {
                    Some(text) => table.insert(*name, *text)?,
                    None => table.remove(*name)?,
                };
            }
            if let Some(revision) = revision {
                let mut numbers = transaction.open_table(NUMBERS)?;
                let stored = numbers.get(REVISION)?.map_or(0, |number| number.value());
                numbers.insert(REVISION, revision.max(stored))?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    fn read_identities(&self) -> Result<Identities, redb::Error> {
        let pairs = self.read_pairs(IDENTITIES)?.into_iter();
        Ok(pairs
            .map(|(computed, (uid, created))| (computed, Identity { uid, created }))
            .collect())
    }

    /// Returns the two texts of each key of a table, which has a space between them; nothing if there is no such table.
    pub(super) fn read_pairs(
        &self,
        definition: TableDefinition<'_, &str, &str>,
    ) -> Result<BTreeMap<String, (String, String)>, redb::Error> {
        let Some(database) = &self.database else {
            return Err(redb::Error::DatabaseClosed);
        };
        let transaction = database.begin_read()?;
        let table = match transaction.open_table(definition) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
            Err(error) => return Err(error.into()),
        };
        let mut pairs = BTreeMap::new();
        for entry in table.iter()? {
            let (key, pair) = entry?;
            if let Some((first, second)) = pair.value().split_once(' ') {
                let pair = (first.to_owned(), second.to_owned());
                pairs.insert(key.value().to_owned(), pair);
            }
        }
        Ok(pairs)
    }

    fn write_identities(&self, identities: &Identities) -> Result<(), redb::Error> {
        let Some(database) = &self.database else {
            return Err(redb::Error::DatabaseClosed);
        };
        let transaction = database.begin_write()?;
        {
            let mut table = transaction.open_table(IDENTITIES)?;
            for (computed, identity) in identities {
                let text = format!("{} {}", identity.uid, identity.created);
                table.insert(computed.as_str(), text.as_str())?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}
