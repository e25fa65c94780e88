//! Builds an archive: copies the segments that the previous artifact has, compresses the others on several threads, and writes all of
//! them in order.
//!
//! One thread lists the segments in order, workers compress, the calling thread copies and writes, and one more thread computes the
//! digest. There are no more workers than segments to compress. The lister asks for memory before each segment that is to be
//! compressed, so the memory does not depend on the size of the tree. With many segments to compress, it waits while other large
//! archives are built, so neither does it depend on their number. An archive of a single segment is built without threads.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex};
use std::{mem, thread};

use sluice_api::digest::Algorithm;
use sluice_runtime::shutdown::Token;
use sluice_runtime::sync::lock;

use super::buffer::Buffer;
use super::capacity::{Capacity, Permit};
use super::checkpoints::ArchiveHasher;
use super::cut::{Planned, Segments, Unchanged};
use super::digest_thread::DigestThread;
use super::earlier::{Earlier, Table};
use super::index::{Index, Record};
use super::join::{Member, StoredFile, WRITE_BYTES, Written, wrong_number};
use super::listing::Listed;
use super::piece::{Piece, PoolUser, compress_segment};
use super::segment::{Key, Segment};
use super::{Content, Stopped};

/// Segments that are listed before they are written. They hold entries without content.
const STEPS_AHEAD: usize = 16;
/// Segments that each build may compress. With more it is large, and waits for other large ones. A push seldom changes so many.
const SMALL_BUILD: usize = 4;

/// An earlier artifact, from which segments are copied.
pub struct Previous {
    /// Its segments.
    pub index: Index,
    /// Its file.
    pub file: Box<dyn StoredFile>,
}

/// How an archive is built.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// The algorithm of its digest.
    pub algorithm: Algorithm,
    /// Threads and memory.
    pub capacity: &'a Capacity,
    /// Cancels the build.
    pub stop: &'a Token,
}

/// Writes an archive of these entries, which begin with the root, to `out`. Runs are of the listing of the previous artifact.
///
/// # Errors
/// An entry, a content or `out` fails, or the build is cancelled. A previous artifact that cannot be used is not an error.
pub fn write<C, I, W>(
    listed: I,
    previous: Option<Previous>,
    settings: &Settings<'_>,
    out: W,
) -> Result<Written<W>, C::Error>
where
    C: Content,
    I: Iterator<Item = Result<Listed<C>, C::Error>> + Send,
    W: Write,
{
    let (mut earlier, file) = match previous {
        Some(Previous { index, file }) => (Earlier::new(index), Some(file)),
        None => (Earlier::default(), None),
    };
    let hasher = ArchiveHasher::new(settings.algorithm, mem::take(&mut earlier.checkpoints));
    let mut segments = Segments::new(listed, &earlier);
    let first = segments.next();
    // Several segments are copied while the lister looks for the one behind them, which changed.
    let are_several =
        matches!(&first, Some(Ok(Planned::Unchanged(unchanged))) if unchanged.numbers.len() > 1);
    let second = if are_several { None } else { segments.next() };
    if are_several || second.is_some() {
        let segments = first.into_iter().chain(second).chain(segments);
        return build(segments, &earlier, file, hasher, settings, out);
    }
    let (mut hasher, mut out) = (hasher, out);
    let sink = |buffer: Buffer| {
        write_buffer(&mut out, &buffer)?;
        Ok(hasher.append(buffer).and_then(Buffer::reused).unwrap_or_default())
    };
    let mut member = Member::new(sink, file, settings.stop);
    if let Some(segment) = first {
        member.append_segment(&segment?, &earlier)?;
    }
    let parts = member.finish()?;
    out.flush()?;
    Ok(parts.into_written(out, hasher.finish()))
}

/// Builds on several threads.
fn build<C, S, W>(
    segments: S,
    earlier: &Earlier,
    file: Option<Box<dyn StoredFile>>,
    hasher: ArchiveHasher,
    settings: &Settings<'_>,
    mut out: W,
) -> Result<Written<W>, C::Error>
where
    C: Content,
    S: Iterator<Item = Result<Planned<C>, C::Error>> + Send,
    W: Write,
{
    let (work, jobs) = mpsc::channel::<Job<C>>();
    let jobs = Mutex::new(jobs);
    let (plan, steps) = mpsc::sync_channel(STEPS_AHEAD);
    let ended = settings.stop.child_token();
    let pool = settings.capacity.buffers();
    // After an error the channels close, so that every thread ends.
    thread::scope(|scope| {
        // The lister may wait for other builds, and does not see the channels then.
        let _ended = ended.clone().drop_guard();
        let named = || thread::Builder::new().name("archive".to_owned());
        let (jobs, pool) = (&jobs, &pool);
        let start_worker = move || {
            let compress = move || compress_jobs(jobs, pool, settings.stop);
            named().spawn_scoped(scope, compress).map(drop)
        };
        let lister = Lister {
            table: &earlier.table,
            capacity: settings.capacity,
            stop: &ended,
            start_worker,
            work,
            listed: plan,
            compressed: 0,
            large: None,
        };
        named().spawn_scoped(scope, move || lister.run(segments))?;
        let mut digest = DigestThread::new(scope, hasher);
        let sink = |buffer: Buffer| {
            write_buffer(&mut out, &buffer)?;
            digest.append(buffer)
        };
        let mut member = Member::new(sink, file, settings.stop);
        member.append_all(steps, earlier)?;
        let parts = member.finish()?;
        out.flush()?;
        Ok(parts.into_written(out, digest.finish()?))
    })
}

/// Writes the bytes of a buffer.
fn write_buffer(out: &mut impl Write, buffer: &Buffer) -> io::Result<()> {
    let mut parts = buffer.bytes().chunks(WRITE_BYTES);
    parts.try_for_each(|part| out.write_all(part))
}

/// What the member gets next.
enum Step<C: Content> {
    /// A piece of the previous artifact.
    Copy {
        segment: Arc<Segment<C>>,
        /// The number of the piece.
        piece: u64,
        /// Its offset in the file, and its record.
        found: (u64, Record),
    },
    /// All pieces of consecutive segments of the previous artifact. They are one step, so that the lister reaches what changed, and the
    /// workers compress it, while the segments before it are copied.
    Unchanged(Unchanged<C>),
    /// All pieces of a segment, as they are compressed.
    Compressed {
        segment: Arc<Segment<C>>,
        keys: Vec<Key>,
        pieces: Receiver<Result<Piece, C::Error>>,
        _permit: Permit,
    },
}

/// A segment to compress.
struct Job<C: Content> {
    segment: Arc<Segment<C>>,
    pieces: SyncSender<Result<Piece, C::Error>>,
}

/// Lists the segments, and what to do with each.
struct Lister<'a, C: Content, S> {
    table: &'a Table,
    capacity: &'a Capacity,
    /// Cancelled with the build, and at the end of the member.
    stop: &'a Token,
    /// Starts one more thread that compresses.
    start_worker: S,
    work: Sender<Job<C>>,
    listed: SyncSender<Result<Step<C>, C::Error>>,
    /// Number of segments that the workers compress.
    compressed: usize,
    /// The right to build a large archive, once it is one.
    large: Option<Permit>,
}

impl<C: Content, S: Fn() -> io::Result<()>> Lister<'_, C, S> {
    /// Lists until the end, an error, or the end of the member.
    fn run(mut self, segments: impl Iterator<Item = Result<Planned<C>, C::Error>>) {
        for segment in segments {
            let is_listed = segment
                .and_then(|segment| match segment {
                    Planned::Listed(segment) => self.list(&Arc::new(segment)),
                    Planned::Unchanged(unchanged) => {
                        Ok(self.listed.send(Ok(Step::Unchanged(unchanged))).is_ok())
                    }
                })
                .unwrap_or_else(|error| {
                    drop(self.listed.send(Err(error)));
                    false
                });
            if !is_listed {
                return;
            }
        }
    }

    /// Lists the steps of a segment. Returns whether the member still takes them.
    fn list(&mut self, segment: &Arc<Segment<C>>) -> Result<bool, C::Error> {
        let keys = segment.keys();
        if let Some(found) = find_all(self.table, &keys) {
            for (piece, found) in (0..).zip(found) {
                let step = Step::Copy {
                    segment: Arc::clone(segment),
                    piece,
                    found,
                };
                if self.listed.send(Ok(step)).is_err() {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        self.compressed += 1;
        if self.compressed > SMALL_BUILD && self.large.is_none() {
            // What was listed is written meanwhile, and its memory returned.
            self.large = Some(self.capacity.acquire_large_build(self.stop)?);
        }
        let permit = self.capacity.acquire(segment.held_bytes(), self.stop)?;
        if self.compressed <= self.capacity.threads() {
            (self.start_worker)()?;
        }
        let (sender, pieces) = mpsc::sync_channel(1);
        let job = Job {
            segment: Arc::clone(segment),
            pieces: sender,
        };
        let step = Step::Compressed {
            segment: Arc::clone(segment),
            keys,
            pieces,
            _permit: permit,
        };
        Ok(self.work.send(job).is_ok() && self.listed.send(Ok(step)).is_ok())
    }
}

/// Returns where the previous artifact has all pieces of a segment.
fn find_all(table: &Table, keys: &[Key]) -> Option<Vec<(u64, Record)>> {
    keys.iter().map(|key| table.get(key).copied()).collect()
}

/// Compresses segments until there are no more.
fn compress_jobs<C: Content>(jobs: &Mutex<Receiver<Job<C>>>, pool: &PoolUser<'_>, stop: &Token) {
    loop {
        // One idle worker waits for a job, the others for the lock.
        let job = lock(jobs).recv();
        let Ok(Job { segment, pieces }) = job else { return };
        let mut emit =
            |piece: Piece| -> Result<(), C::Error> { pieces.send(Ok(piece)).map_err(|_| Stopped.into()) };
        // For each job, so that an idle worker holds none.
        let compressed =
            pool.with_buffers(|buffers| compress_segment(&segment, None, buffers, stop, &mut emit));
        if let Err(error) = compressed {
            // The member has ended with an error and receives no more segments.
            drop(pieces.send(Err(error)));
        }
    }
}

impl<S: FnMut(Buffer) -> io::Result<Buffer>> Member<'_, S> {
    /// Appends a segment on this thread.
    fn append_segment<C: Content>(
        &mut self,
        segment: &Planned<C>,
        earlier: &Earlier,
    ) -> Result<(), C::Error> {
        let segment = match segment {
            Planned::Listed(segment) => segment,
            Planned::Unchanged(unchanged) => return self.copy_unchanged(unchanged, earlier),
        };
        self.count(segment);
        let keys = segment.keys();
        let Some(found) = find_all(&earlier.table, &keys) else {
            return self.compress(segment, None, &keys);
        };
        for (piece, found) in (0..).zip(found) {
            self.copy(segment, piece, found)?;
        }
        Ok(())
    }

    /// Appends every listed segment.
    fn append_all<C: Content>(
        &mut self,
        steps: Receiver<Result<Step<C>, C::Error>>,
        earlier: &Earlier,
    ) -> Result<(), C::Error> {
        for step in steps {
            match step? {
                Step::Unchanged(unchanged) => self.copy_unchanged(&unchanged, earlier)?,
                Step::Copy {
                    segment,
                    piece,
                    found,
                } => {
                    if piece == 0 {
                        self.count(&segment);
                    }
                    self.copy(&segment, piece, found)?;
                }
                Step::Compressed {
                    segment,
                    keys,
                    pieces,
                    _permit,
                } => {
                    self.count(&segment);
                    for key in keys {
                        let piece = pieces.recv().map_err(|_| wrong_number())??;
                        self.append(&segment, piece.record(key)?, &piece.bytes)?;
                    }
                }
            }
        }
        Ok(())
    }
}
