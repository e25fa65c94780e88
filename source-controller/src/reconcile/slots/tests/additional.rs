//! Additional slots of running reconciliations, and objects that wait for their start.

use std::collections::VecDeque;

use futures::future::BoxFuture;

use super::*;

/// Requests an additional slot at the host "h" that is not free.
fn wait<'a>(slots: &'a Slots, namespace: &'a str) -> BoxFuture<'a, Option<Slot>> {
    let mut wait = slots.acquire_additional(namespace, lane("h")).boxed();
    assert!(wait.as_mut().now_or_never().is_none(), "{namespace} waits");
    wait
}

/// Acquires an additional slot at the host that is granted at once.
fn additional(slots: &Slots, namespace: &str, host: &str) -> Slot {
    let granted = slots.acquire_additional(namespace, lane(host)).now_or_never();
    granted.flatten().expect("a slot at once")
}

fn start(slots: &Slots, name: &str) -> Option<Slot> {
    slot(slots.acquire(&key("x", name), &request("h", false)))
}

fn ticket(number: u64, namespace: &str, host: &str, starts_reconciliation: bool) -> Ticket {
    Ticket {
        number,
        namespace: namespace.to_owned(),
        lane: lane(host),
        is_urgent: false,
        starts_reconciliation,
    }
}

#[tokio::test]
async fn a_running_reconciliation_comes_before_objects_that_start() {
    let slots = slots(3, 16);
    let mut calls = slots.granted().boxed();
    let _running = start(&slots, "running").unwrap();
    let [first, second] = [0, 1].map(|_| additional(&slots, "x", "h"));
    let urgent = key("x", "urgent");
    assert!(slot(slots.acquire(&urgent, &request("h", true))).is_none());
    let waits = wait(&slots, "x");
    drop(first);
    let third = waits.now_or_never().flatten();
    assert!(third.is_some());
    assert_eq!(calls.next().now_or_never(), None, "the lane is full again");
    drop(second);
    assert_eq!(calls.next().now_or_never(), Some(Some(urgent)));
}

/// Such a start waits for the end of the running reconciliation, which would wait for the start.
#[tokio::test]
async fn a_running_reconciliation_does_not_wait_behind_a_start_without_capacity() {
    let slots = slots(4, 1);
    let _running = start(&slots, "running").unwrap();
    assert!(start(&slots, "new").is_none());
    drop(additional(&slots, "x", "h"));
}

#[tokio::test]
async fn neither_starts_nor_additional_requests_without_an_end_starve_the_others() {
    let slots = slots(2, 16);
    let mut calls = slots.granted().boxed();
    let mut in_use = VecDeque::from([0, 1].map(|_| additional(&slots, "x", "h")));
    let mut running = start(&slots, "0").expect("beyond the limit");
    let mut waits: VecDeque<_> = (0..5).map(|_| wait(&slots, "x")).collect();
    for name in ["1", "2", "3", "4", "5"] {
        assert!(start(&slots, name).is_none());
    }
    // Additional requests wait all the time.
    for name in ["1", "2", "3"] {
        drop(running);
        assert_eq!(calls.next().now_or_never(), Some(Some(key("x", name))));
        running = start(&slots, name).expect("its turn");
    }
    assert_eq!(slots.load(&lane("h")), (3, 7));
    // Starts wait all the time.
    drop(in_use.pop_front());
    for _ in 0..5 {
        drop(in_use.pop_front());
        let granted = waits.pop_front().and_then(|wait| wait.now_or_never().flatten());
        in_use.push_back(granted.expect("its turn"));
    }
    assert_eq!(calls.next().now_or_never(), None);
    drop(running);
    assert_eq!(calls.next().now_or_never(), Some(Some(key("x", "4"))));
}

/// Sources of each host with submodules at the other one.
#[tokio::test]
async fn reconciliations_that_fill_two_hosts_and_need_the_other_one_go_on() {
    let slots = slots(2, 16);
    let mut running = Vec::new();
    for (name, host) in [("1", "h"), ("2", "h"), ("3", "i"), ("4", "i")] {
        let started = slot(slots.acquire(&key("x", name), &request(host, false)));
        running.push(started.expect("a free slot"));
    }
    for host in ["h", "i"] {
        let first = additional(&slots, "x", host);
        let mut second = slots.acquire_additional("x", lane(host)).boxed();
        assert!(
            second.as_mut().now_or_never().is_none(),
            "one slot beyond the limit"
        );
        drop(first);
        assert!(matches!(second.now_or_never(), Some(Some(_))));
    }
    drop(running);
}

#[test]
fn namespaces_take_turns_among_requests_of_each_kind() {
    let mut queue = SlotQueue::new(SlotLimits {
        per_host: 1,
        ..SlotLimits::of(16, 1)
    });
    for (number, namespace) in (0..).zip(["x", "x", "y"]) {
        queue.push(ticket(number, namespace, "h", true));
        queue.push(ticket(number + 3, namespace, "h", false));
    }
    let mut order = Vec::new();
    while let Some(granted) = queue.grant_next() {
        release(&mut queue, &granted);
        order.push(granted.number);
    }
    assert_eq!(order, [3, 5, 4, 0, 2, 1]);
}

#[test]
fn additional_grants_do_not_prolong_a_row_of_urgent_starts() {
    let mut queue = SlotQueue::new(SlotLimits {
        per_host: 1,
        ..SlotLimits::of(16, 1)
    });
    for number in 0..8 {
        queue.push(Ticket {
            is_urgent: true,
            ..ticket(number, "x", "h", true)
        });
    }
    queue.push(ticket(8, "x", "h", true));
    let mut order = Vec::new();
    while let Some(started) = queue.grant_next() {
        order.push(started.number);
        queue.push(ticket(9, "x", "i", false));
        let granted = grants(&mut queue);
        assert_eq!(granted, [ticket(9, "x", "i", false)]);
        for ended in granted.iter().chain([&started]) {
            release(&mut queue, ended);
        }
    }
    assert_eq!(order, [0, 1, 2, 8, 3, 4, 5, 6, 7]);
}
