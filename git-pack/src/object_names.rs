//! Names of the objects of a large pack, computed by two threads. Detection of collisions makes SHA-1 slower than decompression, so
//! one thread would leave another core idle.
//!
//! The first thread collects objects in batches. The second one takes a batch whenever it has none; otherwise the first one hashes it
//! itself. So both are busy, and there are at most five batches.

use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::{io, mem, thread};

use git2::ObjectType;

use crate::error::{FormatError, PackError};
use crate::hash::ObjectHash;
use crate::table::Table;

/// Unpacked bytes after which the second thread starts: it costs more than it saves in a small pack.
const SERIAL_BYTES: u64 = 1 << 20;
/// Maximum bytes of an object in a batch. A larger one is hashed as it arrives.
const MAX_OBJECT_BYTES: u64 = 128 << 10;
/// Bytes of objects with which a batch is complete. The last object may add [`MAX_OBJECT_BYTES`].
const BATCH_BYTES: usize = 128 << 10;
/// Number of objects with which a batch is complete.
const BATCH_OBJECTS: usize = 1024;

/// Consecutive objects without names.
#[derive(Default)]
struct Batch {
    content: Vec<u8>,
    objects: Vec<Object>,
}

/// An object of a batch.
struct Object {
    /// Its number in the table.
    entry: u32,
    /// Its offset in the pack, for the error.
    at: u64,
    kind: ObjectType,
    length: usize,
    /// Its name, once it is computed.
    id: [u8; 20],
}

impl Batch {
    /// Computes the names.
    fn hash(&mut self) -> Result<(), FormatError> {
        let mut rest = self.content.as_slice();
        for object in &mut self.objects {
            let (content, after) = rest.split_at(object.length.min(rest.len()));
            rest = after;
            let mut hash = ObjectHash::new(object.kind, content.len() as u64);
            hash.update(content);
            object.id = hash.finish(object.at)?;
        }
        Ok(())
    }

    /// Records the names, and empties the batch.
    fn record(&mut self, table: &mut Table) {
        for object in self.objects.drain(..) {
            if let Some(entry) = table.entries.get_mut(object.entry as usize) {
                entry.id = object.id;
            }
        }
        self.content.clear();
    }
}

/// The second thread. It ends when its sender is dropped.
struct Worker {
    batches: SyncSender<Batch>,
    hashed: Receiver<Result<Batch, FormatError>>,
}

impl Worker {
    /// Starts it, unless there is only one core or no thread can be made.
    fn start() -> Option<Self> {
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            return None;
        }
        let (batches, work) = mpsc::sync_channel::<Batch>(1);
        let (done, hashed) = mpsc::channel();
        let run = move || {
            for mut batch in work {
                let result = batch.hash().map(|()| batch);
                if done.send(result).is_err() {
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("object-names".to_owned()).spawn(run);
        started.ok().map(|_thread| Self { batches, hashed })
    }
}

/// Computes the names of the objects of a pack.
#[derive(Default)]
pub(crate) struct ObjectNames {
    /// Unpacked bytes of all objects.
    unpacked: u64,
    /// The current batch.
    batch: Batch,
    worker: Option<Worker>,
    /// Whether the worker was started, or could not be.
    is_decided: bool,
    /// Batches that the worker has.
    outstanding: usize,
}

impl ObjectNames {
    /// Whether the next object, of this size, joins a batch.
    pub(crate) fn takes(&mut self, size: u64) -> bool {
        self.unpacked = self.unpacked.saturating_add(size);
        if self.unpacked > SERIAL_BYTES && !self.is_decided {
            self.is_decided = true;
            self.worker = Worker::start();
        }
        self.max_bytes().is_some_and(|max| size <= max)
    }

    /// Returns the maximum bytes of an object in a batch, if there are batches.
    pub(crate) fn max_bytes(&self) -> Option<u64> {
        self.worker.as_ref().map(|_| MAX_OBJECT_BYTES)
    }

    /// Returns where the content of the next object is appended.
    pub(crate) const fn content(&mut self) -> &mut Vec<u8> {
        &mut self.batch.content
    }

    /// Adds the object whose content was appended.
    pub(crate) fn add(&mut self, entry: u32, at: u64, kind: ObjectType, size: u64) {
        self.batch.objects.push(Object {
            entry,
            at,
            kind,
            length: usize::try_from(size).unwrap_or(usize::MAX),
            id: [0; 20],
        });
    }

    /// Hands a complete batch over, or hashes it. Its objects are in `table`.
    ///
    /// # Errors
    /// An object is part of a collision attack.
    pub(crate) fn advance(&mut self, table: &mut Table) -> Result<(), PackError> {
        let Some(worker) = &self.worker else { return Ok(()) };
        if self.batch.content.len() < BATCH_BYTES && self.batch.objects.len() < BATCH_OBJECTS {
            return Ok(());
        }
        let mut empty = Batch::default();
        while let Ok(hashed) = worker.hashed.try_recv() {
            empty = hashed?;
            empty.record(table);
            self.outstanding -= 1;
        }
        match worker.batches.try_send(mem::take(&mut self.batch)) {
            Ok(()) => {
                self.outstanding += 1;
                self.batch = empty;
            }
            Err(TrySendError::Full(mut batch) | TrySendError::Disconnected(mut batch)) => {
                batch.hash()?;
                batch.record(table);
                self.batch = batch;
            }
        }
        Ok(())
    }

    /// Completes the names of all objects that were added.
    ///
    /// # Errors
    /// An object is part of a collision attack, or the second thread has ended.
    pub(crate) fn complete(&mut self, table: &mut Table) -> Result<(), PackError> {
        self.batch.hash()?;
        self.batch.record(table);
        let Some(worker) = &self.worker else { return Ok(()) };
        for _ in 0..mem::take(&mut self.outstanding) {
            let hashed = worker.hashed.recv();
            let hashed = hashed.map_err(|_| io::Error::other("the thread that hashes objects has ended"))?;
            hashed?.record(table);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::table::{Entry, State};

    fn name(content: &[u8]) -> [u8; 20] {
        let mut hash = ObjectHash::new(ObjectType::Blob, content.len() as u64);
        hash.update(content);
        hash.finish(0).unwrap()
    }

    /// A second thread that has ended.
    fn ended() -> Worker {
        let (batches, _) = mpsc::sync_channel(1);
        let (_, hashed) = mpsc::channel();
        Worker { batches, hashed }
    }

    #[test]
    fn without_the_second_thread_the_first_one_hashes() {
        let mut names = ObjectNames {
            worker: Some(ended()),
            ..ObjectNames::default()
        };
        let (content, mut table) = (vec![7_u8; BATCH_BYTES], Table::default());
        names.content().extend_from_slice(&content);
        names.add(0, 0, ObjectType::Blob, content.len() as u64);
        let entry = Entry {
            id: [0; 20],
            crc32: 0,
            at: 0,
        };
        table.push(entry, State::Whole(ObjectType::Blob));
        names.advance(&mut table).unwrap();
        assert_eq!(table.entries[0].id, name(&content));
        names.complete(&mut table).unwrap();
    }

    #[test]
    fn a_batch_that_is_lost_is_an_error() {
        let mut names = ObjectNames {
            worker: Some(ended()),
            outstanding: 1,
            ..ObjectNames::default()
        };
        let lost = names.complete(&mut Table::default());
        assert!(matches!(lost, Err(PackError::Storage(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn every_object_gets_its_own_name(sizes in proptest::collection::vec(prop_oneof![0_usize..50, 0_usize..200_000], 0..60)) {
            let (mut names, mut table) = (ObjectNames::default(), Table::default());
            let mut expected = Vec::new();
            for (number, size) in (0_u32..).zip(&sizes) {
                let content = vec![number.to_le_bytes()[0]; *size];
                let mut id = name(&content);
                expected.push(id);
                if names.takes(*size as u64) {
                    names.content().extend_from_slice(&content);
                    names.add(number, 0, ObjectType::Blob, *size as u64);
                    id = [0; 20];
                }
                table.push(Entry { id, crc32: 0, at: 0 }, State::Whole(ObjectType::Blob));
                names.advance(&mut table).unwrap();
            }
            names.complete(&mut table).unwrap();
            let found: Vec<_> = table.entries.iter().map(|entry| entry.id).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
