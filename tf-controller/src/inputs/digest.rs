//! The digest of everything that a plan depends on (pure): the closure and the whole bundle but for named members.
//!
//! Whatever the bundle comes to hold counts without anybody thinking of it; what shall not count is listed here, with the
//! reason. The bytes are the bundle's canonical JSON, so neither the order of members nor how a type prints itself matters.
//! Empty members are left out, so that a member which a later version adds changes only the digests of stacks that use it.

use super::closure::Closure;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use sluice_tf_core::{bundle::Bundle, canonical};

/// Names the form. Another form is another digest of the same inputs: every stack is planned once more.
const FORM: &[u8] = b"sluice inputs v2";

/// Members of the bundle that no plan depends on.
const NOT_INPUTS: &[&str] = &[
    "version",       // of the form, not of what it holds
    "stack",         // the same for all plans of a stack
    "artifact",      // which bytes the closure was read from; the closure itself counts
    "aftermath",     // what is done once the apply is over
    "tool",          // what earlier runs used: a consequence of them
    "inputsDigest",  // this digest
    "graceSeconds",  // how long an interrupted CLI may take
    "ignoredDrift",  // what is said of a check; no plan and no apply does anything else for it
    "lastApply",     // covered by the effect digest, which it makes single-use
    "key",           // the key of this digest
    "planKeys",      // how a plan is kept, which a rotation changes
    "fileKeys",      // likewise
    "secrets",       // which of the values are not to be shown
    "reads",         // the closure's files count, not their list
    "kept",          // where they come from
    "keepFiles",     // what a deletion may need
    "nothingStored", // what a run need not look for
];

/// The digest, keyed so that it tells nothing of the values.
#[must_use]
pub fn digest(key: &[u8], closure: &Closure, bundle: &Bundle) -> String {
    let bundle = canonical::json(&inputs(bundle));
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    for part in [FORM, &closure.digest, bundle.as_bytes()] {
        mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        mac.update(part);
    }
    format!("hmac-sha256:{}", hex::encode(mac.finalize().into_bytes()))
}

/// The members of the bundle that count.
fn inputs(bundle: &Bundle) -> Value {
    let mut whole = serde_json::to_value(bundle)
        .unwrap_or_else(|_| unreachable!("a bundle has nothing that JSON has not"));
    if let Value::Object(members) = &mut whole {
        members.retain(|name, _| !NOT_INPUTS.contains(&name.as_str()));
    }
    without_empty(&mut whole);
    whole
}

/// Takes away members that hold nothing. Elements of lists stay: their places count.
fn without_empty(value: &mut Value) {
    if let Value::Object(members) = value {
        members.values_mut().for_each(without_empty);
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
    use super::*;
    use serde_json::json;

    fn bundle() -> Value {
        json!({ "version": 1, "stack": { "namespace": "team", "name": "net", "uid": "u" },
            "artifact": { "url": "http://x", "digest": "sha256:1", "revision": "main@sha1:1" },
            "path": "infra", "workspace": "default", "tool": "tofu", "backend": "terraform {}", "variables": "{}",
            "variableFiles": ["a.tfvars"], "environment": { "A": "1" }, "options": { "planLock": true, "upgradeOnInit": true },
            "outputs": { "name": "out" }, "readablePlan": "human", "inputsDigest": "x", "lastApply": "net-1", "ignoredDrift": [{ "addresses": ["a.b"] }], "secrets": ["s"],
            "graceSeconds": 90, "surroundings": { "backendArguments": { "key": "a" } },
            "planKeys": [{ "id": "a", "key": "ab".repeat(32) }], "fileKeys": [{ "id": "a", "key": "cd".repeat(32) }],
            "reads": ["infra"], "kept": { "run": "net-1" }, "keepFiles": 1, "nothingStored": true,
            "key": "ab".repeat(32) })
    }

    fn of(bundle: &Value) -> String {
        let closure = Closure {
            digest: [7; 32],
            files: 1,
            wide: None,
            reads: Vec::new(),
            given: false,
        };
        digest(
            b"key",
            &closure,
            &Bundle::decode(bundle.to_string().as_bytes()).unwrap(),
        )
    }

    #[test]
    fn the_page_on_plan_ids_names_what_does_not_count() {
        let page = include_str!("../../../docs/reference/plan-id.md");
        let (_, list) = page.split_once("run bundle without the members ").unwrap();
        let (list, _) = list.split_once(", on which no plan depends").unwrap();
        let mut told: Vec<_> = list.split('`').skip(1).step_by(2).collect();
        let mut wanted = NOT_INPUTS.to_vec();
        told.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(told, wanted);
    }

    #[test]
    fn each_member_counts_unless_it_is_named() {
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
            assert!(
                names.iter().any(|held| held == name),
                "{name} is no member any more"
            );
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
    fn a_member_that_nobody_thought_of_counts() {
        let held = inputs(&serde_json::from_value(bundle()).unwrap());
        let mut whole = serde_json::to_value(serde_json::from_value::<Bundle>(bundle()).unwrap()).unwrap();
        without_empty(&mut whole);
        let left_out: Vec<&str> = whole
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .filter(|name| held.get(name).is_none())
            .collect();
        let mut named = NOT_INPUTS.to_vec();
        named.sort_unstable();
        assert_eq!(left_out, named);
    }

    #[test]
    fn closure_and_key_count() {
        let bundle: Bundle = serde_json::from_value(bundle()).unwrap();
        let of = |key: &[u8], mark| {
            digest(
                key,
                &Closure {
                    digest: [mark; 32],
                    files: 1,
                    wide: None,
                    reads: Vec::new(),
                    given: false,
                },
                &bundle,
            )
        };
        assert_ne!(of(b"key", 1), of(b"key", 2));
        assert_ne!(of(b"key", 1), of(b"other", 1));
        assert_eq!(of(b"key", 1), of(b"key", 1));
    }

    #[test]
    fn what_is_empty_does_not_count() {
        let base = of(&bundle());
        let mut other = bundle();
        other["options"]["targets"] = json!([]);
        other["outputs"]["labels"] = json!({});
        assert_eq!(of(&other), base, "as an older controller left it out");
        other["options"]["targets"] = json!([""]);
        assert_ne!(of(&other), base);
    }
}
