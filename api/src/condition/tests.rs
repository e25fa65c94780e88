//! Tests of the rules of conditions.

use SourceCondition as S;
use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn update(kind: S, status: ConditionStatus, reason: &str) -> ConditionUpdate<S> {
    ConditionUpdate::new(kind, status, reason, format!("about {reason}"))
}

fn types(conditions: &[Condition]) -> Vec<&str> {
    conditions.iter().map(|c| c.type_.as_str()).collect()
}

#[test]
fn the_transition_time_changes_with_status_reason_or_message_only() {
    let first = merge_conditions(
        &[],
        &[ConditionUpdate::new(
            S::Ready,
            ConditionStatus::True,
            "Succeeded",
            "a",
        )],
        Some(1),
        at(10),
    );
    let since = |status, reason: &str, message: &str, generation| {
        let next = merge_conditions(
            &first,
            &[ConditionUpdate::new(S::Ready, status, reason, message)],
            Some(generation),
            at(20),
        );
        assert_eq!(next[0].observed_generation, Some(generation));
        next[0].last_transition_time.0.as_second()
    };
    assert_eq!(since(ConditionStatus::True, "Succeeded", "a", 1), 10);
    assert_eq!(since(ConditionStatus::True, "Succeeded", "a", 2), 10);
    assert_eq!(since(ConditionStatus::False, "Succeeded", "a", 1), 20);
    assert_eq!(since(ConditionStatus::True, "Progressing", "a", 1), 20);
    assert_eq!(since(ConditionStatus::True, "Succeeded", "b", 1), 20);
}

#[test]
fn owned_types_disappear_and_foreign_ones_stay() {
    let mut existing = merge_conditions(
        &[],
        &[update(S::FetchFailed, ConditionStatus::True, "x")],
        Some(1),
        at(1),
    );
    existing.push(Condition {
        type_: "example.com/Mine".into(),
        ..existing[0].clone()
    });
    let after = merge_conditions(
        &existing,
        &[update(S::Ready, ConditionStatus::True, "Succeeded")],
        Some(2),
        at(2),
    );
    assert_eq!(types(&after), ["Ready", "example.com/Mine"]);
    assert_eq!(after[1], existing[1]);
}

#[test]
fn an_abnormal_condition_is_shown_only_while_true() {
    let updates = [
        update(S::Stalled, ConditionStatus::False, "x"),
        update(S::FetchFailed, ConditionStatus::Unknown, "x"),
        update(S::SourceVerified, ConditionStatus::False, "x"),
    ];
    assert_eq!(
        types(&merge_conditions(&[], &updates, None, at(1))),
        ["SourceVerified"]
    );
}

#[test]
fn the_order_is_stalled_reconciling_ready_then_newest_then_name() {
    let existing = merge_conditions(
        &[],
        &[update(S::SourceVerified, ConditionStatus::True, "x")],
        Some(1),
        at(1),
    );
    let updates = [
        update(S::FetchFailed, ConditionStatus::True, "x"),
        update(S::ArtifactInStorage, ConditionStatus::True, "x"),
        ConditionUpdate::retained(S::SourceVerified, &existing).unwrap(),
        update(S::Ready, ConditionStatus::False, "x"),
        update(S::Reconciling, ConditionStatus::True, "x"),
        update(S::Stalled, ConditionStatus::True, "x"),
    ];
    let all = merge_conditions(&existing, &updates, Some(2), at(2));
    let wanted = [
        "Stalled",
        "Reconciling",
        "Ready",
        "ArtifactInStorage",
        "FetchFailed",
        "SourceVerified",
    ];
    assert_eq!(types(&all), wanted);
    assert_eq!(
        all[5], existing[0],
        "a condition that is carried over is left as it was"
    );
}

#[test]
fn the_last_of_two_updates_wins() {
    let updates = [
        update(S::Ready, ConditionStatus::Unknown, "Progressing"),
        update(S::Ready, ConditionStatus::True, "Succeeded"),
    ];
    let all = merge_conditions(&[], &updates, Some(1), at(1));
    assert_eq!((all.len(), all[0].reason.as_str()), (1, "Succeeded"));
}

#[test]
fn long_messages_are_truncated() {
    assert_eq!(MessageLimit::Bytes(10).truncate("1234567890"), "1234567890");
    assert_eq!(MessageLimit::Bytes(10).truncate("12345678901"), "1234567...");
    assert_eq!(MessageLimit::Bytes(10).truncate("123456\u{e4}8901"), "123456...");
    assert_eq!(MessageLimit::Characters(3).truncate("äöü"), "äöü");
    assert_eq!(MessageLimit::Characters(3).truncate("äöüß"), "äöü...");
    let long = "x".repeat(40_000);
    let source = merge_conditions(
        &[],
        &[ConditionUpdate::new(
            S::Ready,
            ConditionStatus::False,
            "x",
            long.clone(),
        )],
        None,
        at(1),
    );
    assert_eq!(source[0].message.len(), 32768);
    let again = merge_conditions(
        &source,
        &[ConditionUpdate::new(
            S::Ready,
            ConditionStatus::False,
            "x",
            long.clone(),
        )],
        None,
        at(2),
    );
    assert_eq!(source, again, "a cut message counts as unchanged");
    let stack = ConditionUpdate::new(TerraformCondition::Ready, ConditionStatus::False, "x", long);
    assert_eq!(
        merge_conditions(&[], &[stack], None, at(1))[0].message.len(),
        20_003
    );
}

/// Updates, and the expected status and reason of Ready.
type Row<'a> = (
    &'a [(S, ConditionStatus, &'a str)],
    Option<(ConditionStatus, &'a str)>,
);

#[test]
fn ready_is_derived_by_priority() {
    use ConditionStatus::{False, True, Unknown};
    let retry = (S::Reconciling, True, "ProgressingWithRetry");
    let stored = (S::ArtifactInStorage, True, "Succeeded");
    let fetch = (S::FetchFailed, True, "GitOperationFailed");
    let storage = (S::StorageOperationFailed, True, "InvalidPath");
    let stalled = (S::Stalled, True, "URLInvalid");
    let bad = (S::SourceVerified, False, "InvalidCommitSignature");
    let good = (S::SourceVerified, True, "Verified");
    let no_failure = (S::FetchFailed, False, "None");
    let unknown = (S::ArtifactInStorage, Unknown, "NotSeen");
    let table: &[Row] = &[
        (&[], None),
        (&[(S::Ready, True, "Before")], None),
        (&[stored], Some((True, "Succeeded"))),
        (&[good, stored], Some((True, "Succeeded"))),
        (&[retry, stored, fetch], Some((False, "GitOperationFailed"))),
        (&[stalled, stored], Some((False, "URLInvalid"))),
        (&[fetch, storage], Some((False, "InvalidPath"))),
        (&[retry, stored], Some((False, "ProgressingWithRetry"))),
        (&[retry, bad], Some((False, "InvalidCommitSignature"))),
        (&[fetch, bad], Some((False, "InvalidCommitSignature"))),
        (&[no_failure], Some((True, "None"))),
        (&[unknown], Some((Unknown, "NotSeen"))),
        (&[unknown, no_failure], Some((True, "None"))),
    ];
    for (given, wanted) in table {
        let updates: Vec<_> = given
            .iter()
            .map(|(kind, status, reason)| update(*kind, *status, reason))
            .collect();
        let ready = ready_condition(&updates);
        assert_eq!(
            ready.as_ref().map(|r| (r.status, r.reason.as_str())),
            *wanted,
            "{given:?}"
        );
        assert!(ready.is_none_or(|r| r.kind == S::Ready && r.message == format!("about {}", r.reason)));
    }
}

proptest! {
    #[test]
    fn a_cut_message_is_within_its_limit(message in "\\PC{0,60}", most in 3usize..50) {
        prop_assert!(MessageLimit::Bytes(most).truncate(&message).len() <= most.max(3));
        prop_assert!(MessageLimit::Characters(most).truncate(&message).chars().count() <= most + 3);
    }

    #[test]
    fn merging_twice_changes_nothing(reasons in proptest::collection::vec("[A-Z][a-z]{0,5}", 9), now in 0i64..1000) {
        let updates: Vec<_> = S::OWNED.iter().zip(&reasons).map(|(kind, reason)| update(*kind, ConditionStatus::True, reason)).collect();
        let once = merge_conditions(&[], &updates, Some(3), at(now));
        prop_assert!(is_ordered(&once));
        let reversed: Vec<_> = once.iter().rev().cloned().collect();
        prop_assert!(!is_ordered(&reversed));
        prop_assert_eq!(merge_conditions(&once, &updates, Some(3), at(now + 5)), once);
    }
}
