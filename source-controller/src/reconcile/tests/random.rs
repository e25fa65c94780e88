//! Reconciles random specs: no panics, no hangs, conforming writes, and idempotence.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use super::environment::TestEnvironment;

/// Number of specs.
const COUNT: usize = 120;

/// A text: ordinary, unusual or arbitrary.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "",
            ".",
            "..",
            "/",
            "main",
            "v1",
            "lib",
            "login",
            "*",
            "refs/heads/main",
            "refs/tags/v1^{}",
            "a/../b",
            "!*.md\n#x\n**/y",
            "HEAD",
            ">=1.0.0",
            "^1 || ~2",
            "x y",
        ])
        .prop_map(str::to_owned),
        "[a-z0-9./*!-]{0,20}",
        "[0-9a-f]{40}",
        "\\PC{0,30}",
    ]
}

/// A URL that at most reaches this machine.
fn url(app: String) -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just(app.clone()),
        1 => "[a-z%.:/ ?#]{0,12}".prop_map(move |tail| format!("{app}{tail}")),
        1 => "\\PC{0,12}".prop_map(|tail| format!("http://127.0.0.1:1/{tail}")),
        1 => "[:@a-z%]{0,9}".prop_map(|user| format!("https://{user}@127.0.0.1:1/x")),
        1 => Just("https://[::1/x".to_owned()),
        1 => Just("ssh://git@127.0.0.1:1/x".to_owned()),
    ]
}

fn reference(name: impl Strategy<Value = String>) -> impl Strategy<Value = Value> {
    name.prop_map(|name| json!({ "name": name }))
}

/// The fields of a spec, some of them absent.
fn spec(app: String) -> impl Strategy<Value = Value> {
    let ref_fields = prop::collection::btree_map(
        prop::sample::select(vec!["branch", "tag", "semver", "name", "commit"]),
        text(),
        0..3,
    );
    let include = (text(), prop::option::of(text()), prop::option::of(text())).prop_map(
        |(name, from, to)| json!({ "repository": { "name": name }, "fromPath": from, "toPath": to }),
    );
    let fields = vec![
        ref_fields.prop_map(|fields| json!({ "ref": fields })).boxed(),
        text().prop_map(|text| json!({ "ignore": text })).boxed(),
        prop::collection::vec(include, 0..3)
            .prop_map(|list| json!({ "include": list }))
            .boxed(),
        prop::collection::vec(text(), 0..3)
            .prop_map(|list| json!({ "sparseCheckout": list }))
            .boxed(),
        reference(text())
            .prop_map(|name| json!({ "secretRef": name }))
            .boxed(),
        reference(text())
            .prop_map(|name| json!({ "proxySecretRef": name }))
            .boxed(),
        reference(text())
            .prop_map(|name| json!({ "verify": { "secretRef": name } }))
            .boxed(),
        any::<bool>()
            .prop_map(|on| json!({ "recurseSubmodules": on }))
            .boxed(),
        any::<bool>().prop_map(|on| json!({ "suspend": on })).boxed(),
        prop::sample::select(vec!["generic", "github"])
            .prop_map(|provider| json!({ "provider": provider }))
            .boxed(),
        "[0-9]{1,9}(ms|s|m|h)"
            .prop_map(|interval| json!({ "interval": interval }))
            .boxed(),
    ];
    let some = prop::sample::subsequence(fields, 0..5).prop_flat_map(|chosen| chosen);
    (url(app), some).prop_map(|(url, parts)| {
        let mut spec = Map::from_iter([
            ("url".to_owned(), json!(url)),
            ("interval".to_owned(), json!("1m")),
            ("timeout".to_owned(), json!("5s")),
            ("ref".to_owned(), json!({ "branch": "main" })),
        ]);
        for part in parts {
            let Value::Object(part) = part else { unreachable!() };
            spec.extend(part);
        }
        Value::Object(spec)
    })
}

#[tokio::test]
async fn random_specs_end_in_a_conforming_status() {
    let mut env = TestEnvironment::new().await;
    env.serve("lib", &[("a.tf", "")]);
    env.create_and_reconcile("lib").await;
    env.repository.annotated_tag("v1", "one").unwrap();
    env.secret("login", json!({ "username": "x", "password": "y" }))
        .await;
    let mut runner = TestRunner::deterministic();
    let specs = spec(env.server.url("app"));
    let (mut taken, mut ready) = (0, 0);
    for number in 0..COUNT {
        let spec = specs.new_tree(&mut runner).unwrap().current();
        let name = format!("random-{number}");
        if !env.try_create(&name, &spec).await {
            continue;
        }
        taken += 1;
        env.reconcile(&name).await;
        env.reconcile(&name).await;
        assert_eq!(
            env.writes(),
            "",
            "a second reconciliation changes nothing: {spec}"
        );
        let status = env.status(&name).await;
        ready += usize::from(
            status
                .conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True"),
        );
        // An edit is handled from any state.
        env.edit(
            &name,
            json!({ "spec": { "url": env.server.url("app"), "suspend": false } }),
        )
        .await;
        env.reconcile(&name).await;
    }
    assert!(
        taken > COUNT / 2 && ready > COUNT / 20,
        "{taken} taken, {ready} ready"
    );
}
