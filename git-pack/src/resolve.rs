//! Applies deltas to their bases, from each undeltified object down its tree of deltas, and hashes the results. Each
//! entry is resolved once, so the work ends for any input.
//!
//! Objects on the path to the current one are cached within a fixed budget. An evicted object is rebuilt when another
//! delta needs it, and its bytes count as unpacked bytes again.

use std::fs::File;

use git2::ObjectType;

use crate::Limits;
use crate::delta::{Delta, Output};
use crate::entry::Header;
use crate::error::{FormatError, Limit, PackError};
use crate::hash::ObjectHash;
use crate::inflate::{FileInput, Inflater};
use crate::scan::Scanned;
use crate::table::{Children, State, Table};

/// Maximum length of a delta chain: Git's own limit (`pack.depth`).
const MAX_CHAIN_DEPTH: usize = 4095;
/// The objects of a chain have at most this many times the bytes of the limit for one object: reading the last one
/// rebuilds all of them.
const CHAIN_FACTOR: u64 = 16;
/// Budget in bytes for cached objects.
const CACHE_BUDGET: u64 = 32 << 20;
/// Results up to this size are cached before it is known whether they are a base.
const ALWAYS_CACHED_BYTES: u64 = 1 << 20;

/// An object on the current path.
struct Frame {
    entry: u32,
    /// Bytes of all objects from the undeltified one to this one.
    chain: u64,
    content: Option<Vec<u8>>,
    children: Children,
}

/// Resolves the deltas of one pack.
pub(crate) struct Resolver<'a> {
    pub(crate) scanned: Scanned,
    pub(crate) limits: &'a Limits,
    pub(crate) is_cancelled: &'a dyn Fn() -> bool,
    inflater: Inflater<'a>,
    frames: Vec<Frame>,
    cached_bytes: u64,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(scanned: Scanned, limits: &'a Limits, is_cancelled: &'a dyn Fn() -> bool) -> Self {
        Self {
            inflater: Inflater::new(scanned.budget, limits.unpacked_bytes, is_cancelled),
            scanned,
            limits,
            is_cancelled,
            frames: Vec::new(),
            cached_bytes: 0,
        }
    }

    /// Resolves all deltas that are based on undeltified objects of the pack.
    pub(crate) fn resolve(&mut self) -> Result<(), PackError> {
        for entry in 0..self.table().len() {
            let State::Whole(kind) = self
                .table()
                .states
                .get(entry)
                .copied()
                .ok_or(FormatError::Truncated)?
            else {
                continue;
            };
            let entry = u32::try_from(entry).unwrap_or(u32::MAX);
            if !self.table().children(entry).is_empty() {
                self.resolve_tree(entry, kind, None)?;
            }
        }
        let Scanned { names, table, .. } = &mut self.scanned;
        names.complete(table)
    }

    /// Resolves all deltas that are based on this undeltified object, whose content may be provided.
    pub(crate) fn resolve_tree(
        &mut self,
        root: u32,
        kind: ObjectType,
        content: Option<Vec<u8>>,
    ) -> Result<(), PackError> {
        let content = match content {
            Some(content) => content,
            None => self.read_whole(root)?,
        };
        let chain = content.len() as u64;
        self.push(root, chain, Some(content));
        while let Some(frame) = self.frames.last_mut() {
            let Some(child) = self.scanned.table.next_child(&mut frame.children) else {
                self.pop();
                continue;
            };
            if self.table().states.get(child as usize) == Some(&State::Pending) {
                self.resolve_delta(child, kind)?;
            }
        }
        Ok(())
    }

    /// Returns the pack if all deltas are resolved.
    pub(crate) fn finish(self) -> Result<Scanned, PackError> {
        match self.table().pending() {
            0 => Ok(self.scanned),
            some => Err(FormatError::Unresolved(some).into()),
        }
    }

    /// Charges bytes that were unpacked elsewhere.
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<(), PackError> {
        self.inflater.charge(bytes)
    }

    pub(crate) const fn table(&self) -> &Table {
        &self.scanned.table
    }

    /// Resolves a delta whose base is the last frame.
    fn resolve_delta(&mut self, child: u32, kind: ObjectType) -> Result<(), PackError> {
        if self.frames.len() > MAX_CHAIN_DEPTH {
            return Err(FormatError::ChainDepth(MAX_CHAIN_DEPTH).into());
        }
        self.rebuild_last()?;
        let at = self.at(child)?;
        let cache_limit = if self.table().has_offset_deltas(child) {
            u64::MAX
        } else {
            ALWAYS_CACHED_BYTES
        };
        let mut result = DeltaResult::new(self.limits.delta_bytes, cache_limit, Some(kind));
        if self.table().ref_deltas.is_empty() {
            // No delta is found by the name of its base, so names may be computed later.
            result.unnamed = self.scanned.names.max_bytes();
        }
        self.apply(child, self.frames.len() - 1, &mut result)?;
        let (size, content) = (result.size, result.content);
        let id = if let Some(hash) = result.hash {
            hash.finish(at)?
        } else {
            let names = &mut self.scanned.names;
            names
                .content()
                .extend_from_slice(content.as_deref().unwrap_or_default());
            names.add(child, at, kind, size);
            [0; 20]
        };
        let limit = CHAIN_FACTOR.saturating_mul(self.limits.delta_bytes);
        let chain = self.frames.last().map_or(0, |frame| frame.chain) + size;
        if chain > limit {
            return Err(Limit::ChainBytes.exceeded(limit));
        }
        let table = &mut self.scanned.table;
        if let (Some(entry), Some(state)) = (
            table.entries.get_mut(child as usize),
            table.states.get_mut(child as usize),
        ) {
            (entry.id, *state) = (id, State::Resolved);
        }
        self.scanned.names.advance(table)?;
        if !self.table().children(child).is_empty() {
            self.push(child, chain, content);
        }
        Ok(())
    }

    fn push(&mut self, entry: u32, chain: u64, content: Option<Vec<u8>>) {
        self.cached_bytes += content.as_ref().map_or(0, |content| content.len() as u64);
        self.frames.push(Frame {
            entry,
            chain,
            content,
            children: self.table().children(entry),
        });
        self.evict(self.frames.len().saturating_sub(1));
    }

    fn pop(&mut self) {
        if let Some(Frame {
            content: Some(content),
            ..
        }) = self.frames.pop()
        {
            self.cached_bytes -= content.len() as u64;
        }
    }

    /// Evicts objects of the first frames until the budget is met.
    fn evict(&mut self, before: usize) {
        for frame in self.frames.iter_mut().take(before) {
            if self.cached_bytes <= CACHE_BUDGET {
                return;
            }
            if let Some(content) = frame.content.take() {
                self.cached_bytes -= content.len() as u64;
            }
        }
    }

    /// Rebuilds the object of the last frame if it was evicted, from the last cached one before it.
    fn rebuild_last(&mut self) -> Result<(), PackError> {
        let nearest = self.frames.iter().rposition(|frame| frame.content.is_some());
        let first = if let Some(nearest) = nearest {
            nearest
        } else {
            let root = self.frames.first().map_or(0, |frame| frame.entry);
            let content = self.read_whole(root)?;
            self.cache(0, content);
            0
        };
        for number in first + 1..self.frames.len() {
            let entry = self.frames.get(number).map_or(0, |frame| frame.entry);
            let mut result = DeltaResult::new(self.limits.delta_bytes, u64::MAX, None);
            self.apply(entry, number - 1, &mut result)?;
            self.cache(number, result.content.unwrap_or_default());
        }
        Ok(())
    }

    /// Caches the object of a frame, and evicts earlier ones over the budget.
    fn cache(&mut self, number: usize, content: Vec<u8>) {
        self.cached_bytes += content.len() as u64;
        if let Some(frame) = self.frames.get_mut(number) {
            frame.content = Some(content);
        }
        self.evict(number);
    }

    fn at(&self, entry: u32) -> Result<u64, FormatError> {
        let entry = self.table().entries.get(entry as usize);
        entry.map(|entry| entry.at).ok_or(FormatError::Truncated)
    }

    /// Applies the delta of an entry to the object of a frame.
    fn apply(&mut self, entry: u32, base: usize, result: &mut DeltaResult) -> Result<(), PackError> {
        let (at, end) = (self.at(entry)?, self.table().end_of(entry));
        let base = self.frames.get(base).and_then(|frame| frame.content.as_deref());
        let mut delta = Delta::new(base.unwrap_or_default(), at);
        let (mut input, header) = open_entry(self.scanned.file.as_file(), at, end)?;
        self.inflater
            .inflate(&mut input, at, header.size, |bytes| delta.feed(bytes, result))?;
        delta.finish()?;
        self.inflater.charge(result.size)
    }

    /// Reads an undeltified object of the pack.
    fn read_whole(&mut self, entry: u32) -> Result<Vec<u8>, PackError> {
        let (at, end) = (self.at(entry)?, self.table().end_of(entry));
        let (mut input, header) = open_entry(self.scanned.file.as_file(), at, end)?;
        if header.size > self.limits.delta_bytes {
            return Err(Limit::DeltaBytes.exceeded(self.limits.delta_bytes));
        }
        let mut content = Vec::with_capacity(usize::try_from(header.size).unwrap_or_default());
        self.inflater.inflate(&mut input, at, header.size, |bytes| {
            content.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(content)
    }
}

/// The result of a delta.
struct DeltaResult {
    /// Maximum size in bytes.
    limit: u64,
    /// Size in bytes up to which the content is stored.
    cache_limit: u64,
    /// Object type, if the hash is required.
    kind: Option<ObjectType>,
    /// Size in bytes up to which the hash is computed elsewhere, from the content. Less than `cache_limit`.
    unnamed: Option<u64>,
    hash: Option<ObjectHash>,
    content: Option<Vec<u8>>,
    size: u64,
}

impl DeltaResult {
    const fn new(limit: u64, cache_limit: u64, kind: Option<ObjectType>) -> Self {
        Self {
            limit,
            cache_limit,
            kind,
            unnamed: None,
            hash: None,
            content: None,
            size: 0,
        }
    }
}

impl Output for DeltaResult {
    fn begin(&mut self, size: u64) -> Result<(), PackError> {
        if size > self.limit {
            return Err(Limit::DeltaBytes.exceeded(self.limit));
        }
        self.size = size;
        let is_named = self.unnamed.is_none_or(|limit| size > limit);
        let kind = self.kind.filter(|_| is_named);
        self.hash = kind.map(|kind| ObjectHash::new(kind, size));
        self.content =
            (size <= self.cache_limit).then(|| Vec::with_capacity(usize::try_from(size).unwrap_or_default()));
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

/// Opens the compressed data of an entry, after its header.
fn open_entry(file: &File, at: u64, end: u64) -> Result<(FileInput<'_>, Header), PackError> {
    let mut input = FileInput::new(file, at, end);
    let header = Header::read(at, || input.byte())?;
    Ok((input, header))
}
