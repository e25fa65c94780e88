use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{index_of, is_allowed, resource, rule, urls, user};
use super::*;

fn any_rule() -> impl Strategy<Value = Value> {
    let some = |texts: &'static [&'static str]| proptest::sample::subsequence(texts, 0..=texts.len());
    let of_resources = (
        some(&["*", "get", "list"]),
        some(&["*", "", "apps"]),
        some(&["*", "a", "a/status", "*/status"]),
        some(&["x", "y"]),
    )
        .prop_map(|(verbs, groups, resources, names)| rule(&verbs, &groups, &resources, &names));
    let of_urls =
        (some(&["*", "get"]), some(&["*", "/a", "/a/*"])).prop_map(|(verbs, paths)| urls(&verbs, &paths));
    prop_oneof![of_resources, of_urls]
}

/// Returns all requests over the words of [`any_rule`].
fn requests() -> Vec<Attributes<'static>> {
    let mut requests = Vec::new();
    for verb in ["get", "list", "delete"] {
        for path in ["/a", "/a/b", "/c"] {
            requests.push(Attributes::NonResource { verb, path });
        }
        for group in ["", "apps", "other"] {
            for of in ["a", "a/status", "b", "b/status", "a/log"] {
                for name in ["", "x", "z"] {
                    requests.extend([
                        resource([verb, group, of, "team", name]),
                        resource([verb, group, of, "other", name]),
                    ]);
                }
            }
        }
    }
    requests
}

proptest! {
    #[test]
    fn a_further_rule_never_takes_a_permission_away(
        local in proptest::collection::vec(any_rule(), 0..3),
        cluster in proptest::collection::vec(any_rule(), 0..3),
        more in any_rule(),
    ) {
        let jane = user("jane", &[]);
        let before = index_of(&local, &cluster);
        let wider = [
            index_of(&[local.as_slice(), std::slice::from_ref(&more)].concat(), &cluster),
            index_of(&local, &[cluster.as_slice(), std::slice::from_ref(&more)].concat()),
        ];
        for attributes in requests() {
            if is_allowed(&before, &jane, attributes) {
                for index in &wider {
                    prop_assert!(is_allowed(index, &jane, attributes), "{attributes:?}");
                }
            }
        }
    }

    /// A user who passes the check gains nothing by granting the rules to itself.
    #[test]
    fn rules_that_pass_the_escalation_check_allow_nothing_new(
        cluster in proptest::collection::vec(any_rule(), 0..4),
        granted in any_rule(),
    ) {
        let jane = user("jane", &[]);
        let before = index_of(&[], &cluster);
        let rules = PolicyRule::of_role(&json!({ "rules": [granted] }));
        if check_escalation(&jane, "", &before, &rules).is_ok() {
            let after = index_of(&[], &[cluster.as_slice(), std::slice::from_ref(&granted)].concat());
            for attributes in requests() {
                if is_allowed(&after, &jane, attributes) {
                    prop_assert!(is_allowed(&before, &jane, attributes), "{attributes:?}");
                }
            }
        }
    }
}
