//! The thread that computes the digest of an archive while it is written.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use sluice_api::digest::Digest;

use super::buffer::Buffer;
use super::checkpoints::ArchiveHasher;
use super::digest::Checkpoint;

/// Buffers that are written before they are hashed.
const BUFFERS_AHEAD: usize = 2;

/// Computes the digest of the buffers that are written. The thread starts with the first buffer that has to be hashed. To pass it the ones
/// before, which the previous artifact has too, would take longer than to skip them.
pub(super) struct DigestThread<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    /// The hasher, until the thread has it.
    hasher: Option<ArchiveHasher>,
    started: Option<Started<'scope>>,
}

/// The thread and its channels.
struct Started<'scope> {
    written: SyncSender<Buffer>,
    unused: Receiver<Buffer>,
    thread: ScopedJoinHandle<'scope, (Digest, Vec<Checkpoint>)>,
}

impl<'scope, 'env> DigestThread<'scope, 'env> {
    pub(super) const fn new(scope: &'scope Scope<'scope, 'env>, hasher: ArchiveHasher) -> Self {
        Self {
            scope,
            hasher: Some(hasher),
            started: None,
        }
    }

    /// Adds the bytes of a buffer. Returns an empty buffer.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn append(&mut self, buffer: Buffer) -> io::Result<Buffer> {
        if let Some(mut hasher) = self.hasher.take() {
            if hasher.can_skip(&buffer) {
                let unused = hasher.append(buffer);
                self.hasher = Some(hasher);
                return Ok(unused.and_then(Buffer::reused).unwrap_or_default());
            }
            self.started = Some(start(self.scope, hasher)?);
        }
        let started = self.started.as_ref().ok_or_else(not_computed)?;
        // If the thread is slower, `send` waits until it has hashed a buffer. So at most five buffers exist.
        // `finish` reports a thread that has ended.
        drop(started.written.send(buffer));
        Ok(started.unused.try_recv().unwrap_or_default())
    }

    /// Returns the digest of all bytes, and its checkpoints.
    ///
    /// # Errors
    /// The thread failed.
    pub(super) fn finish(self) -> io::Result<(Digest, Vec<Checkpoint>)> {
        if let Some(hasher) = self.hasher {
            return Ok(hasher.finish());
        }
        let Started { written, thread, .. } = self.started.ok_or_else(not_computed)?;
        drop(written);
        thread.join().map_err(|_| not_computed())
    }
}

fn start<'scope>(scope: &'scope Scope<'scope, '_>, hasher: ArchiveHasher) -> io::Result<Started<'scope>> {
    let (written, buffers) = mpsc::sync_channel(BUFFERS_AHEAD);
    let (returned, unused) = mpsc::channel();
    let named = Builder::new().name("archive".to_owned());
    let thread = named.spawn_scoped(scope, move || digest_of(hasher, buffers, &returned))?;
    Ok(Started {
        written,
        unused,
        thread,
    })
}

fn not_computed() -> io::Error {
    io::Error::other("the digest was not computed")
}

/// Returns the digest of all buffers and its checkpoints. It returns the buffers through `unused` unless they are large.
fn digest_of(
    mut hasher: ArchiveHasher,
    buffers: Receiver<Buffer>,
    unused: &Sender<Buffer>,
) -> (Digest, Vec<Checkpoint>) {
    for buffer in buffers {
        if let Some(buffer) = hasher.append(buffer).and_then(Buffer::reused) {
            // The writer has ended if the channel is closed, and needs no buffer.
            drop(unused.send(buffer));
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::archive::buffer::KEPT_BYTES;
    use crate::archive::{Algorithm, Hasher};

    #[test]
    fn hashed_buffers_return_unless_they_are_large() {
        let (written, buffers) = mpsc::channel();
        let (returned, unused) = mpsc::channel();
        for length in [1000, KEPT_BYTES + 1, 10] {
            let mut buffer = Buffer::default();
            buffer.append(&vec![7_u8; length]);
            written.send(buffer).unwrap();
        }
        drop(written);
        let hasher = ArchiveHasher::new(Algorithm::Sha256, Vec::new());
        let (digest, _) = digest_of(hasher, buffers, &returned);
        drop(returned);
        let all = vec![7_u8; 1000 + KEPT_BYTES + 1 + 10];
        assert_eq!(digest, Hasher::of(Algorithm::Sha256, all.as_slice()).unwrap());
        assert_eq!(unused.iter().filter(Buffer::is_empty).count(), 2);
    }

    #[test]
    fn the_thread_starts_with_the_first_buffer_that_has_to_be_hashed() {
        let buffer = |byte: u8, is_unchanged: bool| {
            let mut buffer = Buffer::default();
            buffer.append(&vec![byte; 200_000]);
            buffer.is_unchanged = is_unchanged;
            buffer
        };
        let mut before = ArchiveHasher::new(Algorithm::Sha256, Vec::new());
        drop(before.append(buffer(1, false)));
        let hasher = ArchiveHasher::new(Algorithm::Sha256, before.finish().1);
        let digest = thread::scope(|scope| {
            let mut digest = DigestThread::new(scope, hasher);
            assert!(digest.append(buffer(1, true)).unwrap().is_empty());
            assert!(digest.started.is_none());
            assert!(digest.append(buffer(2, false)).unwrap().is_empty());
            assert!(digest.started.is_some());
            digest.finish().unwrap().0
        });
        let all = [vec![1_u8; 200_000], vec![2; 200_000]].concat();
        assert_eq!(digest, Hasher::of(Algorithm::Sha256, all.as_slice()).unwrap());
    }
}
