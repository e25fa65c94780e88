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

/// Returns the usage of a run with this estimate, as the limits of the queue count it.
fn counted(queue: &RunQueue, bytes: u64) -> RunUsage {
    queue.limits().usage(&BTreeMap::new(), bytes)
}

fn ask(queue: &mut RunQueue, stack: &str, bytes: u64, now: Instant) -> bool {
    let usage = counted(queue, bytes);
    request_with(queue, &key(stack), Priority::Timer, usage, now)
}

#[test]
fn a_forged_estimate_leaves_half_of_the_memory_to_other_namespaces() {
    let (mut queue, now) = (queue_with_memory(9, 100), Instant::now());
    assert!(ask(&mut queue, "forger/a", u64::MAX, now));
    assert!(
        !ask(&mut queue, "forger/b", 1, now),
        "its own namespace pays for it"
    );
    assert!(ask(&mut queue, "team/a", 30, now) && ask(&mut queue, "team/b", 20, now));
    assert!(!ask(&mut queue, "team/c", 1, now), "the half is used");
    // The sums are right again once they have ended.
    for stack in ["forger/a", "team/a", "team/b"] {
        queue.release(&key(stack), now);
    }
    assert_eq!(queue.totals, UsageTotals::new());
}

#[test]
fn a_forged_estimate_keeps_at_most_half_of_the_memory_free() {
    let (mut queue, now) = (queue_with_memory(9, 100), Instant::now());
    assert!(ask(&mut queue, "forger/small", 1, now));
    assert!(!ask(&mut queue, "forger/large", u64::MAX, now));
    let later = now + AGING_INTERVAL;
    assert!(
        !ask(&mut queue, "forger/other", 1, later),
        "it comes after the large one"
    );
    assert!(ask(&mut queue, "team/a", 30, later) && ask(&mut queue, "team/b", 20, later));
    assert!(
        !ask(&mut queue, "ops/c", 1, later),
        "half is kept free for the large one"
    );
    // It starts beside the other namespace as the only run of its own.
    assert_eq!(queue.release(&key("forger/small"), later), [key("forger/large")]);
    assert!(ask(&mut queue, "forger/large", u64::MAX, later));
    assert_eq!(queue.release(&key("team/a"), later), [key("ops/c")]);
}

#[test]
fn a_run_that_needs_more_than_others_leave_starts_after_a_long_wait() {
    let (mut queue, now) = (queue_with_memory(9, 100), Instant::now());
    assert!(ask(&mut queue, "busy/a", 40, now));
    assert!(!ask(&mut queue, "large/a", 80, now));
    assert!(ask(&mut queue, "busy/b", 40, now), "it may be overtaken");
    let later = now + AGING_INTERVAL;
    assert_eq!(queue.release(&key("busy/b"), later), [key("large/a")]);
}
