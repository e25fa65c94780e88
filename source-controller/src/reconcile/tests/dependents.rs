//! Tests of reconciliations triggered by a Secret or by a new included artifact.

use serde_json::json;

use super::environment::{TestEnvironment, has_condition};

#[tokio::test]
async fn a_corrected_secret_triggers_its_object_and_no_other() {
    let env = TestEnvironment::new().await;
    env.server.require_basic("user", "right");
    let wrong = json!({ "username": "user", "password": "wrong" });
    for secret in ["login", "unrelated", "others"] {
        env.secret(secret, wrong.clone()).await;
    }
    env.create("app", json!({ "secretRef": { "name": "login" } }))
        .await;
    env.create("other", json!({ "secretRef": { "name": "others" } }))
        .await;
    let mut controller = env.start_controller(env.context());
    for name in ["app", "other"] {
        env.until(name, has_condition("FetchFailed", "GitOperationFailed"))
            .await;
        // The finalizer, and the first real reconciliation. The Secrets existing at the start trigger none.
        controller.until_reconciled(name, 2).await;
    }
    env.secret("unrelated", json!({ "password": "x" })).await;
    env.secret("new", json!({ "password": "x" })).await;
    env.secret("login", json!({ "password": "right" })).await;
    env.until("app", has_condition("Ready", "Succeeded")).await;
    controller.until_reconciled("app", 3).await;
    assert_eq!(
        (
            controller.reconciliations("app"),
            controller.reconciliations("other")
        ),
        (3, 2)
    );
    // A created Secret counts as changed.
    env.delete_secret("others").await;
    env.secret("others", json!({ "username": "user", "password": "right" }))
        .await;
    env.until("other", has_condition("Ready", "Succeeded")).await;
    controller.until_reconciled("other", 3).await;
    assert_eq!(
        (
            controller.reconciliations("app"),
            controller.reconciliations("other")
        ),
        (3, 3)
    );
    controller.end().await;
    // A restart triggers nothing for unchanged Secrets.
    let mut controller = env.start_controller(env.context());
    for name in ["app", "other"] {
        controller.until_reconciled(name, 1).await;
    }
    env.secret("login", json!({ "password": "wrong" })).await;
    controller.until_reconciled("app", 2).await;
    assert_eq!(
        (
            controller.reconciliations("app"),
            controller.reconciliations("other")
        ),
        (2, 1)
    );
    controller.end().await;
}

#[tokio::test]
async fn a_new_artifact_triggers_its_includers_and_cycles_do_not_loop() {
    let mut env = TestEnvironment::new().await;
    env.serve("lib", &[("a.tf", "")]);
    let including = |names: &[&str]| {
        let includes: Vec<_> = names
            .iter()
            .map(|name| json!({ "repository": { "name": name } }))
            .collect();
        json!({ "include": includes })
    };
    env.create("app", including(&["lib"])).await;
    env.create("above", including(&["app"])).await;
    env.create("alone", json!({})).await;
    let mut controller = env.start_controller(env.context());
    for name in ["app", "above"] {
        env.until(
            name,
            has_condition(
                "IncludeUnavailable",
                if name == "app" { "NotFound" } else { "NoArtifact" },
            ),
        )
        .await;
    }
    env.until("alone", has_condition("Ready", "Succeeded")).await;
    controller.until_reconciled("alone", 2).await;
    // Its creation triggers both, one after the other, long before their retry.
    env.create("lib", json!({ "url": env.server.url("lib") })).await;
    for name in ["lib", "app", "above"] {
        env.until(name, has_condition("Ready", "Succeeded")).await;
    }
    let before = env.artifact("above").await;
    env.serve("lib", &[("b.tf", "")]);
    env.request("lib", "now").await;
    env.until("above", |object| {
        let artifact = object.status.as_ref().and_then(|status| status.artifact.as_ref());
        artifact.is_some_and(|artifact| artifact.digest != before.digest)
    })
    .await;
    assert!(
        env.names(&env.artifact("above").await)
            .contains(&"app/lib/b.tf".to_owned())
    );
    assert_eq!(controller.reconciliations("alone"), 2);
    // Objects that include each other follow at their intervals, as does one that includes itself.
    env.create("one", json!({})).await;
    env.create("two", including(&["one"])).await;
    env.until("two", has_condition("Ready", "Succeeded")).await;
    env.edit("one", json!({ "spec": including(&["one", "two"]) }))
        .await;
    controller.until_reconciled("one", 3).await;
    env.create("last", including(&["lib"])).await;
    env.until("last", has_condition("Ready", "Succeeded")).await;
    let existing = (
        controller.reconciliations("one"),
        controller.reconciliations("two"),
    );
    controller.end().await;
    assert!(existing.0 == 3 && existing.1 <= 4, "{existing:?}");
}
