//! Identities that objects of the Git store keep although their history was rewritten, and the commit by which the next start sees that.
//! Objects on this machine name their owners by uid, so the uids belong into the same file.

use std::collections::BTreeMap;

use redb::{ReadableDatabase, ReadableTable, TableDefinition, TableError};

use super::{File, database_error};
use crate::store::error::StoreError;

/// Uid and creation time, with a space between them, by the uid that follows from the history.
const IDENTITIES: TableDefinition<'_, &str, &str> = TableDefinition::new("identities");

/// Texts by name.
const TEXTS: TableDefinition<'_, &str, &str> = TableDefinition::new("texts");
/// Name of the newest known commit.
const HEAD: &str = "head";

/// What tells an object from another one of the same name.
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
        self.read_head()
            .map_err(|source| database_error(&self.path, source))
    }

    /// Stores the newest known commit.
    pub(in crate::store) fn set_head(&self, head: &str) -> Result<(), StoreError> {
        self.write_head(head)
            .map_err(|source| database_error(&self.path, source))
    }

    fn read_head(&self) -> Result<Option<String>, redb::Error> {
        let Some(database) = &self.database else {
            return Err(redb::Error::DatabaseClosed);
        };
        let transaction = database.begin_read()?;
        let table = match transaction.open_table(TEXTS) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(table.get(HEAD)?.map(|head| head.value().to_owned()))
    }

    fn write_head(&self, head: &str) -> Result<(), redb::Error> {
        let Some(database) = &self.database else {
            return Err(redb::Error::DatabaseClosed);
        };
        let transaction = database.begin_write()?;
        transaction.open_table(TEXTS)?.insert(HEAD, head)?;
        transaction.commit()?;
        Ok(())
    }

    fn read_identities(&self) -> Result<Identities, redb::Error> {
        let Some(database) = &self.database else {
            return Err(redb::Error::DatabaseClosed);
        };
        let transaction = database.begin_read()?;
        let table = match transaction.open_table(IDENTITIES) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Identities::new()),
            Err(error) => return Err(error.into()),
        };
        let mut identities = Identities::new();
        for entry in table.iter()? {
            let (computed, identity) = entry?;
            if let Some((uid, created)) = identity.value().split_once(' ') {
                let identity = Identity {
                    uid: uid.to_owned(),
                    created: created.to_owned(),
                };
                identities.insert(computed.value().to_owned(), identity);
            }
        }
        Ok(identities)
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
