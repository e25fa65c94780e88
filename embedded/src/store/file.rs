//! The file store: one redb table of objects, one number. A commit is synced before it returns.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::Value;

use super::{Key, State, StoreError, Verb};

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const REVISION: &str = "revision";

/// An open store file.
#[derive(Debug)]
pub(super) struct File {
    database: Database,
    path: String,
}

impl File {
    /// Opens or creates the file and reads all of it.
    pub(super) fn open(path: &Path) -> Result<(Self, State), StoreError> {
        let path_text = path.display().to_string();
        let failed = |source: redb::Error| StoreError::Database {
            path: path_text.clone(),
            source: Box::new(source),
        };
        let database = Database::create(path).map_err(|error| failed(error.into()))?;
        create_tables(&database).map_err(failed)?;
        let (records, revision) = read_all(&database).map_err(failed)?;
        let mut objects = BTreeMap::new();
        for (text, bytes) in records {
            let corrupt = |why: String| StoreError::Corrupt {
                path: path_text.clone(),
                key: text.clone(),
                why,
            };
            let key = parse_key(&text).ok_or_else(|| corrupt("not a key".into()))?;
            let object: Value = serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
            objects.insert(key, Arc::new(object));
        }
        Ok((
            Self {
                database,
                path: path_text,
            },
            State::restore(objects, revision),
        ))
    }

    /// Writes one change and the number of its version in one transaction.
    pub(super) fn persist(
        &self,
        key: &Key,
        verb: Verb,
        object: &Value,
        revision: u64,
    ) -> Result<(), StoreError> {
        self.try_persist(key, verb, object, revision)
            .map_err(|source| StoreError::Database {
                path: self.path.clone(),
                source: Box::new(source),
            })
    }

    fn try_persist(&self, key: &Key, verb: Verb, object: &Value, revision: u64) -> Result<(), redb::Error> {
        let text = key.to_string();
        let transaction = self.database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            match verb {
                Verb::Put => {
                    let bytes = object.to_string().into_bytes();
                    objects.insert(text.as_str(), bytes.as_slice())?;
                }
                Verb::Remove => {
                    objects.remove(text.as_str())?;
                }
            }
            transaction.open_table(NUMBERS)?.insert(REVISION, revision)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

fn create_tables(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(NUMBERS)?;
    transaction.commit()?;
    Ok(())
}

/// Records by key, and the newest version.
type Contents = (Vec<(String, Vec<u8>)>, u64);

fn read_all(database: &Database) -> Result<Contents, redb::Error> {
    let transaction = database.begin_read()?;
    let mut records = Vec::new();
    for record in transaction.open_table(OBJECTS)?.iter()? {
        let (key, bytes) = record?;
        records.push((key.value().to_owned(), bytes.value().to_vec()));
    }
    let revision = transaction
        .open_table(NUMBERS)?
        .get(REVISION)?
        .map_or(1, |number| number.value());
    Ok((records, revision))
}

fn parse_key(text: &str) -> Option<Key> {
    let mut parts = text.splitn(3, '/');
    Some(Key::new(parts.next()?, parts.next()?, parts.next()?))
}
