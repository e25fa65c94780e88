//! Tests of the limit of memory.

use super::*;

#[test]
fn runs_wait_until_their_memory_is_free() {
    let (mut queue, now) = (queue_with_memory(9, 100), Instant::now());
    let ask = |queue: &mut RunQueue, stack: &str, bytes| {
        request_with(queue, &key(stack), Priority::Change, memory_of(bytes), now)
    };
    assert!(ask(&mut queue, "n/a", 60));
    assert!(!ask(&mut queue, "n/b", 50));
    assert!(ask(&mut queue, "n/c", 40), "a smaller one may overtake");
    assert_eq!(
        queue.summary(now).waiting,
        [((Priority::Change, WaitReason::Memory), 1)].into()
    );
    assert_eq!(queue.release(&key("n/c"), now), []);
    assert_eq!(queue.release(&key("n/a"), now), [key("n/b")]);
}

#[test]
fn a_run_larger_than_the_limit_of_memory_runs_alone() {
    let (mut queue, now) = (queue_with_memory(9, 100), Instant::now());
    let ask = |queue: &mut RunQueue, stack: &str, bytes| {
        request_with(queue, &key(stack), Priority::Change, memory_of(bytes), now)
    };
    assert!(ask(&mut queue, "n/small", 1));
    assert!(!ask(&mut queue, "n/large", 500));
    assert_eq!(queue.release(&key("n/small"), now), [key("n/large")]);
    assert!(ask(&mut queue, "n/large", 500));
    assert!(!ask(&mut queue, "n/small", 1));
}

#[test]
fn memory_is_kept_free_for_a_run_that_waits_long() {
    let (mut queue, now) = (queue_with_memory(9, 100), Instant::now());
    let ask = |queue: &mut RunQueue, stack: &str, bytes, now| {
        request_with(queue, &key(stack), Priority::Timer, memory_of(bytes), now)
    };
    assert!(ask(&mut queue, "n/a", 60, now));
    assert!(!ask(&mut queue, "n/large", 90, now));
    let later = now + AGING_INTERVAL;
    assert!(!ask(&mut queue, "n/small", 10, later), "the large one is first");
    assert_eq!(
        queue.summary(later).waiting,
        [((Priority::Timer, WaitReason::Memory), 2)].into()
    );
    assert_eq!(
        queue.release(&key("n/a"), later),
        [key("n/large"), key("n/small")]
    );
}

#[test]
fn a_stack_that_keeps_its_slot_takes_no_memory_that_is_kept_free() {
    for (waited, larger, kept) in [
        (Duration::ZERO, 60, true),
        (AGING_INTERVAL, 60, false),
        (AGING_INTERVAL, 40, true),
        (AGING_INTERVAL, 30, true),
    ] {
        let (mut queue, now) = (queue_with_memory(9, 100), Instant::now());
        let ask = |queue: &mut RunQueue, stack: &str, bytes, now| {
            request_with(queue, &key(stack), Priority::Timer, memory_of(bytes), now)
        };
        assert!(ask(&mut queue, "n/a", 40, now) && ask(&mut queue, "n/b", 20, now));
        assert!(!ask(&mut queue, "n/large", 50, now));
        let later = now + waited;
        assert_eq!(
            ask(&mut queue, "n/a", larger, later),
            kept,
            "{larger} after {waited:?}"
        );
        let takes = ask(&mut queue, "n/large", 50, later);
        assert_eq!(takes, !kept || larger < 40, "{larger} after {waited:?}");
    }
}
