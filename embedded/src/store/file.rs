//! The file store: one redb table of objects, two numbers. A commit is synced before it returns.
//!
//! redb answers every call after an I/O error with an error. So the file is opened again after one, and what it holds then
//! tells whether the commit that failed is in it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition, backends::FileBackend};
use serde_json::Value;

use super::{
    Key, State, StorageHealth, StoreError, Verb,
    disk::{self, Reserve, unusable},
};

pub(super) const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
pub(super) const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
pub(super) const REVISION: &str = "revision";
pub(super) const FORMAT: &str = "format";
/// The form of keys and records. A file of a higher number was written by a newer program.
pub(super) const KNOWN_FORMAT: u64 = 1;
/// Objects are held in memory already.
const CACHE: usize = 16 << 20;
/// Between two attempts to open a file again that cannot be opened.
const PAUSE: Duration = Duration::from_secs(1);

/// Opens the database. The argument says whether all of it is checked.
type Open = Box<dyn Fn(bool) -> Result<Database, StoreError> + Send>;

/// One change as it is stored.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) key: Key,
    pub(super) verb: Verb,
    pub(super) object: Arc<Value>,
    pub(super) revision: u64,
}

/// An open store file.
pub(super) struct File {
    path: PathBuf,
    open: Open,
    /// `None` after an error, until the file is open again.
    database: Option<Database>,
    reserve: Reserve,
    /// A commit that failed and may be in the file all the same.
    unsettled: Vec<Record>,
    /// Why there is no database, and when it was last tried.
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
    /// Opens or creates the file, checks and reads all of it.
    pub(super) fn open(path: &Path) -> Result<(Self, State), StoreError> {
        if !path.try_exists().map_err(unusable(path))? {
            create(path)?;
        }
        let at = path.to_owned();
        Self::open_with(path, Box::new(move |checked| open(&at, checked)))
    }

    /// [`File::open`] of a file that is there, by another way to open it.
    fn open_with(path: &Path, open: Open) -> Result<(Self, State), StoreError> {
        let database = open(true)?;
        let contents = read_all(&database).map_err(|source| database_error(path, source))?;
        check_format(path, contents.format)?;
        let mut objects = BTreeMap::new();
        for (text, bytes) in contents.records {
            let (key, object) = decode(&text, &bytes).map_err(|why| StoreError::Corrupt {
                path: path.display().to_string(),
                key: text,
                why,
            })?;
            objects.insert(key, Arc::new(object));
        }
        let file = Self {
            path: path.to_owned(),
            open,
            database: Some(database),
            reserve: Reserve::of(path),
            unsettled: Vec::new(),
            failure: None,
        };
        Ok((file, State::restore(objects, contents.revision)))
    }

    /// How the file takes writes now.
    pub(super) fn health(&self) -> StorageHealth {
        match &self.failure {
            Some((why, _)) => StorageHealth::Failing(why.clone()),
            None if self.reserve.is_held() => StorageHealth::Writable,
            None => StorageHealth::OnReserve,
        }
    }

    /// Opens the file again after an error, and takes the reserve back. Returns the commit whose outcome was not known, if it
    /// is in the file.
    pub(super) fn recover(&mut self) -> Result<Vec<Record>, StoreError> {
        if self.database.is_some() {
            return Ok(Vec::new());
        }
        if let Some((why, since)) = &self.failure
            && since.elapsed() < PAUSE
        {
            return Err(StoreError::Unwritable {
                path: self.path.display().to_string(),
                why: why.clone(),
            });
        }
        self.reopen()
    }

    /// Takes the reserve back where there is room again.
    pub(super) fn restore_reserve(&mut self) {
        if self.failure.is_none() {
            self.reserve.take();
        }
    }

    pub(super) fn reopen(&mut self) -> Result<Vec<Record>, StoreError> {
        // Closed before it is opened: one process, one handle.
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
                let unsettled = std::mem::take(&mut self.unsettled);
                let stored = unsettled.last().is_some_and(|record| record.revision == revision);
                Ok(if stored { unsettled } else { Vec::new() })
            }
            Err(error) => {
                self.failure = Some((error.to_string(), Instant::now()));
                Err(error)
            }
        }
    }

    /// Writes changes and the number of the last version in one transaction. After an error the file is opened again, on a
    /// full disk with the space of the reserve, and the write is tried once more.
    pub(super) fn persist(&mut self, records: &[Record]) -> Result<(), StoreError> {
        let Err(error) = self.try_persist(records) else {
            return Ok(());
        };
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "the store is opened again"
        );
        self.unsettled = records.to_vec();
        if disk::is_full(&error) {
            self.reserve.release();
        }
        if !self.reopen()?.is_empty() {
            return Ok(()); // the error came after the commit
        }
        self.try_persist(records).map_err(|source| {
            self.unsettled = records.to_vec();
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
                match record.verb {
                    Verb::Put => {
                        let bytes = record.object.to_string().into_bytes();
                        objects.insert(key.as_str(), bytes.as_slice())?;
                    }
                    Verb::Remove => {
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

/// Makes a store under another name and gives it its own when it is whole: a file of length zero is never a new store.
fn create(path: &Path) -> Result<(), StoreError> {
    let new = disk::beside(path, "new");
    let file = disk::create_private(&new).map_err(unusable(&new))?;
    let initialise = || -> Result<(), redb::Error> {
        let database = builder(false).create_with_backend(FileBackend::new(file)?)?;
        let transaction = database.begin_write()?;
        transaction.open_table(OBJECTS)?;
        transaction.open_table(NUMBERS)?.insert(FORMAT, KNOWN_FORMAT)?;
        transaction.commit()?;
        Ok(database.close()?)
    };
    initialise().map_err(|source| database_error(path, source))?;
    std::fs::rename(&new, path).map_err(unusable(path))?;
    disk::sync_directory(path).map_err(unusable(path))
}

/// Opens an existing database.
pub(super) fn open(path: &Path, checked: bool) -> Result<Database, StoreError> {
    let file = disk::open_private(path)?;
    if file.metadata().map_err(unusable(path))?.len() == 0 {
        return Err(StoreError::Empty {
            path: path.display().to_string(),
        });
    }
    let backend = FileBackend::new(file).map_err(|error| database_error(path, error.into()))?;
    open_backend(path, backend, checked)
}

/// Opens a database behind a backend. redb panics at some damage; that is an error like any other.
pub(super) fn open_backend(
    path: &Path,
    backend: impl redb::StorageBackend,
    checked: bool,
) -> Result<Database, StoreError> {
    let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        builder(checked).create_with_backend(backend)
    }));
    let damaged = |why: String| StoreError::Damaged {
        path: path.display().to_string(),
        why,
    };
    match opened {
        Ok(Ok(database)) => Ok(database),
        Ok(Err(error)) => match error.into() {
            redb::Error::Corrupted(why) => Err(damaged(why)),
            other => Err(database_error(path, other)),
        },
        Err(_) => Err(damaged("its pages contradict each other".into())),
    }
}

fn builder(checked: bool) -> Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE).set_check_integrity_on_open(checked);
    builder
}

pub(super) fn check_format(path: &Path, format: Option<u64>) -> Result<(), StoreError> {
    match format {
        Some(format) if format > KNOWN_FORMAT => Err(StoreError::Newer {
            path: path.display().to_string(),
            format,
            known: KNOWN_FORMAT,
        }),
        // The first stores had no number.
        _ => Ok(()),
    }
}

pub(super) fn database_error(path: &Path, source: redb::Error) -> StoreError {
    StoreError::Database {
        path: path.display().to_string(),
        source: Box::new(source),
    }
}

/// What a file holds, not yet decoded.
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

/// One of the numbers.
fn stored_number(database: &Database, name: &str) -> Result<Option<u64>, redb::Error> {
    let transaction = database.begin_read()?;
    let table = transaction.open_table(NUMBERS)?;
    Ok(table.get(name)?.map(|number| number.value()))
}

/// A record as key and object; otherwise why it is none.
pub(super) fn decode(text: &str, bytes: &[u8]) -> Result<(Key, Value), String> {
    let mut parts = text.splitn(3, '/');
    let (Some(resource), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("its name is not resource/namespace/name".into());
    };
    let object: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if !object["metadata"].is_object() {
        return Err("it has no metadata".into());
    }
    Ok((Key::new(resource, namespace, name), object))
}

#[cfg(test)]
pub(super) mod faulty;
#[cfg(test)]
mod tests;
