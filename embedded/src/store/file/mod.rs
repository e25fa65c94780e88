//! The file store: a redb table of objects and one of numbers. A commit is synced before it returns.
//!
//! After an I/O error redb fails every call, so the file is reopened. Its content then shows whether the failed commit is stored.

mod identities;
mod versions;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redb::backends::FileBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde_json::Value;

pub(super) use self::identities::{Identities, Identity};
pub(super) use self::versions::{GivenVersion, GivenVersions};
use super::backend::{Backend, CommitError, Record, StorageHealth};
use super::disk::{self, SpaceReserve, io_error};
use super::error::StoreError;
use super::state::{Key, State};
use super::watch_cache::ChangeType;

pub(super) const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
pub(super) const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
pub(super) const REVISION: &str = "revision";
pub(super) const FORMAT: &str = "format";
/// The format of keys and records. A higher number means that a newer program wrote the file.
pub(super) const CURRENT_FORMAT: u64 = 1;
/// redb's cache in bytes; all objects are in memory already.
const CACHE_BYTES: usize = 16 << 20;
/// Time between two attempts to reopen a file.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

/// Opens the database; the argument requests a full integrity check.
type Open = Box<dyn Fn(bool) -> Result<Database, StoreError> + Send>;

/// An open store file.
pub(super) struct File {
    path: PathBuf,
    open: Open,
    /// `None` after an error, until the file is open again.
    database: Option<Database>,
    reserve: SpaceReserve,
    /// Records of a failed commit that may be stored all the same.
    in_doubt: Vec<Record>,
    /// Last error of opening the file, and its time.
    failure: Option<(String, Instant)>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl File {
    /// Opens or creates the file; checks and reads all of it.
    pub(super) fn open(path: &Path) -> Result<(Self, State), StoreError> {
        if !path.try_exists().map_err(io_error(path))? {
            create(path)?;
        }
        let at = path.to_owned();
        Self::open_with(path, Box::new(move |checked| open(&at, checked)))
    }

    /// Opens an existing file with the given function.
    fn open_with(path: &Path, open: Open) -> Result<(Self, State), StoreError> {
        let database = open(true)?;
        let contents = read_all(&database).map_err(|source| database_error(path, source))?;
        check_format(path, contents.format)?;
        let mut objects = BTreeMap::new();
        for (text, bytes) in contents.records {
            let (key, object) = decode(&text, &bytes).map_err(|reason| StoreError::Corrupt {
                path: path.display().to_string(),
                key: text,
                reason,
            })?;
            objects.insert(key, Arc::new(object));
        }
        let file = Self {
            path: path.to_owned(),
            open,
            database: Some(database),
            reserve: SpaceReserve::open(path),
            in_doubt: Vec::new(),
            failure: None,
        };
        Ok((file, State::restore(objects, contents.revision)))
    }

    /// Returns the health of the file.
    pub(super) fn health(&self) -> StorageHealth {
        match &self.failure {
            Some((reason, _)) => StorageHealth::Failing(reason.clone()),
            None if self.reserve.is_allocated() => StorageHealth::Writable,
            None => StorageHealth::OnReserve,
        }
    }

    /// Reopens the file after an error and allocates the reserve again. Returns the records of a failed commit that are stored all
    /// the same.
    pub(super) fn recover(&mut self) -> Result<Vec<Record>, StoreError> {
        if self.database.is_some() {
            return Ok(Vec::new());
        }
        if let Some((reason, since)) = &self.failure
            && since.elapsed() < REOPEN_INTERVAL
        {
            return Err(StoreError::Unwritable {
                path: self.path.display().to_string(),
                reason: reason.clone(),
            });
        }
        self.reopen()
    }

    /// Allocates the reserve again if there is space.
    pub(super) fn restore_reserve(&mut self) {
        if self.failure.is_none() {
            self.reserve.allocate();
        }
    }

    pub(super) fn reopen(&mut self) -> Result<Vec<Record>, StoreError> {
        // Closed first: a process can have only one handle.
        self.database = None;
        let opened = (self.open)(false).and_then(|database| {
            let revision = stored_number(&database, REVISION)
                .map_err(|source| database_error(&self.path, source))?
                .unwrap_or(1);
            Ok((database, revision))
        });
        match opened {
            Ok((database, revision)) => {
                self.database = Some(database);
                self.failure = None;
                let in_doubt = std::mem::take(&mut self.in_doubt);
                let stored = in_doubt.last().is_some_and(|record| record.revision == revision);
                Ok(if stored { in_doubt } else { Vec::new() })
            }
            Err(error) => {
                self.failure = Some((error.to_string(), Instant::now()));
                Err(error)
            }
        }
    }

    /// Stores changes and the last revision in one transaction. After an error it reopens the file, on a full disk with the space of
    /// the reserve, and retries once.
    pub(super) fn persist(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let Err(error) = self.try_persist(records) else {
            return Ok(());
        };
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "store write failed, reopening the file"
        );
        self.in_doubt = records.to_vec();
        if disk::is_full(&error) {
            self.reserve.release();
        }
        if !self.reopen()?.is_empty() {
            return Ok(()); // the error occurred after the commit
        }
        self.try_persist(records).map_err(|source| {
            self.in_doubt = records.to_vec();
            self.database = None;
            let error = database_error(&self.path, source);
            self.failure = Some((error.to_string(), Instant::now()));
            error
        })
    }

    fn try_persist(&self, records: &[Record]) -> Result<(), redb::Error> {
        let Some(database) = &self.database else {
            return Err(redb::Error::DatabaseClosed);
        };
        let transaction = database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for record in records {
                let key = record.key.to_string();
                match record.kind {
                    ChangeType::Put => {
                        let bytes = record.object.to_string().into_bytes();
                        objects.insert(key.as_str(), bytes.as_slice())?;
                    }
                    ChangeType::Remove => {
                        objects.remove(key.as_str())?;
                    }
                }
            }
            if let Some(last) = records.last() {
                transaction.open_table(NUMBERS)?.insert(REVISION, last.revision)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

/// The lock of the file excludes other processes, so a commit is never rejected.
impl Backend for File {
    fn blocks(&self) -> bool {
        true
    }

    fn commit(&mut self, records: &mut Vec<Record>) -> Result<(), CommitError> {
        self.persist(records).map_err(CommitError::Failed)
    }

    fn recover(&mut self) -> Result<Vec<Record>, StoreError> {
        Self::recover(self)
    }

    fn health(&self) -> StorageHealth {
        Self::health(self)
    }

    fn maintain(&mut self) {
        self.restore_reserve();
    }

    #[cfg(test)]
    fn as_file(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}

/// Creates a store under another name and renames it when it is complete: a new store is never empty.
fn create(path: &Path) -> Result<(), StoreError> {
    let new = disk::with_extension(path, "new");
    let file = disk::create_private(&new).map_err(io_error(&new))?;
    let initialize = || -> Result<(), redb::Error> {
        let database = builder(false).create_with_backend(FileBackend::new(file)?)?;
        let transaction = database.begin_write()?;
        transaction.open_table(OBJECTS)?;
        transaction.open_table(NUMBERS)?.insert(FORMAT, CURRENT_FORMAT)?;
        transaction.commit()?;
        Ok(database.close()?)
    };
    initialize().map_err(|source| database_error(path, source))?;
    std::fs::rename(&new, path).map_err(io_error(path))?;
    disk::sync_directory(path).map_err(io_error(path))
}

/// Opens an existing database.
pub(super) fn open(path: &Path, checked: bool) -> Result<Database, StoreError> {
    let file = disk::open_private(path)?;
    if file.metadata().map_err(io_error(path))?.len() == 0 {
        return Err(StoreError::Empty {
            path: path.display().to_string(),
        });
    }
    let backend = FileBackend::new(file).map_err(|error| database_error(path, error.into()))?;
    open_backend(path, backend, checked)
}

/// Opens a database on a backend. redb panics on some damage; that becomes an error.
pub(super) fn open_backend(
    path: &Path,
    backend: impl redb::StorageBackend,
    checked: bool,
) -> Result<Database, StoreError> {
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        builder(checked).create_with_backend(backend)
    }));
    let damaged = |reason: String| StoreError::Damaged {
        path: path.display().to_string(),
        reason,
    };
    match opened {
        Ok(Ok(database)) => Ok(database),
        Ok(Err(error)) => match error.into() {
            redb::Error::Corrupted(reason) => Err(damaged(reason)),
            other => Err(database_error(path, other)),
        },
        Err(_) => Err(damaged("inconsistent pages".into())),
    }
}

fn builder(checked: bool) -> Builder {
    let mut builder = Database::builder();
    builder
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(checked);
    builder
}

pub(super) fn check_format(path: &Path, format: Option<u64>) -> Result<(), StoreError> {
    match format {
        Some(format) if format > CURRENT_FORMAT => Err(StoreError::Newer {
            path: path.display().to_string(),
            format,
            supported: CURRENT_FORMAT,
        }),
        // The first stores had no format number.
        _ => Ok(()),
    }
}

pub(super) fn database_error(path: &Path, source: redb::Error) -> StoreError {
    StoreError::Database {
        path: path.display().to_string(),
        source: Box::new(source),
    }
}

/// The content of a file, not decoded.
struct Contents {
    records: Vec<(String, Vec<u8>)>,
    revision: u64,
    format: Option<u64>,
}

fn read_all(database: &Database) -> Result<Contents, redb::Error> {
    let transaction = database.begin_read()?;
    let mut records = Vec::new();
    for record in transaction.open_table(OBJECTS)?.iter()? {
        let (key, bytes) = record?;
        records.push((key.value().to_owned(), bytes.value().to_vec()));
    }
    Ok(Contents {
        records,
        revision: stored_number(database, REVISION)?.unwrap_or(1),
        format: stored_number(database, FORMAT)?,
    })
}

/// Returns one of the numbers.
fn stored_number(database: &Database, name: &str) -> Result<Option<u64>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(NUMBERS)?;
    Ok(table.get(name)?.map(|number| number.value()))
}

/// Decodes a record to key and object; the error is the reason.
pub(super) fn decode(text: &str, bytes: &[u8]) -> Result<(Key, Value), String> {
    let mut parts = text.splitn(3, '/');
    let (Some(resource), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("its key is not resource/namespace/name".into());
    };
    let object: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if !object["metadata"].is_object() {
        return Err("it has no metadata".into());
    }
    Ok((Key::new(resource, namespace, name), object))
}

#[cfg(test)]
pub(super) mod fault_injection;
#[cfg(test)]
mod tests;
