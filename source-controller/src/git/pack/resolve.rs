//! Differences are applied to their bases, from each whole object down its tree of differences, and their objects
//! hashed. Each entry is resolved once, so that the work ends whatever the differences say of each other.
//!
//! Of the objects on the way down, what fits into a fixed budget is held; what was let go is made once more when another
//! difference needs it, which counts as unpacked bytes like everything else.

use std::fs::File;

use git2::ObjectType;
use tokio_util::sync::CancellationToken;

use super::super::remote::Limits;
use super::delta::{Delta, Output};
use super::entry::Header;
use super::error::{Flaw, PackError, chain_too_large, delta_too_large};
use super::hash::ObjectHash;
use super::inflate::{Inflater, Stored};
use super::scan::Scanned;
use super::table::{Children, State, Table};

/// Differences in a row: as many as Git writes (`pack.depth` allows no more).
const DEPTH: usize = 4095;
/// Objects of a chain have at most this many times the bytes that one of them may have: to read the last of them, all
/// are made.
const CHAIN: u64 = 16;
/// Bytes of objects that are held while others are made from them.
const HELD: u64 = 32 << 20;
/// Results up to this size are held before it is known that a difference builds on them.
const SMALL: u64 = 1 << 20;

/// An object on the way down.
struct Frame {
    entry: u32,
    /// Bytes of the objects from the whole one down to this.
    chain: u64,
    content: Option<Vec<u8>>,
    children: Children,
}

/// Resolves the differences of one pack.
pub(super) struct Resolver<'a> {
    pub(super) scanned: Scanned,
    pub(super) limits: &'a Limits,
    pub(super) stop: &'a CancellationToken,
    inflater: Inflater<'a>,
    frames: Vec<Frame>,
    held: u64,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(scanned: Scanned, limits: &'a Limits, stop: &'a CancellationToken) -> Self {
        Self {
            inflater: Inflater::new(scanned.budget, limits.unpacked_bytes, stop),
            scanned,
            limits,
            stop,
            frames: Vec::new(),
            held: 0,
        }
    }

    /// Everything that builds on whole objects of the pack.
    pub(super) fn resolve(&mut self) -> Result<(), PackError> {
        for entry in 0..self.table().len() {
            let State::Whole(kind) = self.table().states.get(entry).copied().ok_or(Flaw::Short)? else {
                continue;
            };
            let entry = u32::try_from(entry).unwrap_or(u32::MAX);
            if !self.table().children(entry).is_empty() {
                self.descend(entry, kind, None)?;
            }
        }
        Ok(())
    }

    /// Everything that builds on this whole object, whose content may be known.
    pub(super) fn descend(
        &mut self,
        root: u32,
        kind: ObjectType,
        content: Option<Vec<u8>>,
    ) -> Result<(), PackError> {
        let content = match content {
            Some(content) => content,
            None => self.whole(root)?,
        };
        let chain = content.len() as u64;
        self.push(root, chain, Some(content));
        while let Some(frame) = self.frames.last_mut() {
            let Some(child) = self.scanned.table.take(&mut frame.children) else {
                self.pop();
                continue;
            };
            if self.table().states.get(child as usize) == Some(&State::Pending) {
                self.child(child, kind)?;
            }
        }
        Ok(())
    }

    /// What was resolved, if that is everything.
    pub(super) fn finish(self) -> Result<Scanned, PackError> {
        match self.table().pending() {
            0 => Ok(self.scanned),
            some => Err(Flaw::Unresolved(some).into()),
        }
    }

    /// Counts bytes that were unpacked elsewhere.
    pub(super) fn spend(&mut self, bytes: u64) -> Result<(), PackError> {
        self.inflater.spend(bytes)
    }

    pub(super) const fn table(&self) -> &Table {
        &self.scanned.table
    }

    /// Resolves a difference to the last frame.
    fn child(&mut self, child: u32, kind: ObjectType) -> Result<(), PackError> {
        if self.frames.len() > DEPTH {
            return Err(Flaw::Depth(DEPTH).into());
        }
        self.make_last()?;
        let at = self.at(child)?;
        let held = if self.table().has_offsets(child) {
            u64::MAX
        } else {
            SMALL
        };
        let mut product = Product::new(self.limits.delta_bytes, held, Some(kind));
        self.apply(child, self.frames.len() - 1, &mut product)?;
        let Product {
            hash, size, content, ..
        } = product;
        let id = hash.ok_or(Flaw::Delta(at))?.finish(at)?;
        let limit = CHAIN.saturating_mul(self.limits.delta_bytes);
        let chain = self.frames.last().map_or(0, |frame| frame.chain) + size;
        if chain > limit {
            return Err(chain_too_large(limit));
        }
        let table = &mut self.scanned.table;
        if let (Some(entry), Some(state)) = (
            table.entries.get_mut(child as usize),
            table.states.get_mut(child as usize),
        ) {
            (entry.id, *state) = (id, State::Resolved);
        }
        if !self.table().children(child).is_empty() {
            self.push(child, chain, content);
        }
        Ok(())
    }

    fn push(&mut self, entry: u32, chain: u64, content: Option<Vec<u8>>) {
        self.held += content.as_ref().map_or(0, |content| content.len() as u64);
        self.frames.push(Frame {
            entry,
            chain,
            content,
            children: self.table().children(entry),
        });
        self.let_go();
    }

    fn pop(&mut self) {
        if let Some(Frame {
            content: Some(content),
            ..
        }) = self.frames.pop()
        {
            self.held -= content.len() as u64;
        }
    }

    /// Keeps the last object and as many before it as the budget has room for.
    fn let_go(&mut self) {
        let before = self.frames.len().saturating_sub(1);
        for frame in self.frames.iter_mut().take(before) {
            if self.held <= HELD {
                return;
            }
            if let Some(content) = frame.content.take() {
                self.held -= content.len() as u64;
            }
        }
    }

    /// Makes the object of the last frame, if it was let go, from the last one before it that is held.
    fn make_last(&mut self) -> Result<(), PackError> {
        let held = self.frames.iter().rposition(|frame| frame.content.is_some());
        let first = if let Some(held) = held {
            held
        } else {
            let root = self.frames.first().map_or(0, |frame| frame.entry);
            let content = self.whole(root)?;
            self.hold(0, content);
            0
        };
        for number in first + 1..self.frames.len() {
            let entry = self.frames.get(number).map_or(0, |frame| frame.entry);
            let mut product = Product::new(self.limits.delta_bytes, u64::MAX, None);
            self.apply(entry, number - 1, &mut product)?;
            self.hold(number, product.content.unwrap_or_default());
        }
        Ok(())
    }

    /// Holds the object of a frame, and others before it as the budget has room for.
    fn hold(&mut self, number: usize, content: Vec<u8>) {
        self.held += content.len() as u64;
        if let Some(frame) = self.frames.get_mut(number) {
            frame.content = Some(content);
        }
        for frame in self.frames.iter_mut().take(number) {
            if self.held <= HELD {
                return;
            }
            if let Some(content) = frame.content.take() {
                self.held -= content.len() as u64;
            }
        }
    }

    fn at(&self, entry: u32) -> Result<u64, Flaw> {
        let entry = self.table().entries.get(entry as usize);
        entry.map(|entry| entry.at).ok_or(Flaw::Short)
    }

    /// Applies the difference in an entry to the object of a frame.
    fn apply(&mut self, entry: u32, base: usize, product: &mut Product) -> Result<(), PackError> {
        let (at, end) = (self.at(entry)?, self.table().end_of(entry));
        let base = self.frames.get(base).and_then(|frame| frame.content.as_deref());
        let mut delta = Delta::new(base.unwrap_or_default(), at);
        let (mut input, header) = opened(self.scanned.file.as_file(), at, end)?;
        self.inflater
            .inflate(&mut input, at, header.size, |bytes| delta.feed(bytes, product))?;
        delta.finish()?;
        self.inflater.spend(product.size)
    }

    /// A whole object of the pack.
    fn whole(&mut self, entry: u32) -> Result<Vec<u8>, PackError> {
        let (at, end) = (self.at(entry)?, self.table().end_of(entry));
        let (mut input, header) = opened(self.scanned.file.as_file(), at, end)?;
        if header.size > self.limits.delta_bytes {
            return Err(delta_too_large(self.limits.delta_bytes));
        }
        let mut content = Vec::with_capacity(usize::try_from(header.size).unwrap_or_default());
        self.inflater.inflate(&mut input, at, header.size, |bytes| {
            content.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(content)
    }
}

/// An object that a difference makes.
struct Product {
    /// Bytes that it may have.
    limit: u64,
    /// Bytes up to which it is held.
    held: u64,
    /// Its kind, if its name is wanted.
    kind: Option<ObjectType>,
    hash: Option<ObjectHash>,
    content: Option<Vec<u8>>,
    size: u64,
}

impl Product {
    const fn new(limit: u64, held: u64, kind: Option<ObjectType>) -> Self {
        Self {
            limit,
            held,
            kind,
            hash: None,
            content: None,
            size: 0,
        }
    }
}

impl Output for Product {
    fn begin(&mut self, size: u64) -> Result<(), PackError> {
        if size > self.limit {
            return Err(delta_too_large(self.limit));
        }
        self.size = size;
        self.hash = self.kind.map(|kind| ObjectHash::new(kind, size));
        self.content =
            (size <= self.held).then(|| Vec::with_capacity(usize::try_from(size).unwrap_or_default()));
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        if let Some(content) = &mut self.content {
            content.extend_from_slice(bytes);
        }
    }
}

/// The compressed bytes of an entry, behind its header.
fn opened(file: &File, at: u64, end: u64) -> Result<(Stored<'_>, Header), PackError> {
    let mut input = Stored::new(file, at, end);
    let header = Header::read(at, || input.byte())?;
    Ok((input, header))
}
