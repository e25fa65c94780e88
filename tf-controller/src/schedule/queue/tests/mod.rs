//! Tests of the queue of runs.

mod memory;
mod properties;
mod reports;

use super::*;
use crate::memory::MemoryQuantity;

fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectKey {
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn queue(runs: u16, per_namespace: u16) -> RunQueue {
    RunQueue::new(RunLimits {
        per_namespace,
        ..RunLimits::of_runs(runs)
    })
}

/// Returns a queue with a limit of memory in bytes.
fn queue_with_memory(runs: u16, bytes: u64) -> RunQueue {
    RunQueue::new(RunLimits {
        memory: MemoryQuantity::from_bytes(bytes),
        ..RunLimits::of_runs(runs)
    })
}

/// Returns a queue with limits of the labels `account` and `team`.
fn queue_with_labels(runs: u16, account: u16, team: u16) -> RunQueue {
    RunQueue::new(RunLimits {
        per_label: [("account".to_owned(), account), ("team".to_owned(), team)].into(),
        ..RunLimits::of_runs(runs)
    })
}

fn memory_of(bytes: u64) -> RunUsage {
    RunLimits::of_runs(1).usage(&BTreeMap::new(), bytes)
}

/// Requests a slot for a run that only uses a slot; returns whether the stack occupies one.
fn request(queue: &mut RunQueue, stack: &ObjectKey, priority: Priority, now: Instant) -> bool {
    request_with(queue, stack, priority, RunUsage::default(), now)
}

fn request_with(
    queue: &mut RunQueue,
    stack: &ObjectKey,
    priority: Priority,
    usage: RunUsage,
    now: Instant,
) -> bool {
    queue.request(stack, priority, usage, now).0 == SlotState::Occupied
}

/// Occupies a slot with a run that only uses a slot.
fn occupy(queue: &mut RunQueue, stack: &str) {
    queue.occupy(&key(stack), RunUsage::default());
}

/// Releases the holder's slot, lets the granted stack request it, and so on; returns the order of the slots.
fn order(queue: &mut RunQueue, mut holder: ObjectKey, now: Instant) -> Vec<String> {
    let mut order = Vec::new();
    loop {
        let granted = queue.release(&holder, now);
        let Some(next) = granted.first().cloned() else {
            return order;
        };
        let priority = queue.waiting[&next].priority;
        assert!(request(queue, &next, priority, now), "{next} was granted a slot");
        order.push(next.to_string());
        holder = next;
    }
}

#[test]
fn slots_are_limited_and_granted_to_the_next() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    assert!(
        request(&mut queue, &key("n/a"), Priority::Change, now)
            && request(&mut queue, &key("n/a"), Priority::Change, now)
    );
    assert!(!request(&mut queue, &key("n/b"), Priority::Change, now));
    assert_eq!(queue.release(&key("n/a"), now), [key("n/b")]);
    assert!(request(&mut queue, &key("n/b"), Priority::Change, now));
    assert_eq!(queue.release(&key("n/b"), now), []);
}

#[test]
fn releasing_a_slot_keeps_the_position_of_waiting_stacks() {
    let (now, mut queue) = (Instant::now(), queue(1, 0));
    assert!(request(&mut queue, &key("a/1"), Priority::Timer, now));
    assert!(!request(&mut queue, &key("a/2"), Priority::Timer, now));
    assert_eq!(queue.release_held(&key("a/2"), now), [], "it holds nothing");
    assert_eq!(
        queue.release_held(&key("a/1"), now),
        [key("a/2")],
        "it still waits"
    );
}

#[test]
fn a_run_in_progress_counts_beyond_the_limit() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    occupy(&mut queue, "n/a");
    occupy(&mut queue, "n/b");
    assert!(!request(&mut queue, &key("n/c"), Priority::Manual, now));
    assert_eq!(queue.release(&key("n/a"), now), []);
    assert_eq!(queue.release(&key("n/b"), now), [key("n/c")]);
}

#[test]
fn manual_runs_precede_changes_and_changes_precede_timers() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    occupy(&mut queue, "n/holder");
    for (name, trigger) in [
        ("n/drift", Trigger::Interval),
        ("n/retry", Trigger::Retry),
        ("n/revision", Trigger::Revision),
        ("n/spec", Trigger::Spec),
        ("n/approval", Trigger::Approval),
        ("n/request", Trigger::Request),
    ] {
        assert!(!request(
            &mut queue,
            &key(name),
            Priority::from_trigger(trigger),
            now
        ));
    }
    assert_eq!(
        order(&mut queue, key("n/holder"), now),
        [
            "n/approval",
            "n/request",
            "n/revision",
            "n/spec",
            "n/drift",
            "n/retry"
        ]
    );
}

#[test]
fn namespaces_alternate_regardless_of_arrival() {
    let (mut queue, now) = (queue(2, 0), Instant::now());
    occupy(&mut queue, "big/0");
    occupy(&mut queue, "big/00");
    for name in ["big/1", "big/2", "big/3", "small/1", "small/2"] {
        assert!(!request(&mut queue, &key(name), Priority::Change, now));
    }
    // `big` still has a run, so `small` is next. Then both have one, and the first in the queue is next.
    assert_eq!(queue.release(&key("big/0"), now), [key("small/1")]);
    assert!(request(&mut queue, &key("small/1"), Priority::Change, now));
    assert_eq!(queue.release(&key("big/00"), now), [key("big/1")]);
}

#[test]
fn a_namespace_limit_does_not_delay_other_namespaces() {
    let (mut queue, now) = (queue(3, 1), Instant::now());
    assert!(request(&mut queue, &key("a/1"), Priority::Timer, now));
    assert!(!request(&mut queue, &key("a/2"), Priority::Manual, now));
    assert!(request(&mut queue, &key("b/1"), Priority::Timer, now));
    assert_eq!(queue.release(&key("a/1"), now), [key("a/2")]);
}

#[test]
fn a_manual_run_takes_a_granted_slot_and_the_other_is_granted_again() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    occupy(&mut queue, "n/a");
    assert!(!request(&mut queue, &key("n/b"), Priority::Timer, now));
    assert_eq!(queue.release(&key("n/a"), now), [key("n/b")]);
    assert!(request(&mut queue, &key("n/c"), Priority::Manual, now));
    assert!(!request(&mut queue, &key("n/b"), Priority::Timer, now));
    assert_eq!(queue.release(&key("n/c"), now), [key("n/b")]);
}

#[test]
fn an_unused_grant_expires() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    occupy(&mut queue, "n/a");
    assert!(!request(&mut queue, &key("n/gone"), Priority::Change, now));
    assert!(!request(&mut queue, &key("n/b"), Priority::Change, now));
    assert_eq!(queue.release(&key("n/a"), now), [key("n/gone")]);
    assert_eq!(queue.expire_grants(now + GRANT_TIMEOUT), []);
    assert_eq!(queue.expire_grants(now + GRANT_TIMEOUT * 2), [key("n/b")]);
}

#[test]
fn the_slot_of_a_missing_stack_is_reclaimed() {
    let (mut queue, now) = (queue(2, 1), Instant::now());
    occupy(&mut queue, "n/gone");
    occupy(&mut queue, "m/there");
    assert!(!request(&mut queue, &key("n/next"), Priority::Change, now));
    let granted = queue.reclaim(|stack| stack.name != "gone", now);
    assert_eq!(granted, [key("n/next")]);
    assert!(request(&mut queue, &key("n/next"), Priority::Change, now));
    assert_eq!(queue.reclaim(|_| true, now), []);
}

#[test]
fn a_missing_stack_does_not_wait_and_is_granted_nothing() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    occupy(&mut queue, "n/a");
    for name in ["n/gone", "n/also-gone", "n/b"] {
        assert!(!request(&mut queue, &key(name), Priority::Change, now));
    }
    let exists = |stack: &ObjectKey| !stack.name.ends_with("gone");
    assert_eq!(queue.release(&key("n/a"), now), [key("n/gone")]);
    assert_eq!(queue.reclaim(exists, now), [key("n/b")]);
    assert_eq!(
        queue.summary(now).waiting,
        [((Priority::Change, WaitReason::Slots), 1)].into()
    );
    // The slot of a stack is released together with the positions of others.
    assert!(request(&mut queue, &key("n/b"), Priority::Change, now));
    for name in ["n/gone", "n/c"] {
        assert!(!request(&mut queue, &key(name), Priority::Change, now));
    }
    assert_eq!(queue.reclaim(|stack| stack.name == "c", now), [key("n/c")]);
}

#[test]
fn the_summary_counts_slots_and_waiting_stacks_by_priority_and_reason() {
    let (mut queue, now) = (queue(2, 1), Instant::now());
    let empty = queue.summary(now);
    assert_eq!((empty.slots, empty.occupied), (2, 0));
    assert!(empty.waiting.is_empty() && empty.longest_wait.is_zero());
    assert!(request(&mut queue, &key("a/1"), Priority::Timer, now));
    let later = now + Duration::from_secs(5);
    assert!(!request(&mut queue, &key("a/2"), Priority::Manual, now));
    assert!(request(&mut queue, &key("b/1"), Priority::Timer, later));
    assert!(!request(&mut queue, &key("c/1"), Priority::Change, later));
    assert!(!request(&mut queue, &key("c/2"), Priority::Change, later));
    let summary = queue.summary(now + Duration::from_secs(7));
    assert_eq!((summary.slots, summary.occupied), (2, 2));
    let expected = [
        ((Priority::Manual, WaitReason::NamespaceSlots), 1),
        ((Priority::Change, WaitReason::Slots), 2),
    ];
    assert_eq!(summary.waiting, expected.into());
    assert_eq!(summary.longest_wait, Duration::from_secs(7));
    queue.release(&key("a/2"), later);
    assert_eq!(queue.summary(later).longest_wait, Duration::ZERO);
}

#[test]
fn waiting_raises_the_priority() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    occupy(&mut queue, "n/a");
    assert!(!request(&mut queue, &key("n/drift"), Priority::Timer, now));
    let later = now + AGING_INTERVAL * 2;
    assert!(!request(&mut queue, &key("n/user"), Priority::Manual, later));
    assert_eq!(queue.release(&key("n/a"), later), [key("n/drift")]);
}

#[test]
fn a_label_limit_counts_stacks_with_the_same_value() {
    let (mut queue, now) = (queue_with_labels(4, 1, 0), Instant::now());
    let limits = queue.limits().clone();
    let usage = |account: &str| limits.usage(&[("account".to_owned(), account.to_owned())].into(), 0);
    let ask = |queue: &mut RunQueue, stack: &str, account: &str, priority| {
        request_with(queue, &key(stack), priority, usage(account), now)
    };
    assert!(ask(&mut queue, "a/1", "prod", Priority::Timer));
    assert!(!ask(&mut queue, "b/1", "prod", Priority::Manual));
    assert!(ask(&mut queue, "a/2", "dev", Priority::Timer), "another account");
    assert!(
        request(&mut queue, &key("a/3"), Priority::Timer, now),
        "no account"
    );
    assert_eq!(
        queue.summary(now).waiting,
        [((Priority::Manual, WaitReason::LabelSlots), 1)].into()
    );
    assert_eq!(queue.release(&key("a/2"), now), []);
    assert_eq!(queue.release(&key("a/1"), now), [key("b/1")]);
}

#[test]
fn the_slot_of_a_run_keeps_the_labels_that_its_stack_had() {
    let (mut queue, now) = (queue_with_labels(4, 1, 0), Instant::now());
    let limits = queue.limits().clone();
    let usage = |account: &str| limits.usage(&[("account".to_owned(), account.to_owned())].into(), 0);
    queue.occupy(&key("a/1"), usage("prod"));
    queue.occupy(&key("a/1"), usage("dev"));
    assert!(!request_with(
        &mut queue,
        &key("a/2"),
        Priority::Change,
        usage("prod"),
        now
    ));
    assert_eq!(queue.release(&key("a/1"), now), [key("a/2")]);
    assert_eq!(queue.totals, UsageTotals::new());
}

#[test]
fn a_free_slot_is_granted_to_the_stack_that_has_become_the_first() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    occupy(&mut queue, "n/a");
    assert!(!request(&mut queue, &key("n/drift"), Priority::Timer, now));
    let soon = now + Duration::from_mins(1);
    assert!(!request(&mut queue, &key("n/change"), Priority::Change, soon));
    assert_eq!(queue.release(&key("n/a"), soon), [key("n/change")]);
    // It has not taken its slot, and the other stack is now as urgent.
    let later = now + AGING_INTERVAL;
    assert_eq!(queue.release(&key("n/idle"), later), [key("n/drift")]);
}

#[test]
fn the_next_run_of_a_stack_keeps_its_slot_within_the_limits() {
    let (mut queue, now) = (queue_with_memory(9, 100), Instant::now());
    let ask = |queue: &mut RunQueue, stack: &str, bytes| {
        request_with(queue, &key(stack), Priority::Change, memory_of(bytes), now)
    };
    assert!(ask(&mut queue, "n/a", 10) && ask(&mut queue, "n/b", 30));
    assert!(ask(&mut queue, "n/a", 70), "the run before it has ended");
    assert!(!ask(&mut queue, "n/c", 1), "all of the memory is used");
    assert!(!ask(&mut queue, "n/a", 80), "it needs more than is free");
    assert!(ask(&mut queue, "n/c", 1), "the slot is free");
    assert_eq!(queue.release(&key("n/b"), now), [key("n/a")]);
    assert!(ask(&mut queue, "n/a", 80));
    for name in ["n/a", "n/c"] {
        queue.release(&key(name), now);
    }
    assert_eq!(queue.totals, UsageTotals::new());
}

#[test]
fn the_next_run_of_a_stack_counts_with_its_new_label() {
    let (mut queue, now) = (queue_with_labels(4, 1, 0), Instant::now());
    let limits = queue.limits().clone();
    let mut ask = |stack: &str, account: &str| {
        let usage = limits.usage(&[("account".to_owned(), account.to_owned())].into(), 0);
        request_with(&mut queue, &key(stack), Priority::Change, usage, now)
    };
    assert!(ask("a/1", "prod") && ask("a/2", "dev"));
    assert!(!ask("a/1", "dev"), "its label was changed between two runs");
    assert!(ask("a/3", "prod"), "the first stack no longer counts");
}

#[test]
fn a_stack_that_is_granted_a_slot_does_not_wait_for_its_own_run() {
    let (mut queue, now) = (queue(1, 1), Instant::now());
    occupy(&mut queue, "n/a");
    assert!(!request(&mut queue, &key("n/b"), Priority::Change, now));
    assert_eq!(queue.release(&key("n/a"), now), [key("n/b")]);
    assert_eq!(
        queue.summary(now).waiting,
        [((Priority::Change, WaitReason::Slots), 1)].into()
    );
}
