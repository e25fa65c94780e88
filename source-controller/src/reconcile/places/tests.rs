//! Who gets a place, and when.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use futures::{FutureExt as _, StreamExt as _};

use super::*;

fn lane(host: &str) -> Lane {
    Lane::Host {
        host: host.to_owned(),
        proxy: None,
    }
}

fn request(host: &str, is_urgent: bool) -> Request {
    Request {
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

fn place(entry: Entry) -> Option<Place> {
    match entry {
        Entry::Place(place) => Some(place),
        Entry::Wait { .. } => None,
    }
}

fn places(per_host: usize, passes: usize) -> Places {
    Places::new(Bounds {
        per_host,
        passes,
        ..Bounds::of(1, 1)
    })
}

/// What became of a fleet after a time.
struct Outcome {
    /// Passes of each object.
    passes: BTreeMap<ObjectKey, u32>,
    /// Times that an object was looked at, with a place or without.
    looks: u32,
}

/// A fleet of one host in simulated time: each object comes again `interval` after its pass, which takes `pass`. In ms.
fn simulate(places: &Places, objects: &[ObjectKey], pass: u64, interval: u64, until: u64) -> Outcome {
    let mut calls = places.granted().boxed();
    let mut held: BTreeMap<ObjectKey, Place> = BTreeMap::new();
    let (mut passes, mut looks) = (BTreeMap::new(), 0);
    let mut events: BinaryHeap<Reverse<(u64, ObjectKey)>> = objects
        .iter()
        .map(|object| Reverse((0, object.clone())))
        .collect();
    while let Some(Reverse((now, object))) = events.pop().filter(|event| event.0.0 <= until) {
        if held.remove(&object).is_some() {
            *passes.entry(object.clone()).or_default() += 1;
            events.push(Reverse((now + interval, object)));
        } else {
            looks += 1;
            if let Some(place) = place(places.enter(&object, &request("h", false))) {
                held.insert(object.clone(), place);
                events.push(Reverse((now + pass, object)));
            }
        }
        while let Some(Some(called)) = calls.next().now_or_never() {
            events.push(Reverse((now, called)));
        }
        assert!(held.len() <= 4, "{}", held.len());
    }
    Outcome { passes, looks }
}

#[tokio::test]
async fn two_thousand_objects_of_one_host_move_at_the_rate_of_its_places() {
    let objects: Vec<_> = (0..2000).map(|n| key("fleet", &format!("{n:04}"))).collect();
    // Four places and 150 ms make 26.7 passes a second: a round takes 75 s, more than the interval of 60 s.
    let Outcome { passes, looks } = simulate(&places(4, 16), &objects, 150, 60_000, 600_000);
    let done: u32 = passes.values().sum();
    assert!((15_900..=16_000).contains(&done), "{done} passes in 600 s");
    let (least, most) = (passes.values().min().unwrap(), passes.values().max().unwrap());
    assert_eq!(passes.len(), objects.len());
    assert!(most - least <= 1, "between {least} and {most} passes");
    // Each pass is looked at when it is due and when its place is free; nothing polls.
    assert!(looks <= 2 * done + 2000, "{looks} looks for {done} passes");
}

#[tokio::test]
async fn passes_that_hang_delay_no_other_namespace() {
    let places = places(4, 16);
    let hung: Vec<_> = (0..8)
        .filter_map(|n| place(places.enter(&key("bad", &n.to_string()), &request("h", false))))
        .collect();
    assert_eq!(hung.len(), 4, "the namespace itself waits");
    for namespace in ["good", "better"] {
        for name in ["a", "b", "c"] {
            let entered = place(places.enter(&key(namespace, name), &request("h", false)));
            assert!(entered.is_some(), "{namespace}/{name} runs beyond the limit");
        }
    }
    // One of each namespace, and no more than twice the limit.
    let beyond = |n: u32| place(places.enter(&key(&format!("n{n}"), "a"), &request("h", false)));
    let more: Vec<_> = (0..6).filter_map(beyond).collect();
    assert_eq!(more.len(), 4);
}

#[tokio::test]
async fn a_host_that_hangs_on_one_way_is_free_on_another() {
    let places = places(2, 16);
    let by_proxy = Request {
        lane: Lane::Host {
            host: "h".into(),
            proxy: Some(key("team", "proxy")),
        },
        is_urgent: false,
    };
    let hung: Vec<_> = (0..4)
        .filter_map(|n| place(places.enter(&key("team", &n.to_string()), &by_proxy)))
        .collect();
    assert_eq!(hung.len(), 2);
    assert!(place(places.enter(&key("team", "straight"), &request("h", false))).is_some());
}

#[tokio::test]
async fn one_namespace_cannot_take_all_passes_with_many_hosts() {
    let places = places(4, 8);
    let hung: Vec<_> = (0..40)
        .filter_map(|n| {
            let request = request(&format!("h{}", n % 10), false);
            place(places.enter(&key("bad", &n.to_string()), &request))
        })
        .collect();
    assert_eq!(hung.len(), 8);
    assert!(place(places.enter(&key("good", "a"), &request("h0", false))).is_some());
    let local = Request {
        lane: Lane::Local,
        is_urgent: false,
    };
    assert!(place(places.enter(&key("bad", "deleted"), &local)).is_some());
}

/// Names in the order in which they are called, each giving its place back at once.
fn order(places: &Places, held: Place, requests: &BTreeMap<ObjectKey, Request>) -> Vec<String> {
    let mut calls = places.granted().boxed();
    drop(held);
    let mut order = Vec::new();
    while let Some(Some(called)) = calls.next().now_or_never() {
        order.push(called.to_string());
        let entered = place(places.enter(&called, &requests[&called]));
        assert!(entered.is_some(), "{called} has the place that it was called for");
    }
    order
}

#[tokio::test]
async fn requests_come_first_and_namespaces_take_turns() {
    let places = places(1, 16);
    let held = place(places.enter(&key("x", "x"), &request("h", false))).unwrap();
    let other = place(places.enter(&key("y", "y"), &request("h", false))).unwrap();
    let mut requests = BTreeMap::new();
    for (namespace, name, is_urgent) in [
        ("x", "1", false),
        ("x", "2", false),
        ("y", "1", false),
        ("y", "2", true),
        ("x", "3", false),
    ] {
        let (key, request) = (key(namespace, name), request("h", is_urgent));
        assert!(place(places.enter(&key, &request)).is_none());
        requests.insert(key, request);
    }
    drop(other);
    assert_eq!(
        order(&places, held, &requests),
        ["y/2", "x/1", "y/1", "x/2", "x/3"]
    );
}

#[tokio::test]
async fn requests_without_end_let_others_through() {
    let places = places(1, 16);
    let held = place(places.enter(&key("x", "x"), &request("h", false))).unwrap();
    let mut requests = BTreeMap::new();
    for n in 0..8 {
        let (key, request) = (key("x", &n.to_string()), request("h", true));
        places.enter(&key, &request);
        requests.insert(key, request);
    }
    let (routine, asked) = (key("x", "routine"), request("h", false));
    places.enter(&routine, &asked);
    requests.insert(routine, asked);
    let order = order(&places, held, &requests);
    assert_eq!(
        order.iter().position(|name| name == "x/routine"),
        Some(3),
        "{order:?}"
    );
}

#[tokio::test]
async fn an_object_that_is_asked_for_while_it_waits_comes_first() {
    let places = places(1, 16);
    let held = place(places.enter(&key("x", "x"), &request("h", false))).unwrap();
    let mut requests = BTreeMap::new();
    for name in ["1", "2"] {
        places.enter(&key("x", name), &request("h", false));
        requests.insert(key("x", name), request("h", false));
    }
    places.enter(&key("x", "2"), &request("h", true));
    requests.insert(key("x", "2"), request("h", true));
    assert_eq!(order(&places, held, &requests), ["x/2", "x/1"]);
}

#[tokio::test]
async fn a_place_is_lost_neither_with_an_object_nor_with_a_pass_nor_by_a_change_of_host() {
    let places = places(1, 16);
    let mut calls = places.granted().boxed();
    let held = place(places.enter(&key("x", "1"), &request("h", false))).unwrap();
    for name in ["2", "3", "4"] {
        assert!(place(places.enter(&key("x", name), &request("h", false))).is_none());
    }
    let pass = places.beside("x", lane("h"));
    assert!(pass.now_or_never().is_none(), "it waits, and is given up");
    drop(held);
    assert_eq!(calls.next().await, Some(key("x", "2")));
    places.forget(&key("x", "2"));
    assert_eq!(calls.next().await, Some(key("x", "3")));
    // It is of another host now: the place is for the next one.
    assert!(place(places.enter(&key("x", "3"), &request("other", false))).is_some());
    assert_eq!(calls.next().await, Some(key("x", "4")));
    let mut place = place(places.enter(&key("x", "4"), &request("h", false))).unwrap();
    assert_eq!(
        places.load(&lane("h")),
        (1, 1),
        "the pass that was given up is not known yet"
    );
    // What was fetched is packed: the host is free.
    place.leave();
    assert_eq!(places.load(&lane("h")), (0, 0));
    assert!(places.beside("x", lane("h")).await.is_some());
}
