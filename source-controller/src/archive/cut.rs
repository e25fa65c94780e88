//! Cuts entries into segments, and finds those that the previous artifact has at the same position. Pure.

use std::ops::Range;

use super::earlier::Earlier;
use super::listing::{Listed, Open, Run};
use super::segment::{MAX, MIN, Segment};
use super::{Content, Entry};

/// A segment of the archive, or several that the previous artifact has.
pub(super) enum Planned<C> {
    /// Its entries were listed; the previous artifact may have it nevertheless.
    Listed(Segment<C>),
    /// Segments of the previous artifact, whose entries need not be listed.
    Unchanged(Unchanged<C>),
}

/// Consecutive segments of the previous artifact.
pub(super) struct Unchanged<C> {
    /// Their numbers there.
    pub(super) numbers: Range<usize>,
    /// Opens the content of its files, if the previous artifact is damaged.
    pub(super) open: Open<C>,
}

impl<C: Content> Unchanged<C> {
    /// Returns the segment of this number with its entries.
    pub(super) fn segment(&self, number: usize, earlier: &Earlier) -> Segment<C> {
        let positions = earlier.entries(number);
        let entries = positions.filter_map(|position| earlier.listing.entry(position, &self.open));
        Segment::new(entries.collect())
    }
}

/// An entry, with its position in the previous artifact if it is one of it.
type Placed<C> = (Entry<C>, Option<u32>);

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
    unchanged: Option<Unchanged<C>>,
    /// An entry that begins the next segment, with its position in the previous artifact.
    held: Option<Placed<C>>,
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
        (self.length, self.position) = (0, None);
        Planned::Listed(Segment::new(std::mem::take(&mut self.current)))
    }

    /// Returns the next entry with its position in the previous artifact, if it is one of it. Skips entries of unchanged segments.
    fn next_entry(&mut self) -> Option<Result<Placed<C>, C::Error>> {
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
        self.unchanged = Some(Unchanged {
            numbers: segment..last,
            open: run.open.clone(),
        });
        self.current.clear();
        (self.length, self.position) = (0, None);
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
            if let Some(unchanged) = self.unchanged.take() {
                return Some(Ok(Planned::Unchanged(unchanged)));
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
