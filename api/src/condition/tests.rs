//! Tables of the rules of conditions.

use super::*;
use proptest::prelude::*;

use SourceCondition as S;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn verdict(kind: S, truth: Truth, reason: &str) -> Verdict<S> {
    Verdict::new(kind, truth, reason, format!("about {reason}"))
}

fn types(conditions: &[Condition]) -> Vec<&str> {
    conditions.iter().map(|c| c.type_.as_str()).collect()
}

#[test]
fn the_transition_time_changes_with_status_reason_or_message_only() {
    let first = settle(
        &[],
        &[Verdict::new(S::Ready, Truth::True, "Succeeded", "a")],
        Some(1),
        at(10),
    );
    let since = |truth, reason: &str, message: &str, generation| {
        let next = settle(
            &first,
            &[Verdict::new(S::Ready, truth, reason, message)],
            Some(generation),
            at(20),
        );
        assert_eq!(next[0].observed_generation, Some(generation));
        next[0].last_transition_time.0.as_second()
    };
    assert_eq!(since(Truth::True, "Succeeded", "a", 1), 10);
    assert_eq!(since(Truth::True, "Succeeded", "a", 2), 10);
    assert_eq!(since(Truth::False, "Succeeded", "a", 1), 20);
    assert_eq!(since(Truth::True, "Progressing", "a", 1), 20);
    assert_eq!(since(Truth::True, "Succeeded", "b", 1), 20);
}

#[test]
fn owned_types_disappear_and_foreign_ones_stay() {
    let mut held = settle(&[], &[verdict(S::FetchFailed, Truth::True, "x")], Some(1), at(1));
    held.push(Condition {
        type_: "example.com/Mine".into(),
        ..held[0].clone()
    });
    let after = settle(
        &held,
        &[verdict(S::Ready, Truth::True, "Succeeded")],
        Some(2),
        at(2),
    );
    assert_eq!(types(&after), ["Ready", "example.com/Mine"]);
    assert_eq!(after[1], held[1]);
}

#[test]
fn an_abnormal_condition_is_shown_only_while_true() {
    let verdicts = [
        verdict(S::Stalled, Truth::False, "x"),
        verdict(S::FetchFailed, Truth::Unknown, "x"),
        verdict(S::SourceVerified, Truth::False, "x"),
    ];
    assert_eq!(types(&settle(&[], &verdicts, None, at(1))), ["SourceVerified"]);
}

#[test]
fn the_order_is_stalled_reconciling_ready_then_newest_then_name() {
    let held = settle(
        &[],
        &[verdict(S::SourceVerified, Truth::True, "x")],
        Some(1),
        at(1),
    );
    let verdicts = [
        verdict(S::FetchFailed, Truth::True, "x"),
        verdict(S::ArtifactInStorage, Truth::True, "x"),
        Verdict::carried(S::SourceVerified, &held).unwrap(),
        verdict(S::Ready, Truth::False, "x"),
        verdict(S::Reconciling, Truth::True, "x"),
        verdict(S::Stalled, Truth::True, "x"),
    ];
    let all = settle(&held, &verdicts, Some(2), at(2));
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
        all[5], held[0],
        "a condition that is carried over is left as it was"
    );
}

#[test]
fn of_two_verdicts_the_last_counts() {
    let verdicts = [
        verdict(S::Ready, Truth::Unknown, "Progressing"),
        verdict(S::Ready, Truth::True, "Succeeded"),
    ];
    let all = settle(&[], &verdicts, Some(1), at(1));
    assert_eq!((all.len(), all[0].reason.as_str()), (1, "Succeeded"));
}

#[test]
fn long_messages_are_cut() {
    assert_eq!(Limit::Bytes(10).cut("1234567890"), "1234567890");
    assert_eq!(Limit::Bytes(10).cut("12345678901"), "1234567...");
    assert_eq!(Limit::Bytes(10).cut("123456\u{e4}8901"), "123456...");
    assert_eq!(Limit::Characters(3).cut("äöü"), "äöü");
    assert_eq!(Limit::Characters(3).cut("äöüß"), "äöü...");
    let long = "x".repeat(40_000);
    let source = settle(
        &[],
        &[Verdict::new(S::Ready, Truth::False, "x", long.clone())],
        None,
        at(1),
    );
    assert_eq!(source[0].message.len(), 32768);
    let again = settle(
        &source,
        &[Verdict::new(S::Ready, Truth::False, "x", long.clone())],
        None,
        at(2),
    );
    assert_eq!(source, again, "a cut message counts as unchanged");
    let stack = Verdict::new(TerraformCondition::Ready, Truth::False, "x", long);
    assert_eq!(settle(&[], &[stack], None, at(1))[0].message.len(), 20_003);
}

/// The verdicts of a pass, and the status and reason that Ready takes.
type Row<'a> = (&'a [(S, Truth, &'a str)], Option<(Truth, &'a str)>);

#[test]
fn ready_follows_from_the_loudest_condition() {
    use Truth::{False, True, Unknown};
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
        let verdicts: Vec<_> = given
            .iter()
            .map(|(kind, truth, reason)| verdict(*kind, *truth, reason))
            .collect();
        let ready = summarise(&verdicts);
        assert_eq!(
            ready.as_ref().map(|r| (r.truth, r.reason.as_str())),
            *wanted,
            "{given:?}"
        );
        assert!(ready.is_none_or(|r| r.kind == S::Ready && r.message == format!("about {}", r.reason)));
    }
}

proptest! {
    #[test]
    fn a_cut_message_is_within_its_limit(message in "\\PC{0,60}", most in 3usize..50) {
        prop_assert!(Limit::Bytes(most).cut(&message).len() <= most.max(3));
        prop_assert!(Limit::Characters(most).cut(&message).chars().count() <= most + 3);
    }

    #[test]
    fn settling_twice_changes_nothing(reasons in proptest::collection::vec("[A-Z][a-z]{0,5}", 9), now in 0i64..1000) {
        let verdicts: Vec<_> = S::OWNED.iter().zip(&reasons).map(|(kind, reason)| verdict(*kind, Truth::True, reason)).collect();
        let once = settle(&[], &verdicts, Some(3), at(now));
        prop_assert_eq!(settle(&once, &verdicts, Some(3), at(now + 5)), once);
    }
}
