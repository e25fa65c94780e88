//! Objects that wait in their tasks.

use futures::future::BoxFuture;

use super::super::in_place::MAX_WAITING_IN_PLACE;
use super::*;

const LONG: Duration = Duration::from_mins(1);

/// Slots of a host whose only slot is in use, and objects that are queued for it.
struct Queued {
    slots: Slots,
    slot_in_use: Slot,
    keys: Vec<ObjectKey>,
}

impl Queued {
    fn new(objects: usize) -> Self {
        let slots = slots(1, 16);
        let slot_in_use = slot(slots.acquire(&key("x", "running"), &request("h", false))).unwrap();
        let keys: Vec<_> = (0..objects).map(|n| key("x", &n.to_string())).collect();
        for key in &keys {
            assert!(slot(slots.acquire(key, &request("h", false))).is_none());
        }
        Self {
            slots,
            slot_in_use,
            keys,
        }
    }
}

/// Starts to wait in place.
fn wait<'a>(slots: &'a Slots, key: &'a ObjectKey) -> BoxFuture<'a, bool> {
    let mut wait = slots.wait_in_place(key, LONG).boxed();
    assert_eq!(wait.as_mut().now_or_never(), None, "{key} waits");
    wait
}

/// Acquires the slot that was granted to the object, and releases it.
fn take_turn(slots: &Slots, key: &ObjectKey) {
    let taken = slot(slots.acquire(key, &request("h", false)));
    assert!(taken.is_some(), "{key} gets the slot granted to it");
}

#[tokio::test]
async fn objects_that_wait_in_place_take_their_turns_among_the_others() {
    let Queued {
        slots,
        slot_in_use,
        keys,
    } = Queued::new(3);
    let mut calls = slots.granted().boxed();
    let [first, third] = [0, 2].map(|n| wait(&slots, &keys[n]));
    drop(slot_in_use);
    assert_eq!(first.now_or_never(), Some(true));
    assert_eq!(calls.next().now_or_never(), None, "it is not triggered as well");
    take_turn(&slots, &keys[0]);
    assert_eq!(calls.next().now_or_never(), Some(Some(keys[1].clone())));
    take_turn(&slots, &keys[1]);
    assert_eq!(third.now_or_never(), Some(true));
    take_turn(&slots, &keys[2]);
    assert_eq!(calls.next().now_or_never(), None);
    assert_eq!(slots.load(&lane("h")), (0, 0));
    assert_eq!(slots.0.lock().in_place, 0);
}

#[tokio::test]
async fn an_object_that_was_triggered_already_does_not_wait_in_place() {
    let queued = Queued::new(1);
    drop(queued.slot_in_use);
    let wait = queued.slots.wait_in_place(&queued.keys[0], LONG);
    assert_eq!(wait.now_or_never(), Some(false));
    take_turn(&queued.slots, &queued.keys[0]);
}

#[tokio::test]
async fn a_wait_in_place_ends_in_time_for_its_report() {
    let queued = Queued::new(1);
    let (slots, key) = (&queued.slots, &queued.keys[0]);
    let mut calls = slots.granted().boxed();
    assert!(slots.wait_in_place(key, Duration::from_millis(5)).await);
    match slots.acquire(key, &request("h", false)) {
        Acquisition::Queued { since, is_reported } => {
            assert!(since.elapsed() >= Duration::from_millis(5), "the wait goes on");
            assert!(!is_reported);
        }
        Acquisition::Slot(slot) => panic!("{slot:?} was not granted"),
    }
    slots.mark_reported(key);
    let again = slots.wait_in_place(key, LONG);
    assert_eq!(again.now_or_never(), Some(false), "a long wait takes no place");
    drop(queued.slot_in_use);
    assert_eq!(calls.next().now_or_never(), Some(Some(key.clone())));
}

#[tokio::test]
async fn a_cancelled_wait_in_place_leaves_the_queue() {
    let Queued {
        slots,
        slot_in_use,
        keys,
    } = Queued::new(3);
    let [first, second, third] = [0, 1, 2].map(|n| wait(&slots, &keys[n]));
    drop(first);
    assert_eq!(slots.load(&lane("h")), (1, 2));
    drop(slot_in_use);
    // Cancelled after its grant, which the next object then gets.
    drop(second);
    assert_eq!(third.now_or_never(), Some(true));
    take_turn(&slots, &keys[2]);
    assert_eq!(slots.load(&lane("h")), (0, 0));
    assert_eq!(slots.0.lock().in_place, 0);
}

#[tokio::test]
async fn a_deletion_ends_a_wait_in_place() {
    let queued = Queued::new(1);
    let (slots, key) = (&queued.slots, &queued.keys[0]);
    let deleted = wait(slots, key);
    slots.forget(key);
    assert_eq!(deleted.now_or_never(), Some(false));
    assert_eq!(slots.load(&lane("h")), (1, 0));
}

#[tokio::test]
async fn a_trigger_ends_a_wait_in_place_and_the_object_becomes_urgent() {
    let queued = Queued::new(2);
    let (slots, keys) = (&queued.slots, &queued.keys);
    let [first, second] = [0, 1].map(|n| wait(slots, &keys[n]));
    slots.end_wait(&keys[1]);
    assert_eq!(second.now_or_never(), Some(false));
    assert_eq!(slots.load(&lane("h")), (1, 2), "it stays queued");
    assert!(slot(slots.acquire(&keys[1], &request("h", true))).is_none());
    let second = wait(slots, &keys[1]);
    drop(queued.slot_in_use);
    assert_eq!(second.now_or_never(), Some(true));
    take_turn(slots, &keys[1]);
    assert_eq!(first.now_or_never(), Some(true));
}

#[tokio::test]
async fn a_trigger_before_a_wait_in_place_prevents_it_until_the_next_request() {
    let queued = Queued::new(1);
    let (slots, key) = (&queued.slots, &queued.keys[0]);
    slots.end_wait(key);
    assert_eq!(slots.wait_in_place(key, LONG).now_or_never(), Some(false));
    assert_eq!(slots.load(&lane("h")), (1, 1), "it stays queued");
    assert!(slot(slots.acquire(key, &request("h", false))).is_none());
    let turn = wait(slots, key);
    drop(queued.slot_in_use);
    assert_eq!(turn.now_or_never(), Some(true));
    take_turn(slots, key);
}

#[tokio::test]
async fn only_a_few_objects_wait_in_place() {
    let queued = Queued::new(MAX_WAITING_IN_PLACE + 2);
    let (slots, keys) = (&queued.slots, &queued.keys);
    let mut calls = slots.granted().boxed();
    let (few, more) = keys.split_at(MAX_WAITING_IN_PLACE);
    let mut waits: Vec<_> = few.iter().map(|key| wait(slots, key)).collect();
    for key in more {
        assert_eq!(slots.wait_in_place(key, LONG).now_or_never(), Some(false));
    }
    drop(waits.pop());
    waits.push(wait(slots, &more[0]));
    drop(queued.slot_in_use);
    for (key, wait) in few.iter().zip(waits.drain(..MAX_WAITING_IN_PLACE - 1)) {
        assert_eq!(wait.now_or_never(), Some(true), "{key}");
        take_turn(slots, key);
    }
    assert_eq!(waits.remove(0).now_or_never(), Some(true));
    take_turn(slots, &more[0]);
    assert_eq!(calls.next().now_or_never(), Some(Some(more[1].clone())));
}
