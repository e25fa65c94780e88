//! The digest of everything that a plan depends on: the closure and the bundle except [`NOT_INPUTS`]. Pure.
//!
//! A new member of the bundle counts by default. The digest covers the canonical JSON, so the order of members does not matter.
//! Empty members are omitted, so that a member added by a later version changes only the digests of stacks that use it.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::canonical;

use super::closure::Closure;

/// The version of the format. With another version, every stack is planned once.
const FORMAT: &[u8] = b"sluice inputs v2";

/// Members of the bundle that no plan depends on.
const NOT_INPUTS: &[&str] = &[
    "version",       // of the format
    "stack",         // the same for all plans of a stack
    "artifact",      // which bytes the closure was read from; the closure itself counts
    "aftermath",     // the work after an apply
    "tool",          // what earlier runs used
    "inputsDigest",  // this digest
    "graceSeconds",  // the grace period of an interrupted CLI
    "ignoredDrift",  // affects only the report of drift
    "lastApply",     // part of the effect digest
    "key",           // the key of this digest
    "planKeys",      // how a plan is stored; a rotation changes it
    "fileKeys",      // likewise
    "secrets",       // which values are redacted
    "reads",         // the closure counts
    "kept",          // the source of the stored files
    "keepFiles",     // what a run stores for a deletion
    "stateCopies",   // which copies of the state a run stores
    "stateCheck",    // what the state of the plan is compared with
    "nothingStored", // what a run does not search
];

/// Returns the digest, with a key so that it reveals no value.
pub(crate) fn digest(key: &[u8], closure: &Closure, bundle: &Bundle) -> String {
    let bundle = canonical::json(&inputs(bundle));
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    for part in [FORMAT, &closure.digest, bundle.as_bytes()] {
        mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        mac.update(part);
    }
    format!("hmac-sha256:{}", hex::encode(mac.finalize().into_bytes()))
}

/// Returns the members of the bundle that count.
fn inputs(bundle: &Bundle) -> Value {
    let mut value =
        serde_json::to_value(bundle).unwrap_or_else(|_| unreachable!("a bundle can be written as JSON"));
    if let Value::Object(members) = &mut value {
        members.retain(|name, _| !NOT_INPUTS.contains(&name.as_str()));
    }
    remove_empty(&mut value);
    value
}

/// Removes empty members. Elements of lists stay: their positions count.
fn remove_empty(value: &mut Value) {
    if let Value::Object(members) = value {
        members.values_mut().for_each(remove_empty);
        members.retain(|_, member| match member {
            Value::Null => false,
            Value::Array(elements) => !elements.is_empty(),
            Value::Object(members) => !members.is_empty(),
            _ => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bundle() -> Value {
        json!({ "version": 1, "stack": { "namespace": "team", "name": "net", "uid": "u" },
            "artifact": { "url": "http://x", "digest": "sha256:1", "revision": "main@sha1:1" },
            "path": "infra", "workspace": "default", "tool": "tofu", "backend": "terraform {}", "variables": "{}",
            "variableFiles": ["a.tfvars"], "environment": { "A": "1" }, "options": { "planLock": true, "upgradeOnInit": true },
            "outputs": { "name": "out" }, "readablePlan": "human", "inputsDigest": "x", "lastApply": "net-1", "ignoredDrift": [{ "addresses": ["a.b"] }], "secrets": ["s"],
            "graceSeconds": 90, "surroundings": { "backendArguments": { "key": "a" } },
            "planKeys": [{ "id": "a", "key": "ab".repeat(32) }], "fileKeys": [{ "id": "a", "key": "cd".repeat(32) }],
            "reads": ["infra"], "kept": { "run": "net-1" }, "keepFiles": 1, "nothingStored": true,
            "stateCopies": { "count": 3, "limit": 1 }, "stateCheck": { "location": { "workspace": "default" } },
            "key": "ab".repeat(32) })
    }

    fn of(bundle: &Value) -> String {
        let closure = Closure {
            digest: [7; 32],
            files: 1,
            wide: None,
            reads: Vec::new(),
            from_variables: false,
        };
        digest(
            b"key",
            &closure,
            &Bundle::decode(bundle.to_string().as_bytes()).unwrap(),
        )
    }

    #[test]
    fn the_page_on_plan_ids_lists_the_excluded_members() {
        let page = include_str!("../../../docs/reference/plan-id.md");
        let (_, list) = page.split_once("run bundle without the members ").unwrap();
        let (list, _) = list.split_once(", on which no plan depends").unwrap();
        let mut listed: Vec<_> = list.split('`').skip(1).step_by(2).collect();
        let mut expected = NOT_INPUTS.to_vec();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }

    #[test]
    fn each_bundle_member_changes_the_digest_unless_excluded() {
        let base = of(&bundle());
        let whole: Bundle = serde_json::from_value(bundle()).unwrap();
        let names: Vec<String> = serde_json::to_value(&whole)
            .unwrap()
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        for name in NOT_INPUTS {
            assert!(names.contains(&(*name).to_owned()), "{name} is not a member");
        }
        let changed = [
            ("path", json!("other")),
            ("workspace", json!("blue")),
            ("backend", json!("terraform { }")),
            ("variables", json!("{ }")),
            ("variableFiles", json!(["b.tfvars"])),
            ("environment", json!({ "A": "2" })),
            ("selectedTool", json!({ "name": "tofu", "version": "1.8.3" })),
            ("surroundings", json!({ "backendArguments": { "key": "b" } })),
            ("options", json!({ "planLock": false, "upgradeOnInit": true })),
            ("outputs", json!({ "name": "other" })),
            ("readablePlan", json!("none")),
            (
                "webhooks",
                json!([{ "url": "http://x", "payload": "PlanOnly", "testExpression": "true" }]),
            ),
        ];
        for (name, value) in changed {
            let mut other = bundle();
            other[name] = value;
            assert_ne!(of(&other), base, "{name} counts");
        }
        let ignored = [
            ("stack", json!({ "namespace": "other", "name": "n", "uid": "v" })),
            (
                "artifact",
                json!({ "url": "http://y", "digest": "sha256:2", "revision": "main@sha1:2" }),
            ),
            ("tool", json!("terraform")),
            ("inputsDigest", json!("y")),
            ("graceSeconds", json!(91)),
            ("lastApply", json!("net-2")),
            ("planKeys", json!([])),
            ("fileKeys", json!([])),
            ("reads", json!(["infra", "other"])),
            ("kept", json!({ "run": "net-2" })),
            ("keepFiles", json!(2)),
            ("stateCopies", json!({ "count": 0, "limit": 1 })),
            ("stateCheck", json!({ "location": { "workspace": "blue" } })),
            ("nothingStored", json!(false)),
            ("key", json!("cd".repeat(32))),
        ];
        for (name, value) in ignored {
            let mut other = bundle();
            other[name] = value;
            assert_eq!(of(&other), base, "{name} does not count");
        }
    }

    #[test]
    fn an_unknown_field_changes_the_digest() {
        let counted = inputs(&serde_json::from_value(bundle()).unwrap());
        let mut whole = serde_json::to_value(serde_json::from_value::<Bundle>(bundle()).unwrap()).unwrap();
        remove_empty(&mut whole);
        let omitted: Vec<&str> = whole
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .filter(|name| counted.get(name).is_none())
            .collect();
        let mut named = NOT_INPUTS.to_vec();
        named.sort_unstable();
        assert_eq!(omitted, named);
    }

    #[test]
    fn closure_and_key_change_the_digest() {
        let bundle: Bundle = serde_json::from_value(bundle()).unwrap();
        let of = |key: &[u8], mark| {
            digest(
                key,
                &Closure {
                    digest: [mark; 32],
                    files: 1,
                    wide: None,
                    reads: Vec::new(),
                    from_variables: false,
                },
                &bundle,
            )
        };
        assert_ne!(of(b"key", 1), of(b"key", 2));
        assert_ne!(of(b"key", 1), of(b"other", 1));
        assert_eq!(of(b"key", 1), of(b"key", 1));
    }

    #[test]
    fn empty_fields_do_not_change_the_digest() {
        let base = of(&bundle());
        let mut other = bundle();
        other["options"]["targets"] = json!([]);
        other["outputs"]["labels"] = json!({});
        assert_eq!(of(&other), base, "as an older controller left it out");
        other["options"]["targets"] = json!([""]);
        assert_ne!(of(&other), base);
    }
}
