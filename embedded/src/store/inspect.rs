//! Offline inspection of a store, for `check` and `export`. The file is opened from a copy in memory and never written.

use std::io::Read;
use std::path::Path;

use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend};
use serde_json::Value;

use super::disk::{self, io_error};
use super::error::StoreError;
use super::file::{self, FORMAT, NUMBERS, OBJECTS, REVISION};

/// A record that does not decode to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Key, `resource/namespace/name`.
    pub key: String,
    /// Error of the decoder.
    pub reason: String,
}

/// The content of a store file.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    /// Format number; `None` in files of the first releases.
    pub format: Option<u64>,
    /// Revision of the last write.
    pub revision: u64,
    /// Objects that decode, by resource, namespace and name.
    pub objects: Vec<Value>,
    /// Records that do not decode.
    pub bad_records: Vec<BadRecord>,
    /// Set if the checksums of the file do not match: the content may be wrong or incomplete.
    pub damage: Option<String>,
}

/// Reads a store file as far as possible, damaged or not.
///
/// # Errors
/// If the file cannot be read, is empty, was written by a newer program, or has no readable table.
pub fn inspect(path: &Path) -> Result<Inspection, StoreError> {
    let mut bytes = Vec::new();
    let mut opened = disk::open_private(path)?;
    opened.read_to_end(&mut bytes).map_err(io_error(path))?;
    if bytes.is_empty() {
        return Err(StoreError::Empty {
            path: path.display().to_string(),
        });
    }
    let mut inspection = Inspection::default();
    let database = match open(path, &bytes, true) {
        Ok(database) => database,
        Err(StoreError::Damaged { reason, .. }) => {
            inspection.damage = Some(reason);
            open(path, &bytes, false)?
        }
        Err(other) => return Err(other),
    };
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        read(&database, &mut inspection).map_err(|source| file::database_error(path, source))
    }));
    let outcome = match read {
        Ok(outcome) => outcome,
        Err(_) => Err(StoreError::Damaged {
            path: path.display().to_string(),
            reason: "inconsistent pages".into(),
        }),
    };
    file::check_format(path, inspection.format)?;
    match outcome {
        // The readable part of a damaged file is better than nothing.
        Err(error) if inspection.objects.is_empty() => Err(error),
        Err(error) => {
            inspection.damage.get_or_insert_with(|| error.to_string());
            Ok(inspection)
        }
        Ok(()) => Ok(inspection),
    }
}

/// Removes a record that does not decode, so that the others can be served. Returns false if there is no such record or it is a
/// valid object.
///
/// # Errors
/// If the file cannot be opened or written, or has other damage.
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
        .map_err(io_error(path))?;
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
            Err(reason) => inspection.bad_records.push(BadRecord {
                key: key.value().to_owned(),
                reason,
            }),
        }
    }
    Ok(())
}
