//! Any Secrets, those that tofu-controller left among them, are a stored plan or not, and none is larger than what is read.
#![no_main]

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use libfuzzer_sys::fuzz_target;
use sluice_tf_core::bundle::{PlanKey, Stack};
use sluice_tf_core::chunk::{compress, decompress};
use sluice_tf_core::plan::store::{CHUNKS, DIGEST, PlanName, annotations, decode, labels, piece};
use sluice_tf_core::seal::{SALT, SEALED_WITH, digest};

/// What is in a Secret, how many there are said to be, and what it is said to be sealed with.
type Given<'a> = (&'a [u8], &'a [u8], bool, &'a str, Option<(&'a str, &'a str)>, BTreeMap<&'a str, &'a str>);

fuzz_target!(|given: Given<'_>| {
    let (plan, context, packed, count, sealed, upstream) = given;
    let _ = decompress(plan, 1 << 20);
    let pack = |bytes: &[u8]| if packed { compress(bytes).expect("memory") } else { bytes.to_vec() };
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
    let mut marks = annotations(&name, 0);
    marks.insert(CHUNKS.into(), count.into());
    marks.insert(DIGEST.into(), digest(&[&plan, &context]));
    if let Some((with, salt)) = sealed {
        marks.extend([(SEALED_WITH.into(), with.into()), (SALT.into(), salt.into())]);
    }
    let data = |plan: &[u8]| BTreeMap::from([("tfplan".to_owned(), ByteString(plan.to_vec())), ("context".to_owned(), ByteString(context.clone()))]);
    let own = piece(&stack, "own".into(), labels("net", "default"), marks, data(&plan));
    let foreign = upstream.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let foreign = piece(&stack, "foreign".into(), labels("net", "default"), foreign, data(b""));
    let key = PlanKey {
        id: sealed.map_or("a", |(with, _)| with).into(),
        key: "ab".repeat(32),
    };
    let _ = decode(&[foreign, own], &name, &[key]);
});
