//! How segments of the previous artifact are read.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fixture::{directory, file, previous, rebuild, rebuild_in_runs, scratch, text};
use crate::archive::{Previous, StoredFile};

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
            assert!(next.out == scratch(&tree, 1).out);
            assert_eq!(next.totals.copied, first.totals.segments + 1 - expected);
            assert_eq!(seeks.load(Ordering::Relaxed), expected);
        }
    }
}
