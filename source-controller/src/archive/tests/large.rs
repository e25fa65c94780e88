//! Large archives wait for each other, and small ones for none of them.

use std::io::{self, Write};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sluice_api::digest::Algorithm;
use sluice_runtime::shutdown::Token;
use sluice_runtime::sync::lock;

use super::fixture::{TestError, Text, build, file, previous, scratch, text};
use crate::archive::{Capacity, Entry, Listed, Settings, Written, write};

/// Time within which each build must reach its next state.
const LIMIT: Duration = Duration::from_mins(1);
/// Files of a large archive, each of which is a segment: more than are listed before the first one is written.
const FILES: usize = 24;

/// Whether outputs accept bytes.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        let (is_open, changed) = &*self.0;
        *lock(is_open) = true;
        changed.notify_all();
    }

    /// Waits until it is open.
    fn pass(&self) -> io::Result<()> {
        let (is_open, changed) = &*self.0;
        let waited = changed.wait_timeout_while(lock(is_open), LIMIT, |is_open| !*is_open);
        let (is_open, _time) = waited.map_err(|_| io::Error::other("poisoned"))?;
        if *is_open {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

/// An output behind a gate.
struct Gated {
    bytes: Vec<u8>,
    gate: Gate,
}

impl Write for Gated {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.gate.pass()?;
        self.bytes.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn large_tree() -> Vec<Entry<Text>> {
    let name = |number| format!("f{number}");
    (0..FILES)
        .map(|number| file(&name(number), &text(number as u64, 512 << 10)))
        .collect()
}

fn write_to<W: Write>(out: W, tree: Vec<Entry<Text>>, capacity: &Capacity) -> Result<Written<W>, TestError> {
    let settings = Settings {
        algorithm: Algorithm::Sha256,
        capacity,
        stop: &Token::new(),
    };
    let listed = tree.into_iter().map(|entry| Ok(Listed::Entry(entry)));
    write(listed, None, &settings, out)
}

/// Builds behind a gate, on a thread of its own. Its bytes are sent.
fn start(tree: &[Entry<Text>], capacity: &Capacity, gate: &Gate, built: &mpsc::Sender<Vec<u8>>) {
    let (tree, capacity, built) = (tree.to_vec(), capacity.clone(), built.clone());
    let out = Gated {
        bytes: Vec::new(),
        gate: gate.clone(),
    };
    thread::spawn(move || built.send(write_to(out, tree, &capacity).unwrap().out.bytes));
}

/// Builds with an output that accepts no bytes, on a thread of its own. Whether it failed is sent.
fn start_failing(tree: Vec<Entry<Text>>, capacity: Capacity) -> mpsc::Receiver<bool> {
    let (failed, outcome) = mpsc::channel();
    thread::spawn(move || {
        let full: &mut [u8] = &mut [];
        failed.send(write_to(full, tree, &capacity).is_err())
    });
    outcome
}

/// Waits until the builds have so many rights to build a large archive, and so many wait for one.
fn wait_for(capacity: &Capacity, expected: (usize, usize)) {
    let begun = Instant::now();
    while capacity.large_builds() != expected {
        assert!(begun.elapsed() < LIMIT, "{:?}", capacity.large_builds());
        thread::yield_now();
    }
}

#[test]
fn a_third_large_archive_waits_and_a_small_one_does_not() {
    let tree = large_tree();
    let expected = scratch(&tree, 2);
    assert!(expected.totals.segments >= FILES as u64, "{:?}", expected.totals);
    let capacity = Capacity::new(2, 3 * FILES);
    let ([first, third], (built, archives)) = ([(); 2].map(|()| Gate::default()), mpsc::channel());
    start(&tree, &capacity, &first, &built);
    start(&tree, &capacity, &first, &built);
    wait_for(&capacity, (2, 0));
    start(&tree, &capacity, &third, &built);
    wait_for(&capacity, (2, 1));

    // A small one: a change of a large tree.
    let mut changed = tree.clone();
    changed[FILES - 1] = file(&format!("f{}", FILES - 1), b"other");
    let small = build(&changed, previous(&expected, None), &capacity, &Token::new()).unwrap();
    assert!(small.out == scratch(&changed, 2).out);
    assert_eq!(capacity.large_builds(), (2, 1));

    // What it may compress is written while it waits.
    third.open();
    assert!(archives.try_recv().is_err());
    first.open();
    for _ in 0..3 {
        assert!(archives.recv_timeout(LIMIT).unwrap() == expected.out);
    }
    assert_eq!(capacity.large_builds(), (0, 0));
}

#[test]
fn a_large_archive_that_cannot_be_written_does_not_wait_for_others() {
    let tree = large_tree();
    let capacity = Capacity::new(2, 3 * FILES);
    let (gate, (built, archives)) = (Gate::default(), mpsc::channel());
    for _ in 0..2 {
        start(&tree, &capacity, &gate, &built);
    }
    wait_for(&capacity, (2, 0));
    let outcome = start_failing(tree, capacity.clone());
    assert_eq!(outcome.recv_timeout(LIMIT / 2), Ok(true));
    assert_eq!(capacity.large_builds(), (2, 0));
    gate.open();
    for _ in 0..2 {
        archives.recv_timeout(LIMIT).unwrap();
    }
}
