//! A store file on a disk that can fail, block, and be copied as after a crash.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::{File, Open, State, create, disk, open_backend};

/// A file with injected faults.
#[derive(Debug)]
struct FaultyFile {
    path: PathBuf,
    file: FileBackend,
    faults: Arc<Faults>,
}

/// The injected faults, and counters.
#[derive(Debug, Default)]
pub(in crate::store) struct Faults {
    /// Writes fail.
    pub(in crate::store) write: AtomicBool,
    /// Syncs fail once they are done.
    pub(in crate::store) sync: AtomicBool,
    /// Blocks each sync while it is closed.
    pub(in crate::store) gate: Gate,
    /// Number of started syncs.
    pub(in crate::store) syncs: AtomicUsize,
    /// Directory for a copy of the file after each write.
    pub(in crate::store) images: Mutex<Option<PathBuf>>,
    copies: AtomicUsize,
}

/// Blocks threads while it is closed.
#[derive(Debug, Default)]
pub(in crate::store) struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub(in crate::store) fn close(&self) {
        *self.closed.lock().unwrap() = true;
    }

    pub(in crate::store) fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let closed = self.closed.lock().unwrap();
        drop(self.changed.wait_while(closed, |closed| *closed).unwrap());
    }
}

fn fail_if(switch: &AtomicBool) -> io::Result<()> {
    if switch.load(Ordering::SeqCst) {
        Err(io::ErrorKind::StorageFull.into())
    } else {
        Ok(())
    }
}

impl StorageBackend for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        fail_if(&self.faults.write)?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.syncs.fetch_add(1, Ordering::SeqCst);
        self.faults.gate.wait();
        self.file.sync_data()?;
        fail_if(&self.faults.sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        fail_if(&self.faults.write)?;
        self.file.write(offset, data)?;
        let images = self.faults.images.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(images) = &*images {
            let number = self.faults.copies.fetch_add(1, Ordering::SeqCst);
            std::fs::copy(&self.path, images.join(format!("{number}.redb")))?;
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// Creates a store file with fault injection.
pub(in crate::store) fn faulty_file(path: &Path) -> (File, State, Arc<Faults>) {
    create(path).unwrap();
    let faults = Arc::new(Faults::default());
    let (at, switches) = (path.to_owned(), faults.clone());
    let open: Open = Box::new(move |checked| {
        let backend = FaultyFile {
            path: at.clone(),
            file: FileBackend::new(disk::open_private(&at)?).unwrap(),
            faults: switches.clone(),
        };
        open_backend(&at, backend, checked)
    });
    let (file, state) = File::open_with(path, open).unwrap();
    (file, state, faults)
}
