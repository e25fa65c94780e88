//! Tests of the queue of runs.

use proptest::prelude::*;

use super::*;

fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectKey {
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn queue(runs: u16, per_namespace: u16) -> RunQueue {
    RunQueue::new(Limits { runs, per_namespace })
}

fn request(queue: &mut RunQueue, stack: &ObjectKey, priority: Priority, now: Instant) -> bool {
    queue.request(stack, priority, now).0
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
        assert!(queue.request(&next, priority, now).0, "{next} was granted a slot");
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
    queue.occupy(&key("n/a"));
    queue.occupy(&key("n/b"));
    assert!(!request(&mut queue, &key("n/c"), Priority::Manual, now));
    assert_eq!(queue.release(&key("n/a"), now), []);
    assert_eq!(queue.release(&key("n/b"), now), [key("n/c")]);
}

#[test]
fn manual_runs_precede_changes_and_changes_precede_timers() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    queue.occupy(&key("n/holder"));
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
    queue.occupy(&key("big/0"));
    queue.occupy(&key("big/00"));
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
    queue.occupy(&key("n/a"));
    assert!(!request(&mut queue, &key("n/b"), Priority::Timer, now));
    assert_eq!(queue.release(&key("n/a"), now), [key("n/b")]);
    assert!(request(&mut queue, &key("n/c"), Priority::Manual, now));
    assert!(!request(&mut queue, &key("n/b"), Priority::Timer, now));
    assert_eq!(queue.release(&key("n/c"), now), [key("n/b")]);
}

#[test]
fn an_unused_grant_expires() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    queue.occupy(&key("n/a"));
    assert!(!request(&mut queue, &key("n/gone"), Priority::Change, now));
    assert!(!request(&mut queue, &key("n/b"), Priority::Change, now));
    assert_eq!(queue.release(&key("n/a"), now), [key("n/gone")]);
    assert_eq!(queue.expire_grants(now + GRANT_TIMEOUT), []);
    assert_eq!(queue.expire_grants(now + GRANT_TIMEOUT * 2), [key("n/b")]);
}

#[test]
fn the_slot_of_a_missing_stack_is_reclaimed() {
    let (mut queue, now) = (queue(2, 1), Instant::now());
    queue.occupy(&key("n/gone"));
    queue.occupy(&key("m/there"));
    assert!(!request(&mut queue, &key("n/next"), Priority::Change, now));
    let granted = queue.reclaim(|stack| stack.name != "gone", now);
    assert_eq!(granted, [key("n/next")]);
    assert!(request(&mut queue, &key("n/next"), Priority::Change, now));
    assert_eq!(queue.reclaim(|_| true, now), []);
}

#[test]
fn a_missing_stack_does_not_wait_and_is_granted_nothing() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    queue.occupy(&key("n/a"));
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
    queue.occupy(&key("n/a"));
    assert!(!request(&mut queue, &key("n/drift"), Priority::Timer, now));
    let later = now + AGING_INTERVAL * 2;
    assert!(!request(&mut queue, &key("n/person"), Priority::Manual, later));
    assert_eq!(queue.release(&key("n/a"), later), [key("n/drift")]);
}

proptest! {
    /// The limits hold after every sequence of steps, and each free slot that a stack may take is granted.
    #[test]
    fn limits_hold_and_no_slot_is_lost(
        steps in proptest::collection::vec((0_u8..4, 0_u8..3, 0_u8..4, 0_u8..3), 1..80), runs in 1_u16..4, most in 0_u16..3,
    ) {
        let (mut queue, mut now) = (queue(runs, most), Instant::now());
        for (what, namespace, name, priority) in steps {
            let stack = key(&format!("n{namespace}/{name}"));
            now += Duration::from_secs(1);
            match what {
                0 | 1 => { let priority = [Priority::Manual, Priority::Change, Priority::Timer][usize::from(priority)]; queue.request(&stack, priority, now); }
                2 => { queue.release(&stack, now); }
                _ => { queue.expire_grants(now); }
            }
            prop_assert!(queue.occupied.len() <= usize::from(runs));
            for (namespace, count) in &queue.of_namespace {
                prop_assert!(most == 0 || *count <= usize::from(most));
                prop_assert_eq!(*count, queue.occupied.iter().filter(|s| &s.namespace == namespace).count());
            }
            prop_assert!(queue.occupied.iter().all(|stack| !queue.waiting.contains_key(stack)));
            let next = queue.next(now);
            prop_assert!(next.iter().all(|stack| queue.waiting[stack].granted.is_some()), "a slot is free and not granted");
        }
    }
}
