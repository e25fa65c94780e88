//! Tests of what waiting stacks report.

use super::*;

/// Requests a slot for a run that only uses a slot; returns what to report.
fn report(queue: &mut RunQueue, stack: &ObjectKey, now: Instant) -> String {
    match queue.request(stack, Priority::Change, RunUsage::default(), now).0 {
        SlotState::Occupied => "a slot".to_owned(),
        SlotState::Waiting(wait) => wait.to_string(),
    }
}

#[test]
fn a_waiting_stack_knows_its_position_and_its_limit() {
    let (mut queue, now) = (queue(1, 0), Instant::now());
    occupy(&mut queue, "n/holder");
    let slots = "all run slots are occupied (--concurrent=1)";
    for (name, position) in [
        ("n/a", "position 1"),
        ("n/b", "position 2"),
        ("n/c", "position 3 to 5"),
    ] {
        assert_eq!(
            report(&mut queue, &key(name), now),
            format!("{position} in the queue; {slots}")
        );
    }
    // A user comes first. The others report that later, and not all at once.
    let soon = now + Duration::from_secs(10);
    assert!(!request(&mut queue, &key("n/user"), Priority::Manual, soon));
    assert_eq!(queue.outdated_reports(soon), []);
    assert_eq!(
        report(&mut queue, &key("n/a"), soon),
        format!("position 1 in the queue; {slots}")
    );
    let later = now + Duration::from_secs(30);
    assert_eq!(queue.outdated_reports(later), [key("n/a"), key("n/b")]);
    assert_eq!(
        report(&mut queue, &key("n/a"), later),
        format!("position 2 in the queue; {slots}")
    );
    assert_eq!(
        queue.outdated_reports(later),
        [key("n/b")],
        "until it is reported"
    );
}

/// Returns a queue with one slot, which is occupied, and this number of waiting stacks that have reported their waits.
fn long_queue(waiting: usize, now: Instant) -> RunQueue {
    let mut queue = queue(1, 0);
    occupy(&mut queue, "n/holder");
    for number in 0..waiting {
        assert_ne!(report(&mut queue, &key(&format!("n/{number:04}")), now), "a slot");
    }
    queue
}

#[test]
fn one_start_changes_few_reports_of_a_thousand() {
    let now = Instant::now();
    let mut queue = long_queue(1000, now);
    let later = now + Duration::from_hours(1);
    assert_eq!(queue.outdated_reports(later), [], "nothing has changed");
    let granted = queue.release(&key("n/holder"), later);
    assert_eq!(granted, [key("n/0000")]);
    assert!(request(&mut queue, &granted[0], Priority::Change, later));
    // Those that are now the last of a range: 1, 2, 5, 10, 20, 50, 100, 200, 500.
    let expected = [
        "0001", "0002", "0005", "0010", "0020", "0050", "0100", "0200", "0500",
    ];
    assert_eq!(
        queue.outdated_reports(later),
        expected.map(|name| key(&format!("n/{name}")))
    );
}

#[test]
fn few_reports_are_replaced_at_once() {
    let now = Instant::now();
    let mut queue = long_queue(100, now);
    // Users come first: the range of each stack changes.
    for number in 0..100 {
        let stack = key(&format!("u/{number}"));
        assert!(!request(&mut queue, &stack, Priority::Manual, now));
    }
    let later = now + Duration::from_secs(30);
    let outdated = queue.outdated_reports(later);
    let first: Vec<_> = (0..MAX_REPORTS)
        .map(|number| key(&format!("n/{number:04}")))
        .collect();
    assert_eq!(outdated, first);
}
