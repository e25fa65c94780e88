//! Damage of a previous artifact, and errors in the middle of a build.

use std::io;

use sluice_api::digest::Algorithm;
use sluice_runtime::shutdown::Token;

use super::fixture::{
    TestError, Text, build, directory, file, previous, rebuild, rebuild_in_runs, scratch, text,
};
use crate::archive::{Body, Capacity, Entry, Listed, Settings, write};

/// Returns a tree of several segments.
fn tree() -> Vec<Entry<Text>> {
    let files = (0..12).map(|number| file(&format!("f{number:02}"), &text(number, 300_000)));
    std::iter::once(directory(".")).chain(files).collect()
}

#[test]
fn a_damaged_previous_artifact_does_not_spread() {
    let tree = tree();
    let first = scratch(&tree, 2);
    let length = first.out.len();
    for at in [10, length / 3, length / 2, length - 40] {
        let mut stored = first.out.clone();
        stored[at] ^= 1;
        let next = rebuild(&tree, previous(&first, Some(stored)), 2);
        assert!(next.out == first.out, "byte {at}");
        assert!(next.totals.copied < first.totals.segments, "byte {at}");
    }
    for (what, stored) in [
        ("empty", Vec::new()),
        ("truncated", first.out[..length / 2].to_vec()),
        ("shifted", [&b"x"[..], &first.out].concat()),
    ] {
        let next = rebuild(&tree, previous(&first, Some(stored)), 2);
        assert!(next.out == first.out, "{what}");
    }
}

/// Only the damaged piece of a large file and those after it are compressed again.
#[test]
fn a_damaged_piece_is_compressed_again() {
    let tree = [directory("."), file("large", &text(3, 7 << 20))];
    let first = scratch(&tree, 2);
    assert_eq!(first.totals.segments, 5);
    let mut stored = first.out.clone();
    let middle = stored.len() / 2;
    stored[middle] ^= 0x80;
    let next = rebuild(&tree, previous(&first, Some(stored)), 2);
    assert!(next.out == first.out);
    assert!((1..5).contains(&next.totals.copied), "{:?}", next.totals);
}

/// The pieces before it are not written yet when it is read, as all of them are shorter than one write.
#[test]
fn a_damaged_piece_among_unchanged_ones_leaves_those_before_it() {
    let files = (0..12).map(|number| file(&format!("f{number:02}"), &[b'a' + number].repeat(300_000)));
    let tree: Vec<_> = std::iter::once(directory(".")).chain(files).collect();
    let first = scratch(&tree, 2);
    assert!(first.totals.segments > 4 && first.totals.size < 100_000);
    let mut stored = first.out.clone();
    let middle = stored.len() / 2;
    stored[middle] ^= 1;
    for rebuilt in [rebuild, rebuild_in_runs] {
        let next = rebuilt(&tree, previous(&first, Some(stored.clone())), 2);
        assert!(next.out == first.out);
        assert_eq!(next.index, first.index);
        assert!(
            (1..first.totals.segments - 1).contains(&next.totals.copied),
            "{:?}",
            next.totals
        );
    }
}

#[test]
fn the_index_of_another_artifact_copies_nothing_wrong() {
    let tree = tree();
    let (first, other) = (scratch(&tree, 2), scratch(&tree[..8], 2));
    let next = rebuild(&tree, previous(&first, Some(other.out)), 2);
    assert!(next.out == first.out);
}

#[test]
fn an_unreadable_file_fails_the_build_wherever_it_is() {
    let intact = tree();
    for position in [1, 5, 12] {
        let mut broken = intact.clone();
        broken[position] = file("x", b"unreadable");
        for threads in [1, 4] {
            let capacity = Capacity::new(threads, 2);
            let failed = build(&broken, None, &capacity, &Token::new()).err();
            assert!(
                matches!(&failed, Some(TestError::Io(error)) if error.kind() == io::ErrorKind::NotFound),
                "{position}: {failed:?}"
            );
            // All memory was returned.
            assert!(build(&intact, None, &capacity, &Token::new()).is_ok());
        }
    }
}

#[test]
fn an_error_of_the_list_fails_the_build() {
    let (capacity, stop) = (Capacity::new(2, 2), Token::new());
    let settings = Settings {
        algorithm: Algorithm::Sha256,
        capacity: &capacity,
        stop: &stop,
    };
    for position in [0, 1, 7, 13] {
        let failure = || Err(TestError::Io(io::Error::other("no list")));
        let listed = tree().into_iter().map(|entry| Ok(Listed::Entry(entry)));
        let listed = listed.take(position);
        let listed = listed.chain(std::iter::once_with(failure));
        let failed = write(listed, None, &settings, Vec::new()).err().unwrap();
        assert_eq!(failed.to_string(), "no list", "{position}");
    }
}

#[test]
fn a_content_of_another_length_than_listed_fails_the_build() {
    for wrong in [0, 299_999, 300_001, 3_000_000] {
        let mut tree = tree();
        if let Body::File { size, .. } = &mut tree[6].body {
            *size = wrong;
        }
        let failed = build(&tree, None, &Capacity::new(2, 4), &Token::new())
            .err()
            .unwrap();
        let expected = format!("'f05' has 300000 bytes, but was listed with {wrong}");
        assert_eq!(failed.to_string(), expected);
    }
}

#[test]
fn a_full_disk_fails_the_build() {
    struct Full(usize);
    impl io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 < bytes.len() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (capacity, stop) = (Capacity::new(2, 2), Token::new());
    let settings = Settings {
        algorithm: Algorithm::Sha256,
        capacity: &capacity,
        stop: &stop,
    };
    for space in [0, 500_000] {
        let failed = {
            let listed = tree().into_iter().map(|entry| Ok(Listed::Entry(entry)));
            write(listed, None, &settings, Full(space)).err()
        };
        assert!(
            matches!(&failed, Some(TestError::Io(error)) if error.kind() == io::ErrorKind::StorageFull),
            "{space}: {failed:?}"
        );
    }
}

#[test]
fn a_cancelled_build_ends() {
    let stop = Token::new();
    stop.cancel();
    for capacity in [Capacity::new(1, 1), Capacity::new(4, 8)] {
        let failed = build(&tree(), None, &capacity, &stop).err();
        assert!(matches!(failed, Some(TestError::Stopped(_))), "{failed:?}");
    }
}
