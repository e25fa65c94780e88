//! Cuts the entries of an archive into segments and names their content. Pure except for the content that it reads.
//!
//! Where a segment ends depends only on the path and the size of the entries near it, so that a change moves no cut far from it. Where
//! the same segment appears again, its compressed bytes can be copied. The rules, with the bytes that an entry has in the tar:
//!
//! 1. An entry that would take a segment above [`MAX`] begins a new one.
//! 2. An entry of `n` bytes ends the segment with the probability `n / TARGET`, as the digest of its path decides, unless the segment
//!    would have less than [`MIN`] bytes.
//! 3. An entry of more than [`MAX`] bytes is a segment of its own, in pieces of [`MAX`] bytes.
//!
//! The target does not depend on the size of the tree: otherwise one more file could move every cut.

use std::io;
use std::ops::Range;

use sha2::{Digest as _, Sha256};
use sluice_runtime::shutdown::Token;

use super::header::{BLOCK, Kind, header, header_length};
use super::index::Earlier;
use super::listing::{Listed, Open, Run};
use super::member::COMPRESSOR;
use super::{Body, Content, Entry, Sink, Stopped};

/// Average bytes of a segment. Segments of this size cost about a percent of compression, and one changed file about 5 ms.
const TARGET: u64 = 1 << TARGET_BITS;
const TARGET_BITS: u32 = 19;
/// Minimum bytes of a segment that an entry may end.
const MIN: u64 = TARGET / 4;
/// Maximum bytes of a segment, and of a piece of a larger entry. A builder holds this many bytes for each thread.
pub(super) const MAX_BYTES: usize = 4 << TARGET_BITS;
pub(super) const MAX: u64 = MAX_BYTES as u64;

/// Identifies rules and encoding of the keys.
const KEY_VERSION: &[u8] = b"sluice segment 1";

/// Digest of everything that decides the compressed bytes of a piece.
pub(super) type Key = [u8; 32];

/// Consecutive entries. At most [`MAX`] bytes of the tar, or one larger entry.
#[derive(Debug)]
pub(super) struct Segment<C> {
    entries: Vec<Entry<C>>,
    length: u64,
}

/// The notable files of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Notable {
    /// Their number.
    pub(super) count: u32,
    /// The position of the first of them among the entries.
    pub(super) first: u32,
}

impl<C: Content> Segment<C> {
    /// Returns the number of pieces: one, unless it is a larger entry.
    pub(super) const fn pieces(&self) -> u64 {
        self.length.div_ceil(MAX)
    }

    /// Returns the number of files.
    pub(super) fn files(&self) -> u64 {
        let files = self.entries.iter();
        files
            .filter(|entry| matches!(entry.body, Body::File { .. }))
            .count() as u64
    }

    /// Returns how many bytes of memory its content takes beside its pieces.
    pub(super) fn held_bytes(&self) -> u64 {
        // A smaller content takes little more than a piece.
        let larger = self.entries.iter().filter(|entry| entry.size() > MAX);
        let held = larger.map(|entry| match &entry.body {
            Body::Directory => 0,
            Body::File { content, .. } => content.held_bytes(),
        });
        held.max().unwrap_or_default()
    }

    /// Returns the entries.
    pub(super) fn entries(&self) -> &[Entry<C>] {
        &self.entries
    }

    /// Returns a segment of the previous artifact with its entries.
    pub(super) fn restored(earlier: &Earlier, unchanged: &Unchanged<C>) -> Self {
        let positions = earlier.entries(unchanged.number);
        let entries = positions.filter_map(|position| earlier.listing.entry(position, &unchanged.open));
        let entries: Vec<_> = entries.collect();
        Self {
            length: entries.iter().map(Entry::length).sum(),
            entries,
        }
    }

    /// Returns the path of an entry by its position.
    pub(super) fn path(&self, position: u32) -> Option<&[u8]> {
        let entry = self.entries.get(usize::try_from(position).ok()?)?;
        Some(&entry.path)
    }

    /// Returns the key of each piece.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut hash = Sha256::new_with_prefix(KEY_VERSION);
        hash.update((COMPRESSOR.len() as u64).to_be_bytes());
        hash.update(COMPRESSOR);
        hash.update((self.entries.len() as u64).to_be_bytes());
        for entry in &self.entries {
            entry.hash_into(&mut hash);
        }
        let key = |piece: u64| -> Key { hash.clone().chain_update(piece.to_be_bytes()).finalize().into() };
        (0..self.pieces()).map(key).collect()
    }

    /// Passes the bytes of the tar to `sink`, in parts. Returns which files are notable.
    pub(super) fn read(&self, stop: &Token, sink: Sink<'_, C::Error>) -> Result<Notable, C::Error> {
        let mut notable = Notable::default();
        for (position, entry) in (0..).zip(&self.entries) {
            if stop.is_cancelled() {
                return Err(Stopped.into());
            }
            if entry.read(sink)? {
                if notable.count == 0 {
                    notable.first = position;
                }
                notable.count += 1;
            }
        }
        Ok(notable)
    }
}

impl<C: Content> Entry<C> {
    fn kind(&self) -> Kind {
        match self.body {
            Body::Directory => Kind::Directory,
            Body::File { executable, .. } => Kind::File { executable },
        }
    }

    fn size(&self) -> u64 {
        match self.body {
            Body::Directory => 0,
            Body::File { size, .. } => size,
        }
    }

    /// Returns the number of bytes in the tar.
    fn length(&self) -> u64 {
        let size = self.size();
        header_length(&self.path, size)
            .saturating_add(size)
            .saturating_add(padding(size))
    }

    /// Hashes everything that decides the bytes in the tar. The lengths keep two sequences of entries apart.
    fn hash_into(&self, hash: &mut Sha256) {
        let mut put = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        put(&self.path);
        match &self.body {
            Body::Directory => put(b"directory"),
            Body::File {
                executable, size, id, ..
            } => {
                put(if *executable { &b"executable"[..] } else { b"file" });
                put(&size.to_be_bytes());
                put(id);
            }
        }
    }

    /// Whether the segment may end after an entry of `length` bytes in the tar.
    fn is_boundary(&self, length: u64) -> bool {
        let digest: [u8; 32] = Sha256::digest(&self.path).into();
        let number = u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default());
        (number >> (u64::BITS - TARGET_BITS)) < length
    }

    /// Passes header, content and padding to `sink`. Returns whether the file is notable.
    fn read(&self, sink: Sink<'_, C::Error>) -> Result<bool, C::Error> {
        sink(&header(&self.path, self.kind(), self.size()))?;
        let Body::File { size, content, .. } = &self.body else {
            return Ok(false);
        };
        let mut read = 0;
        let is_notable = content.read(&mut |bytes: &[u8]| {
            read += bytes.len() as u64;
            // Not more than the header says.
            if read <= *size { sink(bytes) } else { Ok(()) }
        })?;
        if read != *size {
            let path = self.path.escape_ascii();
            let text = format!("'{path}' has {read} bytes, but was listed with {size}");
            return Err(io::Error::other(text).into());
        }
        sink(&[0; BLOCK][..usize::try_from(padding(*size)).unwrap_or_default()])?;
        Ok(is_notable)
    }
}

/// Returns the number of zeros that fill the last block of a content.
const fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

/// A segment of the archive.
pub(super) enum Planned<C> {
    /// Its entries were listed; the previous artifact may have it nevertheless.
    Listed(Segment<C>),
    /// A segment of the previous artifact, whose entries need not be listed.
    Unchanged(Unchanged<C>),
}

/// A segment of the previous artifact.
pub(super) struct Unchanged<C> {
    /// Its number there.
    pub(super) number: usize,
    /// Opens the content of its files, if the previous artifact is damaged.
    pub(super) open: Open<C>,
}

/// Cuts entries into segments. After an error it yields nothing more.
///
/// Within a run of entries of the previous artifact the cuts are where they were, if the segment that the run continues began at an
/// earlier cut and has had only entries of the run's listing since. Then only the entries after the last of these cuts are taken.
pub(super) struct Segments<'a, I, C: Content> {
    entries: I,
    earlier: &'a Earlier,
    /// What was taken from `entries` to see whether it continues a run.
    ahead: Option<Result<Listed<C>, C::Error>>,
    /// The rest of a run.
    run: Option<Run<C>>,
    /// Unchanged segments to yield next.
    unchanged: Option<(Range<usize>, Open<C>)>,
    /// An entry that begins the next segment, with its position in the previous artifact.
    held: Option<(Entry<C>, Option<u32>)>,
    current: Vec<Entry<C>>,
    /// Bytes of the current entries in the tar.
    length: u64,
    /// The position after the current entries, if they are the first ones of a segment of the previous artifact.
    position: Option<u32>,
    failed: bool,
}

impl<'a, I, C: Content> Segments<'a, I, C>
where
    I: Iterator<Item = Result<Listed<C>, C::Error>>,
{
    pub(super) const fn new(entries: I, earlier: &'a Earlier) -> Self {
        Self {
            entries,
            earlier,
            ahead: None,
            run: None,
            unchanged: None,
            held: None,
            current: Vec::new(),
            length: 0,
            position: None,
            failed: false,
        }
    }

    fn cut(&mut self) -> Planned<C> {
        self.position = None;
        Planned::Listed(Segment {
            entries: std::mem::take(&mut self.current),
            length: std::mem::take(&mut self.length),
        })
    }

    /// Returns the next entry with its position in the previous artifact, if it is one of it. Skips entries of unchanged segments.
    fn next_entry(&mut self) -> Option<Result<(Entry<C>, Option<u32>), C::Error>> {
        if let Some(held) = self.held.take() {
            return Some(Ok(held));
        }
        loop {
            if let Some(run) = &mut self.run {
                if let Some(position) = run.range.next()
                    && let Some(entry) = self.earlier.listing.entry(position, &run.open)
                {
                    return Some(Ok((entry, Some(position))));
                }
                self.run = None;
            }
            match self.pull()? {
                Ok(Listed::Entry(entry)) => return Some(Ok((entry, None))),
                Ok(Listed::Run(run)) => self.run = Some(run),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Returns what is listed next; runs that follow each other are one.
    fn pull(&mut self) -> Option<Result<Listed<C>, C::Error>> {
        let mut listed = self.ahead.take().or_else(|| self.entries.next())?;
        if let Ok(Listed::Run(run)) = &mut listed {
            loop {
                match self.entries.next() {
                    Some(Ok(Listed::Run(next))) if next.range.start == run.range.end => {
                        run.range.end = next.range.end;
                    }
                    next => {
                        self.ahead = next;
                        break;
                    }
                }
            }
        }
        Some(listed)
    }

    /// Skips the rest of the run up to the last cut within it, if the current entries allow this.
    fn skip_unchanged(&mut self) {
        if self.held.is_some() {
            return;
        }
        let Some(run) = &mut self.run else { return };
        let (start, end) = (run.range.start, run.range.end);
        let segment = if self.current.is_empty() {
            self.earlier.segment_at(start)
        } else if self.position == Some(start) {
            self.earlier.segments_before(start).checked_sub(1)
        } else {
            None
        };
        let Some(segment) = segment else { return };
        // A cut at the end of the run may depend on the entry after it.
        let Some(last) = self.earlier.segments_before(end).checked_sub(1) else {
            return;
        };
        if last <= segment {
            return;
        }
        run.range.start = self.earlier.first_entry(last).unwrap_or(end);
        self.unchanged = Some((segment..last, run.open.clone()));
        self.current.clear();
        (self.length, self.position) = (0, None);
    }

    fn next_unchanged(&mut self) -> Option<Planned<C>> {
        let (numbers, open) = self.unchanged.as_mut()?;
        let number = numbers.next();
        let open = open.clone();
        if number.is_none() {
            self.unchanged = None;
        }
        number.map(|number| Planned::Unchanged(Unchanged { number, open }))
    }

    /// Adds an entry of this position and length to the current segment.
    fn push(&mut self, entry: Entry<C>, position: Option<u32>, length: u64) {
        let continues = if self.current.is_empty() {
            position.is_some_and(|position| self.earlier.segment_at(position).is_some())
        } else {
            position.is_some() && self.position == position
        };
        self.position = position.filter(|_| continues).map(|position| position + 1);
        self.current.push(entry);
        self.length += length;
    }
}

impl<I, C: Content> Iterator for Segments<'_, I, C>
where
    I: Iterator<Item = Result<Listed<C>, C::Error>>,
{
    type Item = Result<Planned<C>, C::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        loop {
            if let Some(unchanged) = self.next_unchanged() {
                return Some(Ok(unchanged));
            }
            self.skip_unchanged();
            if self.unchanged.is_some() {
                continue;
            }
            let (entry, position) = match self.next_entry() {
                Some(Ok(next)) => next,
                Some(Err(error)) => {
                    self.failed = true;
                    return Some(Err(error));
                }
                None if self.current.is_empty() => return None,
                None => return Some(Ok(self.cut())),
            };
            let length = entry.length();
            if !self.current.is_empty() && self.length.saturating_add(length) > MAX {
                self.held = Some((entry, position));
                return Some(Ok(self.cut()));
            }
            let is_boundary = entry.is_boundary(length);
            self.push(entry, position, length);
            if self.length >= MAX || (is_boundary && self.length >= MIN) {
                return Some(Ok(self.cut()));
            }
        }
    }
}
