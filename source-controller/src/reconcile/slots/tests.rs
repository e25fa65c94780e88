//! Tests of the order and the limits of slots.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use futures::{FutureExt as _, StreamExt as _};
use sluice_runtime::random::{Generator, Random as _};

use super::*;

mod additional;
mod in_place;

fn lane(host: &str) -> Lane {
    Lane::Host {
        host: host.to_owned(),
        proxy: None,
    }
}

fn request(host: &str, is_urgent: bool) -> SlotRequest {
    SlotRequest {
        lane: lane(host),
        is_urgent,
    }
}

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn slot(entry: Acquisition) -> Option<Slot> {
    match entry {
        Acquisition::Slot(slot) => Some(slot),
        Acquisition::Queued { .. } => None,
    }
}

fn slots(per_host: usize, reconciliations: usize) -> Slots {
    Slots::new(SlotLimits {
        per_host,
        reconciliations,
        ..SlotLimits::of(1, 1)
    })
}

/// The result of a simulation.
struct Outcome {
    /// Number of reconciliations of each object.
    reconciliations: BTreeMap<ObjectKey, u32>,
    /// Number of requests for a slot, granted or not.
    blocking_pool: u32,
}

/// Simulates objects of one host: each is due again `interval` after its reconciliation, which takes `duration`. Times in
/// ms.
fn simulate(slots: &Slots, objects: &[ObjectKey], duration: u64, interval: u64, until: u64) -> Outcome {
    let mut calls = slots.granted().boxed();
    let mut slot_in_use: BTreeMap<ObjectKey, Slot> = BTreeMap::new();
    let (mut reconciliations, mut blocking_pool) = (BTreeMap::new(), 0);
    let mut events: BinaryHeap<Reverse<(u64, ObjectKey)>> = objects
        .iter()
        .map(|object| Reverse((0, object.clone())))
        .collect();
    while let Some(Reverse((now, object))) = events.pop().filter(|event| event.0.0 <= until) {
        if slot_in_use.remove(&object).is_some() {
            *reconciliations.entry(object.clone()).or_default() += 1;
            events.push(Reverse((now + interval, object)));
        } else {
            blocking_pool += 1;
            if let Some(slot) = slot(slots.acquire(&object, &request("h", false))) {
                slot_in_use.insert(object.clone(), slot);
                events.push(Reverse((now + duration, object)));
            }
        }
        while let Some(Some(granted)) = calls.next().now_or_never() {
            events.push(Reverse((now, granted)));
        }
        assert!(slot_in_use.len() <= 4, "{}", slot_in_use.len());
    }
    Outcome {
        reconciliations,
        blocking_pool,
    }
}

#[tokio::test]
async fn two_thousand_objects_of_one_host_progress_at_the_rate_of_its_slots() {
    let objects: Vec<_> = (0..2000).map(|n| key("fleet", &format!("{n:04}"))).collect();
    // Four slots and 150 ms give 26.7 reconciliations per second: a round takes 75 s, more than the interval of 60 s.
    let Outcome {
        reconciliations,
        blocking_pool,
    } = simulate(&slots(4, 16), &objects, 150, 60_000, 600_000);
    let done: u32 = reconciliations.values().sum();
    assert!(
        (15_900..=16_000).contains(&done),
        "{done} reconciliations in 600 s"
    );
    let (least, most) = (
        reconciliations.values().min().unwrap(),
        reconciliations.values().max().unwrap(),
    );
    assert_eq!(reconciliations.len(), objects.len());
    assert!(most - least <= 1, "between {least} and {most} reconciliations");
    // Each reconciliation needs two requests: when it is due and when its slot is granted. Nothing polls.
    assert!(
        blocking_pool <= 2 * done + 2000,
        "{blocking_pool} requests for {done} reconciliations"
    );
}

#[tokio::test]
async fn hanging_reconciliations_delay_no_other_namespace() {
    let slots = slots(4, 16);
    let hanging: Vec<_> = (0..8)
        .filter_map(|n| slot(slots.acquire(&key("bad", &n.to_string()), &request("h", false))))
        .collect();
    assert_eq!(hanging.len(), 4, "the namespace itself is limited");
    for namespace in ["good", "better"] {
        for name in ["a", "b", "c"] {
            let entered = slot(slots.acquire(&key(namespace, name), &request("h", false)));
            assert!(entered.is_some(), "{namespace}/{name} runs beyond the limit");
        }
    }
    // One slot for each namespace, up to twice the limit.
    let beyond = |n: u32| slot(slots.acquire(&key(&format!("n{n}"), "a"), &request("h", false)));
    let more: Vec<_> = (0..6).filter_map(beyond).collect();
    assert_eq!(more.len(), 4);
}

#[tokio::test]
async fn a_host_that_hangs_on_one_route_is_available_on_another() {
    let slots = slots(2, 16);
    let by_proxy = SlotRequest {
        lane: Lane::Host {
            host: "h".into(),
            proxy: Some(key("team", "proxy")),
        },
        is_urgent: false,
    };
    let hanging: Vec<_> = (0..4)
        .filter_map(|n| slot(slots.acquire(&key("team", &n.to_string()), &by_proxy)))
        .collect();
    assert_eq!(hanging.len(), 2);
    assert!(slot(slots.acquire(&key("team", "straight"), &request("h", false))).is_some());
}

#[tokio::test]
async fn one_namespace_cannot_take_all_slots_with_many_hosts() {
    let slots = slots(4, 8);
    let hanging: Vec<_> = (0..40)
        .filter_map(|n| {
            let request = request(&format!("h{}", n % 10), false);
            slot(slots.acquire(&key("bad", &n.to_string()), &request))
        })
        .collect();
    assert_eq!(hanging.len(), 8);
    assert!(slot(slots.acquire(&key("good", "a"), &request("h0", false))).is_some());
    let local = SlotRequest {
        lane: Lane::Local,
        is_urgent: false,
    };
    assert!(slot(slots.acquire(&key("bad", "deleted"), &local)).is_some());
}

/// Returns names in the order of their grants; each slot is released at once.
fn order(slots: &Slots, slot_in_use: Slot, requests: &BTreeMap<ObjectKey, SlotRequest>) -> Vec<String> {
    let mut calls = slots.granted().boxed();
    drop(slot_in_use);
    let mut order = Vec::new();
    while let Some(Some(granted)) = calls.next().now_or_never() {
        order.push(granted.to_string());
        let entered = slot(slots.acquire(&granted, &requests[&granted]));
        assert!(entered.is_some(), "{granted} gets the slot granted to it");
    }
    order
}

#[tokio::test]
async fn urgent_requests_come_first_and_namespaces_take_turns() {
    let slots = slots(1, 16);
    let slot_in_use = slot(slots.acquire(&key("x", "x"), &request("h", false))).unwrap();
    let other = slot(slots.acquire(&key("y", "y"), &request("h", false))).unwrap();
    let mut requests = BTreeMap::new();
    for (namespace, name, is_urgent) in [
        ("x", "1", false),
        ("x", "2", false),
        ("y", "1", false),
        ("y", "2", true),
        ("x", "3", false),
    ] {
        let (key, request) = (key(namespace, name), request("h", is_urgent));
        assert!(slot(slots.acquire(&key, &request)).is_none());
        requests.insert(key, request);
    }
    drop(other);
    assert_eq!(
        order(&slots, slot_in_use, &requests),
        ["y/2", "x/1", "y/1", "x/2", "x/3"]
    );
}

#[tokio::test]
async fn endless_urgent_requests_do_not_starve_others() {
    let slots = slots(1, 16);
    let slot_in_use = slot(slots.acquire(&key("x", "x"), &request("h", false))).unwrap();
    let mut requests = BTreeMap::new();
    for n in 0..8 {
        let (key, request) = (key("x", &n.to_string()), request("h", true));
        slots.acquire(&key, &request);
        requests.insert(key, request);
    }
    let (routine, request) = (key("x", "routine"), request("h", false));
    slots.acquire(&routine, &request);
    requests.insert(routine, request);
    let order = order(&slots, slot_in_use, &requests);
    assert_eq!(
        order.iter().position(|name| name == "x/routine"),
        Some(3),
        "{order:?}"
    );
}

#[tokio::test]
async fn a_queued_object_becomes_urgent_by_a_request() {
    let slots = slots(1, 16);
    let slot_in_use = slot(slots.acquire(&key("x", "x"), &request("h", false))).unwrap();
    let mut requests = BTreeMap::new();
    for name in ["1", "2"] {
        slots.acquire(&key("x", name), &request("h", false));
        requests.insert(key("x", name), request("h", false));
    }
    slots.acquire(&key("x", "2"), &request("h", true));
    requests.insert(key("x", "2"), request("h", true));
    assert_eq!(order(&slots, slot_in_use, &requests), ["x/2", "x/1"]);
}

#[tokio::test]
async fn no_slot_leaks_with_a_deleted_object_a_cancelled_reconciliation_or_a_changed_host() {
    let slots = slots(1, 16);
    let mut calls = slots.granted().boxed();
    let slot_in_use = slot(slots.acquire(&key("x", "1"), &request("h", false))).unwrap();
    for name in ["2", "3", "4"] {
        assert!(slot(slots.acquire(&key("x", name), &request("h", false))).is_none());
    }
    let additional = slots.acquire_additional("x", lane("h")).await;
    let waits = slots.acquire_additional("x", lane("h"));
    assert!(waits.now_or_never().is_none(), "it waits, and is cancelled");
    drop(slot_in_use);
    assert_eq!(calls.next().await, Some(key("x", "2")));
    slots.forget(&key("x", "2"));
    assert_eq!(calls.next().await, Some(key("x", "3")));
    // It is at another host now: the slot goes to the next object.
    assert!(slot(slots.acquire(&key("x", "3"), &request("other", false))).is_some());
    assert_eq!(calls.next().await, Some(key("x", "4")));
    let mut slot = slot(slots.acquire(&key("x", "4"), &request("h", false))).unwrap();
    assert_eq!(
        slots.load(&lane("h")),
        (2, 1),
        "the cancelled request is still queued"
    );
    // Packing does not need the host.
    slot.release();
    drop(additional);
    assert_eq!(slots.load(&lane("h")), (0, 0));
    assert!(slots.acquire_additional("x", lane("h")).await.is_some());
}

/// Returns the tickets that are granted now.
fn grants(queue: &mut SlotQueue) -> Vec<Ticket> {
    std::iter::from_fn(|| queue.grant_next()).collect()
}

/// Ends what was granted to the ticket.
fn release(queue: &mut SlotQueue, ticket: &Ticket) {
    queue.release(&ticket.namespace, &ticket.lane, ticket.starts_at_host());
    if ticket.starts_at_host() {
        queue.end_reconciliation(&ticket.namespace);
    }
}

#[test]
fn a_slot_is_granted_at_once_as_it_is_through_the_queue() {
    let limits = SlotLimits {
        per_host: 2,
        reconciliations: 3,
        ..SlotLimits::of(1, 1)
    };
    let (mut direct, mut queued) = (SlotQueue::new(limits), SlotQueue::new(limits));
    let lanes = [lane("h"), lane("i"), Lane::Local];
    let random = Generator::seeded(5);
    let below = |limit: usize| usize::try_from(random.bits() >> 32).unwrap() % limit;
    let mut running = Vec::<Ticket>::new();
    let (mut at_once, mut later) = (0, 0);
    for number in 0..5000 {
        // The queue grows and becomes empty in turns.
        let ends_of_nine = if number % 200 < 100 { 3 } else { 7 };
        if below(9) < ends_of_nine && !running.is_empty() {
            let ended = running.swap_remove(below(running.len()));
            for queue in [&mut direct, &mut queued] {
                release(queue, &ended);
            }
        } else {
            // Only hosts grant additional slots.
            let starts_reconciliation = below(4) > 0;
            let ticket = Ticket {
                number,
                namespace: format!("n{}", below(3)),
                lane: lanes[below(if starts_reconciliation { 3 } else { 2 })].clone(),
                is_urgent: starts_reconciliation && below(3) == 0,
                starts_reconciliation,
            };
            let request = SlotRequest {
                lane: ticket.lane.clone(),
                is_urgent: ticket.is_urgent,
            };
            queued.push(ticket.clone());
            if starts_reconciliation && direct.grant_now(&ticket.namespace, &request) {
                at_once += 1;
                assert_eq!(grants(&mut queued), std::slice::from_ref(&ticket));
                running.push(ticket);
            } else {
                later += 1;
                direct.push(ticket);
            }
        }
        let granted = grants(&mut direct);
        assert_eq!(grants(&mut queued), granted);
        running.extend(granted);
    }
    assert!(at_once > 100 && later > 100, "{at_once} at once, {later} later");
}
