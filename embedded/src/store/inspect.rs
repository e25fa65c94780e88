//! A look at a store that no server has open, for `check` and `export`. The file itself is never written: it is read into
//! memory and opened there.

use std::{io::Read, path::Path};

use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, backends::InMemoryBackend};
use serde_json::Value;

use super::{
    StoreError,
    disk::{self, unusable},
    file::{self, FORMAT, NUMBERS, OBJECTS, REVISION},
};

/// A record that is no object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Its key, `resource/namespace/name`.
    pub key: String,
    /// Why it does not decode.
    pub why: String,
}

/// What a store file holds.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// The form of its records; `None` in files of the first releases.
    pub format: Option<u64>,
    /// The version of the last write.
    pub revision: u64,
    /// The objects that decode, by resource, namespace and name.
    pub objects: Vec<Value>,
    /// The records that do not.
    pub bad_records: Vec<BadRecord>,
    /// Set when the checksums of the file do not match its pages: what was read may be wrong or incomplete.
    pub damage: Option<String>,
}

/// Reads a store file, damaged or not, as far as it can be read.
///
/// # Errors
/// When the file cannot be read, is empty, was written by a newer program, or not one table of it can be read.
pub fn inspect(path: &Path) -> Result<Inspection, StoreError> {
    let mut bytes = Vec::new();
    let mut opened = disk::open_private(path)?;
    opened.read_to_end(&mut bytes).map_err(unusable(path))?;
    if bytes.is_empty() {
        return Err(StoreError::Empty {
            path: path.display().to_string(),
        });
    }
    let mut inspection = Inspection::default();
    let database = match open(path, &bytes, true) {
        Ok(database) => database,
        Err(StoreError::Damaged { why, .. }) => {
            inspection.damage = Some(why);
            open(path, &bytes, false)?
        }
        Err(other) => return Err(other),
    };
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        read(&database, &mut inspection).map_err(|source| file::database_error(path, source))
    }));
    let ended = match read {
        Ok(ended) => ended,
        Err(_) => Err(StoreError::Damaged {
            path: path.display().to_string(),
            why: "its pages contradict each other".into(),
        }),
    };
    file::check_format(path, inspection.format)?;
    match ended {
        // Some is better than none where the file is known to be damaged.
        Err(error) if inspection.objects.is_empty() => Err(error),
        Err(error) => {
            inspection.damage.get_or_insert_with(|| error.to_string());
            Ok(inspection)
        }
        Ok(()) => Ok(inspection),
    }
}

/// Removes a record that does not decode, so that the rest can be served. True when it was removed, false when the store has
/// no such record or it is an object.
///
/// # Errors
/// When the file cannot be opened or written, or is damaged otherwise.
pub fn discard(path: &Path, key: &str) -> Result<bool, StoreError> {
    let database = file::open(path, true)?;
    let failed = |source: redb::Error| file::database_error(path, source);
    let attempt = || -> Result<bool, redb::Error> {
        let transaction = database.begin_write()?;
        let found = {
            let mut objects = transaction.open_table(OBJECTS)?;
            let bad = objects
                .get(key)?
                .is_some_and(|bytes| file::decode(key, bytes.value()).is_err());
            if bad {
                objects.remove(key)?;
            }
            bad
        };
        transaction.commit()?;
        Ok(found)
    };
    attempt().map_err(failed)
}

fn open(path: &Path, bytes: &[u8], checked: bool) -> Result<Database, StoreError> {
    let backend = InMemoryBackend::new();
    backend
        .set_len(bytes.len() as u64)
        .and_then(|()| backend.write(0, bytes))
        .map_err(unusable(path))?;
    file::open_backend(path, backend, checked)
}

fn read(database: &Database, inspection: &mut Inspection) -> Result<(), redb::Error> {
    let transaction = database.begin_read()?;
    let numbers = transaction.open_table(NUMBERS)?;
    inspection.revision = numbers.get(REVISION)?.map_or(1, |number| number.value());
    inspection.format = numbers.get(FORMAT)?.map(|number| number.value());
    for record in transaction.open_table(OBJECTS)?.iter()? {
        let (key, bytes) = record?;
        match file::decode(key.value(), bytes.value()) {
            Ok((_, object)) => inspection.objects.push(object),
            Err(why) => inspection.bad_records.push(BadRecord {
                key: key.value().to_owned(),
                why,
            }),
        }
    }
    Ok(())
}
