//! Decodes any Secrets as a stored plan, including those of tofu-controller; sizes are limited.
#![no_main]

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use libfuzzer_sys::fuzz_target;
use sluice_tf_core::bundle::{PlanKey, Stack};
use sluice_tf_core::chunk::{compress, decompress};
use sluice_tf_core::plan::store::{CHUNKS, DIGEST, PlanName, annotations, decode, immutable_secret, labels};
use sluice_tf_core::seal::{SALT, SEALED_WITH, digest};

/// Content, count, key id and salt of a Secret, and annotations of another one.
type Input<'a> = (
    &'a [u8],
    &'a [u8],
    bool,
    &'a str,
    Option<(&'a str, &'a str)>,
    BTreeMap<&'a str, &'a str>,
);

fuzz_target!(|input: Input<'_>| {
    let (plan, context, packed, count, sealed, upstream) = input;
    let _ = decompress(plan, 1 << 20);
    let pack = |bytes: &[u8]| {
        if packed {
            compress(bytes).expect("memory")
        } else {
            bytes.to_vec()
        }
    };
    let (plan, context) = (pack(plan), pack(context));
    let stack = Stack {
        namespace: "team".into(),
        name: "net".into(),
        uid: "u".into(),
    };
    let name = PlanName {
        stack: stack.clone(),
        workspace: "default".into(),
        id: "plan-main-0123456789".into(),
        run: "net-1".into(),
    };
    let mut own_annotations = annotations(&name, 0);
    own_annotations.insert(CHUNKS.into(), count.into());
    own_annotations.insert(DIGEST.into(), digest(&[&plan, &context]));
    if let Some((with, salt)) = sealed {
        own_annotations.extend([(SEALED_WITH.into(), with.into()), (SALT.into(), salt.into())]);
    }
    let data = |plan: &[u8]| {
        BTreeMap::from([
            ("tfplan".to_owned(), ByteString(plan.to_vec())),
            ("context".to_owned(), ByteString(context.clone())),
        ])
    };
    let own = immutable_secret(&stack, "own".into(), labels("net", "default"), own_annotations, data(&plan));
    let foreign = upstream
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let foreign = immutable_secret(
        &stack,
        "foreign".into(),
        labels("net", "default"),
        foreign,
        data(b""),
    );
    let key = PlanKey {
        id: sealed.map_or("a", |(with, _)| with).into(),
        key: "ab".repeat(32),
    };
    let _ = decode(&[foreign, own], &name, &[key]);
});
