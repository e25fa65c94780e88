//! Entries with content in memory, and archives of them.

use std::collections::HashMap;
use std::io::{self, Cursor};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest as _, Sha256};
use sluice_api::digest::Algorithm;
use sluice_runtime::shutdown::Token;

use crate::archive::{
    Body, Capacity, Content, Entry, Index, Listed, Open, Previous, Run, Settings, Sink, Stopped, Written,
    write,
};

/// Why a test archive cannot be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum TestError {
    /// The output, or the content of a file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Cancelled.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A text that counts its reads. It is notable if it begins with `!`.
#[derive(Clone, Debug, Default)]
pub(super) struct Text {
    text: Arc<Vec<u8>>,
    reads: Arc<AtomicU64>,
}

impl Text {
    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }
}

impl Content for Text {
    type Error = TestError;

    fn read(&self, sink: Sink<'_, TestError>) -> Result<bool, TestError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.text.starts_with(b"unreadable") {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        // In parts that fit into no block.
        for part in self.text.chunks(100_003) {
            sink(part)?;
        }
        Ok(self.text.starts_with(b"!"))
    }
}

pub(super) fn directory(path: &str) -> Entry<Text> {
    Entry::directory(path.as_bytes())
}

pub(super) fn file(path: &str, content: &[u8]) -> Entry<Text> {
    Entry {
        path: path.as_bytes().to_vec(),
        body: Body::File {
            executable: content.starts_with(b"#!"),
            size: content.len() as u64,
            id: Sha256::digest(content).to_vec().into(),
            content: Text {
                text: Arc::new(content.to_vec()),
                reads: Arc::default(),
            },
        },
    }
}

/// Returns text that compresses to about half its size, other text for each seed.
pub(in crate::archive) fn text(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut text = Vec::with_capacity(length + 8);
    while text.len() < length {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.extend(state.to_be_bytes().map(|byte| b'a' | (byte & 0x0f)));
    }
    text.truncate(length);
    text
}

/// Builds an archive.
pub(super) fn build(
    entries: &[Entry<Text>],
    previous: Option<Previous>,
    capacity: &Capacity,
    stop: &Token,
) -> Result<Written<Vec<u8>>, TestError> {
    let settings = Settings {
        algorithm: Algorithm::Sha256,
        capacity,
        stop,
    };
    let listed = entries.iter().cloned().map(|entry| Ok(Listed::Entry(entry)));
    write(listed, previous, &settings, Vec::new())
}

/// Builds an archive without a previous one, with this number of threads.
pub(super) fn scratch(entries: &[Entry<Text>], threads: usize) -> Written<Vec<u8>> {
    build(entries, None, &Capacity::new(threads, 2 * threads), &Token::new()).unwrap()
}

/// Builds an archive from a previous one, with this number of threads.
pub(super) fn rebuild(
    entries: &[Entry<Text>],
    previous: Option<Previous>,
    threads: usize,
) -> Written<Vec<u8>> {
    build(
        entries,
        previous,
        &Capacity::new(threads, 2 * threads),
        &Token::new(),
    )
    .unwrap()
}

/// Returns an archive as the previous one: with its index as it is stored, and other bytes in its file if `stored` are given.
pub(super) fn previous(written: &Written<Vec<u8>>, stored: Option<Vec<u8>>) -> Option<Previous> {
    let index = Index::parse(&written.index.as_ref()?.encode()).unwrap();
    assert_eq!(index.artifact(), &written.totals.digest);
    let file = Box::new(Cursor::new(stored.unwrap_or_else(|| written.out.clone())));
    Some(Previous { index, file })
}

/// Returns what opens the content of these entries by their paths.
pub(super) fn opening(entries: &[Entry<Text>]) -> Open<Text> {
    let contents: HashMap<Vec<u8>, Text> = entries
        .iter()
        .filter_map(|entry| match &entry.body {
            Body::File { content, .. } => Some((entry.path.clone(), content.clone())),
            Body::Directory => None,
        })
        .collect();
    Arc::new(move |path: &[u8], _: &[u8], _: bool| contents[path].clone())
}

/// As [`rebuild`], where entries that the previous archive has are named by their positions there, and not listed.
pub(super) fn rebuild_in_runs(
    entries: &[Entry<Text>],
    previous: Option<Previous>,
    threads: usize,
) -> Written<Vec<u8>> {
    let open = opening(entries);
    let listing = previous.as_ref().map(|previous| previous.index.listing());
    let listing = listing.unwrap_or_default();
    let listed = entries.iter().cloned().map(|entry| {
        let position = listing.find(&entry.path);
        let known = position.filter(|position| listing.has(*position, &entry));
        Ok(match known {
            Some(position) => Listed::Run(Run {
                range: position..position + 1,
                open: Arc::clone(&open),
            }),
            None => Listed::Entry(entry),
        })
    });
    let settings = Settings {
        algorithm: Algorithm::Sha256,
        capacity: &Capacity::new(threads, 2 * threads),
        stop: &Token::new(),
    };
    write(listed, previous, &settings, Vec::new()).unwrap()
}

/// Returns how often the content of all entries was read.
pub(super) fn reads(entries: &[Entry<Text>]) -> u64 {
    let contents = entries.iter().filter_map(|entry| match &entry.body {
        Body::File { content, .. } => Some(content.reads()),
        Body::Directory => None,
    });
    contents.sum()
}
