//! Versions that objects of the Git store have instead of those that follow from a rewritten history. Clients know them, so they remain
//! after a restart.

use std::collections::BTreeMap;

use redb::TableDefinition;

use super::{File, database_error};
use crate::store::error::StoreError;

/// The version that follows from the history and the given one, with a space between them, by key.
const VERSIONS: TableDefinition<'_, &str, &str> = TableDefinition::new("versions");

/// A version that does not follow from the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct GivenVersion {
    /// The version that follows from the history.
    pub(in crate::store) computed: String,
    /// The version that the object has instead.
    pub(in crate::store) given: String,
}

/// Given versions by key.
pub(in crate::store) type GivenVersions = BTreeMap<String, GivenVersion>;

impl File {
    /// Returns the stored versions.
    pub(in crate::store) fn versions(&self) -> Result<GivenVersions, StoreError> {
        self.read_versions()
            .map_err(|source| database_error(&self.path, source))
    }

    /// Replaces the stored versions.
    pub(in crate::store) fn set_versions(&self, versions: &GivenVersions) -> Result<(), StoreError> {
        self.write_versions(versions)
            .map_err(|source| database_error(&self.path, source))
    }

    fn read_versions(&self) -> Result<GivenVersions, redb::Error> {
        let pairs = self.read_pairs(VERSIONS)?.into_iter();
        Ok(pairs
            .map(|(key, (computed, given))| (key, GivenVersion { computed, given }))
            .collect())
    }

    fn write_versions(&self, versions: &GivenVersions) -> Result<(), redb::Error> {
        let Some(database) = &self.database else {
            return Err(redb::Error::DatabaseClosed);
        };
        let transaction = database.begin_write()?;
        transaction.delete_table(VERSIONS)?;
        {
            let mut table = transaction.open_table(VERSIONS)?;
            for (key, GivenVersion { computed, given }) in versions {
                let text = format!("{computed} {given}");
                table.insert(key.as_str(), text.as_str())?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}
