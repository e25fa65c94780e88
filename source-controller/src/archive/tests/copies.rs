//! How segments of the previous artifact are copied.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sluice_api::digest::Algorithm;
use sluice_runtime::shutdown::Token;

use super::fixture::{
    TestError, Text, directory, file, opening, previous, rebuild, rebuild_in_runs, scratch, text,
};
use crate::archive::{Capacity, Listed, Previous, Run, Settings, StoredFile, write};

/// Time within which a copy must begin.
const LIMIT: Duration = Duration::from_secs(30);

/// A stored file that counts its seeks.
struct CountedFile {
    file: Box<dyn StoredFile>,
    seeks: Arc<AtomicU64>,
}

impl Read for CountedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // In parts, as a disk may do it.
        let part = buffer.len().min(50_000);
        self.file.read(&mut buffer[..part])
    }
}

impl Seek for CountedFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.seeks.fetch_add(1, Ordering::Relaxed);
        self.file.seek(position)
    }
}

#[test]
fn a_seek_is_needed_only_where_something_changed() {
    let files = (0..12).map(|number| file(&format!("f{number:02}"), &text(number, 300_000)));
    let tree: Vec<_> = std::iter::once(directory(".")).chain(files).collect();
    let first = scratch(&tree, 2);
    let mut changed = tree.clone();
    changed[6] = file("f05", &text(1000, 300_000));
    for (tree, expected) in [(tree, 1), (changed, 2)] {
        for rebuilt in [rebuild, rebuild_in_runs] {
            let Previous { index, file } = previous(&first, None).unwrap();
            let seeks = Arc::new(AtomicU64::new(0));
            let counted = CountedFile {
                file,
                seeks: Arc::clone(&seeks),
            };
            let file = Box::new(counted);
            let next = rebuilt(&tree, Some(Previous { index, file }), 2);
            let from_scratch = scratch(&tree, 1);
            assert!(next.out == from_scratch.out);
            assert_eq!(next.totals.digest, from_scratch.totals.digest);
            assert_eq!(next.index, from_scratch.index);
            assert_eq!(next.totals.copied, first.totals.segments + 1 - expected);
            assert_eq!(seeks.load(Ordering::Relaxed), expected);
        }
    }
}

/// The digest of the bytes before a change is that of the index, so a wrong one there makes a wrong one of the whole.
#[test]
fn unchanged_bytes_before_a_change_are_not_hashed_again() {
    let files = (0..12).map(|number| file(&format!("f{number:02}"), &text(number, 300_000)));
    let mut tree: Vec<_> = std::iter::once(directory(".")).chain(files).collect();
    let mut first = scratch(&tree, 2);
    first.index = first.index.map(|index| {
        let mut checkpoints = index.checkpoints().to_vec();
        for checkpoint in &mut checkpoints {
            checkpoint[0] ^= 1;
        }
        index.with_checkpoints(checkpoints)
    });
    for (changed, is_hashed) in [(6, false), (1, true)] {
        let before = tree[changed].clone();
        tree[changed] = file(&format!("f{:02}", changed - 1), &text(1000, 300_000));
        let next = rebuild(&tree, previous(&first, None), 2);
        let from_scratch = scratch(&tree, 2);
        assert!(next.out == from_scratch.out);
        assert_eq!(next.totals.digest == from_scratch.totals.digest, is_hashed);
        tree[changed] = before;
    }
}

/// An output that reports its first write.
struct Reported {
    bytes: Vec<u8>,
    begun: Option<mpsc::Sender<()>>,
}

impl Write for Reported {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(begun) = self.begun.take() {
            begun.send(()).map_err(io::Error::other)?;
        }
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The segment of the change has more entries, so it is not complete when the copies begin.
#[test]
fn unchanged_segments_are_copied_before_the_changed_one_is_listed() {
    let files = (0..1000).map(|number| file(&format!("f{number:04}"), &text(number, 5_000)));
    let mut tree: Vec<_> = std::iter::once(directory(".")).chain(files).collect();
    let first = scratch(&tree, 2);
    tree[601] = file("f0600", &text(5000, 5_000));
    let open = opening(&tree);
    let run = |range: Range<u32>| -> Result<Listed<Text>, TestError> {
        let open = Arc::clone(&open);
        Ok(Listed::Run(Run { range, open }))
    };
    let (begun, copied) = mpsc::channel();
    let rest = std::iter::once_with(move || {
        let waited = copied.recv_timeout(LIMIT);
        waited.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        run(602..1001)
    });
    let listed = [run(0..601), Ok(Listed::Entry(tree[601].clone()))];
    let settings = Settings {
        algorithm: Algorithm::Sha256,
        capacity: &Capacity::new(2, 4),
        stop: &Token::new(),
    };
    let out = Reported {
        bytes: Vec::new(),
        begun: Some(begun),
    };
    let listed = listed.into_iter().chain(rest);
    let next = write(listed, previous(&first, None), &settings, out).unwrap();
    assert!(next.out.bytes == scratch(&tree, 2).out);
    assert_eq!(next.totals.copied, next.totals.segments - 1);
}
