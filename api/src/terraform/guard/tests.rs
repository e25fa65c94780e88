//! Table test of the guard rails, and a property test that no held plan is applied.

use proptest::prelude::*;

use super::*;

const KINDS: [ChangeKind; 4] = [
    ChangeKind::Create,
    ChangeKind::Update,
    ChangeKind::Replace,
    ChangeKind::Delete,
];

/// All known actions and two unknown ones.
const ACTIONS: [&str; 9] = [
    "create", "update", "replace", "delete", "forget", "move", "import", "renew", "open",
];

fn entry(action: &str, type_: &str, name: &str) -> Change {
    Change {
        action: action.to_owned(),
        address: format!("{type_}.{name}"),
    }
}

/// Counts the effects of these entries as the runner does.
fn effects(entries: &[Change]) -> PlanEffects {
    let count = |action: &str| i64::try_from(entries.iter().filter(|e| e.action == action).count()).unwrap();
    let others = entries.iter().filter(|e| !is_known(&e.action)).count();
    let types: std::collections::BTreeSet<_> = entries
        .iter()
        .map(|e| e.address.split('.').next().unwrap().to_owned())
        .collect();
    PlanEffects {
        creates: count("create"),
        updates: count("update"),
        replaces: count("replace"),
        deletes: count("delete"),
        forgets: count("forget"),
        moves: count("move"),
        imports: count("import"),
        others: i64::try_from(others).unwrap(),
        types: types.into_iter().collect(),
        ..PlanEffects::default()
    }
}

fn policy(text: &str) -> AutoApply {
    serde_json::from_str(text).unwrap()
}

fn decision(policy_text: &str, entries: &[Change]) -> String {
    evaluate(&policy(policy_text), Some(&effects(entries)), entries)
        .map_or_else(|| "applied".to_owned(), |hold| hold.to_string())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn held_plans_name_their_reasons() {
    let create = entry("create", "aws_vpc", "a");
    let update = entry("update", "aws_vpc", "b");
    let replace = entry("replace", "aws_db", "c");
    let delete = entry("delete", "aws_db", "d");
    let moved = entry("move", "aws_vpc", "e");
    let imported = entry("import", "aws_vpc", "f");
    let forgotten = entry("forget", "aws_vpc", "g");
    let unknown = entry("renew", "aws_vpc", "h");
    let one = |entry: &Change| vec![entry.clone()];
    for (policy, entries, expected) in [
        (
            "{}",
            vec![create.clone(), update.clone(), replace.clone(), delete.clone()],
            "applied",
        ),
        (
            r#"{"hold":["delete"]}"#,
            one(&delete),
            "1 delete (autoApply.hold): aws_db.d",
        ),
        (
            r#"{"hold":["delete"]}"#,
            one(&replace),
            "1 replace (autoApply.hold): aws_db.c",
        ),
        (
            r#"{"hold":["delete"]}"#,
            one(&forgotten),
            "1 forget, which counts as delete (autoApply.hold): aws_vpc.g",
        ),
        (
            r#"{"hold":["delete"]}"#,
            vec![create.clone(), update.clone(), moved.clone(), imported.clone()],
            "applied",
        ),
        (r#"{"hold":["replace"]}"#, one(&delete), "applied"),
        (
            r#"{"hold":["replace"]}"#,
            one(&replace),
            "1 replace (autoApply.hold): aws_db.c",
        ),
        (
            r#"{"hold":["delete"],"allow":["delete","replace"]}"#,
            one(&replace),
            "1 replace (autoApply.hold): aws_db.c",
        ),
        (
            r#"{"allow":["create","update","replace"]}"#,
            one(&replace),
            "applied",
        ),
        (
            r#"{"allow":["create","update"]}"#,
            vec![create.clone(), update.clone(), moved.clone(), imported.clone()],
            "applied",
        ),
        (
            r#"{"allow":["create"]}"#,
            vec![create.clone(), update.clone()],
            "1 update (not in autoApply.allow): aws_vpc.b",
        ),
        (
            r#"{"allow":["create","update"]}"#,
            one(&forgotten),
            "1 forget, which counts as delete (not in autoApply.allow): aws_vpc.g",
        ),
        (
            r#"{"holdResourceTypes":["aws_d*"]}"#,
            vec![create.clone(), delete.clone()],
            "changes of a type in autoApply.holdResourceTypes: aws_db",
        ),
        (
            r#"{"holdResourceTypes":["aws_vpc"]}"#,
            one(&moved),
            "changes of a type in autoApply.holdResourceTypes: aws_vpc",
        ),
        (r#"{"holdResourceTypes":["aws"]}"#, one(&moved), "applied"),
        (r#"{"maxChanges":1}"#, one(&create), "applied"),
        (
            r#"{"maxChanges":1}"#,
            vec![create.clone(), moved.clone()],
            "changes of 2 resources, more than 1 (autoApply.maxChanges)",
        ),
        (
            r#"{"maxChanges":-5}"#,
            one(&create),
            "changes of 1 resources, more than 0 (autoApply.maxChanges)",
        ),
        ("{}", one(&unknown), "1 of an unknown kind: aws_vpc.h"),
        (
            r#"{"hold":["delete"],"maxChanges":1}"#,
            vec![replace.clone(), delete.clone()],
            "1 replace (autoApply.hold): aws_db.c; 1 delete (autoApply.hold): aws_db.d; \
             changes of 2 resources, more than 1 (autoApply.maxChanges)",
        ),
        (
            r#"{"hold":["delete","replace","create","update"],"maxChanges":0}"#,
            vec![],
            "applied",
        ),
    ] {
        assert_eq!(decision(policy, &entries), expected, "{policy} {entries:?}");
    }
}

#[test]
fn plans_without_complete_records_are_held() {
    let any = policy(r#"{"holdResourceTypes":["aws_db"]}"#);
    assert_eq!(
        evaluate(&any, None, &[]).unwrap().reasons(),
        [HoldReason::NotRecorded]
    );
    let truncated = PlanEffects {
        updates: 1,
        types_omitted: 1,
        ..PlanEffects::default()
    };
    assert_eq!(
        evaluate(&any, Some(&truncated), &[]).unwrap().reasons(),
        [HoldReason::TypesUnknown]
    );
    assert_eq!(evaluate(&policy("{}"), Some(&truncated), &[]), None);
}

#[test]
fn long_lists_are_truncated_in_messages_only() {
    let many: Vec<_> = (0..9).map(|i| entry("delete", "t", &i.to_string())).collect();
    assert_eq!(
        decision(r#"{"hold":["delete"]}"#, &many),
        "9 delete (autoApply.hold): t.0, t.1, t.2, t.3, t.4 and 4 more"
    );
    // The list of entries is truncated before the delete; the plan is held nevertheless.
    let counted = PlanEffects {
        creates: 200,
        deletes: 1,
        ..PlanEffects::default()
    };
    let hold = evaluate(&policy(r#"{"hold":["delete"]}"#), Some(&counted), &[]).unwrap();
    assert_eq!(hold.to_string(), "1 delete (autoApply.hold)");
}

prop_compose! {
    fn any_policy()(
        allow in proptest::sample::subsequence(&KINDS[..], 0..=4),
        hold in proptest::sample::subsequence(&KINDS[..], 0..=4),
        hold_resource_types in proptest::collection::vec("[ab*]{1,2}", 0..3),
        max_changes in proptest::option::of(-1_i32..6),
    ) -> AutoApply {
        AutoApply { allow, hold, hold_resource_types, max_changes }
    }
}

fn any_entries() -> impl Strategy<Value = Vec<Change>> {
    let one = (proptest::sample::select(&ACTIONS[..]), "[ab]{1,2}", "[a-z]")
        .prop_map(|(action, type_, name)| entry(action, &type_, &name));
    proptest::collection::vec(one, 0..7)
}

proptest! {
    #[test]
    fn no_held_plan_is_applied(policy in any_policy(), entries in any_entries(), cut in 0_usize..7) {
        let effects = effects(&entries);
        let recorded = &entries[..cut.min(entries.len())];
        if evaluate(&policy, Some(&effects), recorded).is_none() {
            for entry in &entries {
                let kind = match entry.action.as_str() {
                    "create" => Some(ChangeKind::Create),
                    "update" => Some(ChangeKind::Update),
                    "replace" => Some(ChangeKind::Replace),
                    "delete" | "forget" => Some(ChangeKind::Delete),
                    "move" | "import" => None,
                    unknown => return Err(TestCaseError::fail(format!("{unknown} passed"))),
                };
                prop_assert!(kind.is_none_or(|kind| !policy.hold.contains(&kind)), "{} passed", entry.action);
                prop_assert!(kind.is_none_or(|kind| policy.allow.is_empty() || policy.allow.contains(&kind)));
                let destroys = matches!(kind, Some(ChangeKind::Delete | ChangeKind::Replace));
                prop_assert!(!(destroys && policy.hold.contains(&ChangeKind::Delete)), "a hidden delete passed");
                let type_ = entry.address.split('.').next().unwrap_or_default();
                prop_assert!(!policy.hold_resource_types.iter().any(|pattern| matches(pattern, type_)));
            }
            let most = policy.max_changes.map(|most| usize::try_from(most).unwrap_or(0));
            prop_assert!(most.is_none_or(|most| entries.len() <= most));
        }
    }

    #[test]
    fn a_narrower_policy_never_applies_more(policy in any_policy(), entries in any_entries(), more in proptest::sample::select(&KINDS[..])) {
        let effects = effects(&entries);
        let mut narrower = policy.clone();
        narrower.hold.push(more);
        if evaluate(&policy, Some(&effects), &entries).is_some() {
            prop_assert!(evaluate(&narrower, Some(&effects), &entries).is_some());
        }
    }
}
