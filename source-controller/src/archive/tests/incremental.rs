//! An archive that is built from a previous one has the bytes of one built from scratch, and costs only what changed.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use proptest::prelude::*;
use sluice_runtime::shutdown::Token;

use super::fixture::{
    Text, build, directory, file, previous, reads, rebuild, rebuild_in_runs, scratch, text,
};
use super::unpacked;
use crate::archive::{Body, Capacity, Entry, Previous, StoredFile};

/// Time within which builds must end.
const LIMIT: Duration = Duration::from_mins(1);

/// A tree as paths with a seed and a length of their content.
type Files = BTreeMap<String, (u64, usize)>;

/// A change of one file.
#[derive(Clone, Debug)]
enum Edit {
    /// Writes a file, new or not.
    Write(String, (u64, usize)),
    /// Removes the file at this position, if there are so many.
    Remove(usize),
    /// Changes the content of a file but not its length.
    Change(usize),
}

fn path() -> impl Strategy<Value = String> {
    "[a-d]/[a-z]{1,2}"
}

/// Mostly small files; some are larger than a segment.
fn content() -> impl Strategy<Value = (u64, usize)> {
    let length =
        prop_oneof![8 => 0..20_000_usize, 4 => 20_000..300_000_usize, 1 => 2_000_000..2_300_000_usize];
    (0..1000_u64, length)
}

fn files() -> impl Strategy<Value = Files> {
    proptest::collection::btree_map(path(), content(), 1..30)
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        (path(), content()).prop_map(|(path, content)| Edit::Write(path, content)),
        (0..30_usize).prop_map(Edit::Remove),
        (0..30_usize).prop_map(Edit::Change),
    ];
    proptest::collection::vec(edit, 0..4)
}

fn edited(mut files: Files, edits: Vec<Edit>) -> Files {
    for edit in edits {
        match edit {
            Edit::Write(path, content) => {
                files.insert(path, content);
            }
            Edit::Remove(position) => {
                if let Some(path) = files.keys().nth(position).cloned() {
                    files.remove(&path);
                }
            }
            Edit::Change(position) => {
                if let Some((seed, _)) = files.values_mut().nth(position) {
                    *seed += 1000;
                }
            }
        }
    }
    files
}

fn entries(files: &Files) -> Vec<Entry<Text>> {
    let files = files
        .iter()
        .map(|(path, (seed, length))| file(path, &text(*seed, *length)));
    std::iter::once(directory(".")).chain(files).collect()
}

/// Returns a tree of several megabytes in many files of 20 KB.
fn many_files() -> Files {
    (0..200)
        .map(|number| (format!("d{}/f{number:03}", number / 20), (number, 20_000)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn an_archive_from_a_previous_one_equals_one_from_scratch(
        before in files(), changes in edits(), later in edits(), threads in 1..4_usize,
    ) {
        let first = scratch(&entries(&before), threads);
        let after = edited(before, changes);
        let expected = scratch(&entries(&after), 1);
        let found = rebuild(&entries(&after), previous(&first, None), threads);
        prop_assert!(found.out == expected.out, "{} and {} bytes", found.out.len(), expected.out.len());
        prop_assert_eq!(&found.index, &expected.index);
        prop_assert_eq!(found.totals.unpacked, expected.totals.unpacked);
        prop_assert_eq!(found.totals.files, after.len() as u64);
        let in_runs = rebuild_in_runs(&entries(&after), previous(&first, None), threads);
        prop_assert!(in_runs.out == expected.out, "in runs");
        prop_assert_eq!(&in_runs.index, &expected.index);
        prop_assert_eq!(in_runs.totals.files, after.len() as u64);
        let damaged = first.out.iter().map(|byte| byte ^ 1).collect();
        let repaired = rebuild_in_runs(&entries(&after), previous(&first, Some(damaged)), threads);
        prop_assert!(repaired.out == expected.out, "in runs of a damaged file");
        let found = in_runs;
        // What was copied once can be copied again.
        let last = edited(after, later);
        let expected = scratch(&entries(&last), 1);
        let found = rebuild(&entries(&last), previous(&found, None), threads);
        prop_assert!(found.out == expected.out, "a second time");
        // Every file is in the archive.
        let mut reader = tar::Archive::new(GzDecoder::new(found.out.as_slice()));
        let mut extracted = 0;
        for entry in reader.entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type().is_file() {
                let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                let (seed, length) = last[&path];
                prop_assert!(content == text(seed, length), "{path}");
                extracted += 1;
            }
        }
        prop_assert_eq!(extracted, last.len());
    }
}

#[test]
fn an_unchanged_tree_is_copied_and_not_read() {
    let first = scratch(&entries(&many_files()), 2);
    assert!(first.totals.segments > 4, "{:?}", first.totals);
    let tree = entries(&many_files());
    let again = rebuild(&tree, previous(&first, None), 2);
    assert!(again.out == first.out);
    assert_eq!(again.totals.copied, first.totals.segments);
    assert_eq!(reads(&tree), 0);
}

#[test]
fn one_changed_file_compresses_one_segment() {
    let mut files = many_files();
    let first = scratch(&entries(&files), 2);
    for position in [0, 57, 199] {
        let (seed, _) = files.values_mut().nth(position).unwrap();
        *seed += 1000;
        let tree = entries(&files);
        let next = rebuild(&tree, previous(&first, None), 2);
        let changed = next.totals.segments - next.totals.copied;
        // The tree before differs from the first one in all positions up to this one.
        let expected = [0, 57, 199].iter().filter(|other| **other <= position).count() as u64;
        assert!((1..=expected).contains(&changed), "{position}: {changed}");
        assert!(reads(&tree) < 200, "{position}: {}", reads(&tree));
        assert!(next.out == scratch(&tree, 1).out, "{position}");
    }
}

/// Entries of unchanged segments are not even looked at: their number does not depend on that of the tree.
#[test]
fn one_changed_file_among_many_lists_the_entries_near_it() {
    let mut files: Files = (0..4000)
        .map(|number| (format!("d{number:04}/f"), (number, 5_000)))
        .collect();
    let first = scratch(&entries(&files), 2);
    assert!(first.totals.segments > 20, "{:?}", first.totals);
    assert_eq!(first.totals.listed, 4001);
    for position in [0, 1999, 3999] {
        let mut after = files.clone();
        if let Some((seed, _)) = after.values_mut().nth(position) {
            *seed += 10_000;
        }
        let next = rebuild_in_runs(&entries(&after), previous(&first, None), 2);
        // Up to two segments before the change and two after it.
        assert!(next.totals.listed < 1600, "{position}: {:?}", next.totals);
        assert!(
            next.totals.segments - next.totals.copied <= 2,
            "{:?}",
            next.totals
        );
        let expected = scratch(&entries(&after), 2);
        assert!(
            next.out == expected.out && next.index == expected.index,
            "{position}"
        );
    }
    files.remove("d2000/f");
    let removed = rebuild_in_runs(&entries(&files), previous(&first, None), 2);
    assert!(removed.totals.listed < 1600, "{:?}", removed.totals);
    assert!(removed.out == scratch(&entries(&files), 2).out);
}

/// A stored file that can be read once a content was read.
struct BlockedFile {
    file: Box<dyn StoredFile>,
    content: Text,
}

impl Read for BlockedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        while self.content.reads() == 0 {
            if begun.elapsed() > LIMIT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::yield_now();
        }
        self.file.read(buffer)
    }
}

impl Seek for BlockedFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

/// Any number of unchanged segments before a change delay its compression by nothing.
#[test]
fn a_change_is_compressed_before_the_segments_in_front_of_it_are_copied() {
    let mut files: Files = (0..4000)
        .map(|number| (format!("d{number:04}/f"), (number, 5_000)))
        .collect();
    let first = scratch(&entries(&files), 2);
    assert!(first.totals.segments > 20, "{:?}", first.totals);
    if let Some((seed, _)) = files.values_mut().last() {
        *seed += 10_000;
    }
    let tree = entries(&files);
    let Some(Body::File { content, .. }) = tree.last().map(|entry| &entry.body) else {
        unreachable!()
    };
    let Previous { index, file } = previous(&first, None).unwrap();
    let file = Box::new(BlockedFile {
        file,
        content: content.clone(),
    });
    let next = rebuild_in_runs(&tree, Some(Previous { index, file }), 2);
    assert!(
        next.totals.segments - next.totals.copied <= 2,
        "{:?}",
        next.totals
    );
    assert!(next.out == scratch(&tree, 2).out);
}

#[test]
fn a_notable_file_of_a_segment_that_is_not_listed_has_its_path() {
    let mut tree = entries(&many_files());
    tree[30] = file("d1/f029", b"! notable");
    let first = scratch(&tree, 2);
    let next = rebuild_in_runs(&tree, previous(&first, None), 2);
    // Only those after the last cut, which are at most 2 MiB.
    assert!(next.totals.listed < 120, "{:?}", next.totals);
    let found = (next.totals.notable, next.totals.first_notable);
    assert_eq!(found, (1, Some(b"d1/f029".to_vec())));
}

/// A new file moves the cuts only near it.
#[test]
fn cuts_recover_after_an_insertion() {
    let mut files = many_files();
    let first = scratch(&entries(&files), 2);
    files.insert("d0/between".to_owned(), (7, 20_000));
    let next = rebuild(&entries(&files), previous(&first, None), 2);
    assert!(next.totals.copied * 2 > next.totals.segments, "{:?}", next.totals);
}

#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
    let tree = entries(&many_files());
    let first = scratch(&tree, 1);
    for threads in [2, 3, 8] {
        let other = scratch(&tree, threads);
        assert!(other.out == first.out, "{threads} threads");
        assert_eq!(other.index, first.index);
    }
}

/// Path, type and size are in the header, so each of them belongs to the key.
#[test]
fn what_the_header_says_decides_about_a_copy() {
    let mut tree = entries(&many_files());
    let first = scratch(&tree, 2);
    if let Body::File { executable, .. } = &mut tree[100].body {
        *executable = true;
    }
    let next = rebuild(&tree, previous(&first, None), 2);
    assert_eq!(next.totals.segments - next.totals.copied, 1);
    assert!(next.out == scratch(&tree, 1).out);
    tree[100].path.push(b'x');
    let next = rebuild(&tree, previous(&first, None), 2);
    assert!(next.totals.copied < next.totals.segments);
    assert!(next.out == scratch(&tree, 1).out);
}

#[test]
fn a_large_file_is_compressed_and_copied_in_pieces() {
    let large = text(1, (5 << 20) + 3);
    let tree = [
        directory("."),
        file("a", b"a"),
        file("large", &large),
        file("z", b"z"),
    ];
    let first = scratch(&tree, 2);
    // The entries before it, three pieces, and the entry after it.
    assert_eq!(first.totals.segments, 5);
    let mut next = tree.to_vec();
    next[1] = file("a", b"b");
    let after = rebuild(&next, previous(&first, None), 2);
    assert_eq!(after.totals.copied, 4);
    assert!(after.out == scratch(&next, 1).out);
    assert_eq!(unpacked(&after.out).len() as u64, after.totals.unpacked);
}

#[test]
fn an_archive_of_one_segment_has_no_index() {
    let written = scratch(&[directory("."), file("a", b"a")], 2);
    assert_eq!((written.totals.segments, written.index), (1, None));
    let empty = scratch(&[], 2);
    assert_eq!((empty.totals.segments, empty.totals.unpacked), (0, 1024));
    assert_eq!(unpacked(&empty.out), [0; 1024]);
}

#[test]
fn notable_files_are_counted_whether_they_are_copied_or_not() {
    let mut tree = entries(&many_files());
    tree[30] = file("d1/f029", b"! first");
    tree[150] = file("d7/f149", b"! second");
    let first = scratch(&tree, 2);
    let expected = (2, Some(b"d1/f029".to_vec()));
    assert_eq!(
        (first.totals.notable, first.totals.first_notable.clone()),
        expected
    );
    let copied = rebuild(&tree, previous(&first, None), 2);
    assert_eq!(copied.totals.copied, copied.totals.segments);
    assert_eq!((copied.totals.notable, copied.totals.first_notable), expected);
}

/// Each holds memory while it waits for its own next segment.
#[test]
fn builds_that_share_the_memory_of_one_segment_all_end() {
    let (capacity, stop) = (Capacity::new(3, 1), Token::new());
    let tree = entries(&many_files());
    let expected = scratch(&tree, 1);
    let (ended, results) = mpsc::channel();
    for _ in 0..4 {
        let (tree, capacity, stop, ended) = (tree.clone(), capacity.clone(), stop.clone(), ended.clone());
        thread::spawn(move || ended.send(build(&tree, None, &capacity, &stop).unwrap().out));
    }
    for _ in 0..4 {
        assert!(results.recv_timeout(LIMIT).unwrap() == expected.out);
    }
}
