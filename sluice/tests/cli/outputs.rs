//! The outputs of a stack: which values are shown.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::terraform::outputs_secret::set_non_sensitive_keys;

use crate::fixture::{TIMEOUT, TestEnvironment, command, ready, stderr_of};
use crate::proxy::{Fault, Proxy};

/// An API with the stack `web`, which has written the outputs `host`, `ports` and `token` to the Secret `web-outputs`. The Secret says
/// that these keys are not sensitive; `None`: it does not say it.
async fn environment_with_outputs(non_sensitive: Option<&[&str]>) -> TestEnvironment {
    let environment = TestEnvironment::start().await;
    let mut status = ready("True", "TerraformOutputsWritten", "Outputs written");
    status["availableOutputs"] = json!(["host", "ports", "token"]);
    let spec = json!({ "writeOutputsToSecret": { "name": "web-outputs" } });
    environment.create_stack("web", &spec, &status).await;
    create_outputs(&environment, non_sensitive).await;
    environment
}

/// Creates the Secret `web-outputs`, as [`environment_with_outputs`] describes it.
pub(crate) async fn create_outputs(environment: &TestEnvironment, non_sensitive: Option<&[&str]>) {
    // In base64: db.internal, [80,443], ["list","number"] and hunter2.
    let data = json!({ "host": "ZGIuaW50ZXJuYWw=", "ports": "WzgwLDQ0M10=", "ports__type": "WyJsaXN0IiwibnVtYmVyIl0=",
        "token": "aHVudGVyMg==" });
    let mut secret: Secret =
        serde_json::from_value(json!({ "metadata": { "name": "web-outputs" }, "data": data })).unwrap();
    if let Some(keys) = non_sensitive {
        let keys: BTreeSet<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        set_non_sensitive_keys(&mut secret, &keys);
    }
    secrets(environment)
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
}

fn secrets(environment: &TestEnvironment) -> Api<Secret> {
    Api::namespaced(environment.client(), "default")
}

/// Returns exit code, data and notes of `sluice outputs web` with these arguments.
async fn outputs(environment: &TestEnvironment, arguments: &[&str]) -> (Option<i32>, String, String) {
    let command = ["outputs", "web"].as_slice();
    let output = environment.sluice(&[command, arguments].concat()).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

const ALL_HIDDEN: &str = "NAME    VALUE\nhost    (sensitive)\nports   (sensitive)\ntoken   (sensitive)\n";

#[tokio::test(flavor = "multi_thread")]
async fn values_that_are_not_sensitive_are_shown() {
    let environment = environment_with_outputs(Some(&["host", "ports"])).await;
    let (code, data, notes) = outputs(&environment, &[]).await;
    assert_eq!(code, Some(0), "{notes}");
    assert_eq!(
        data,
        "NAME    VALUE\nhost    db.internal\nports   [80,443]\ntoken   (sensitive)\n"
    );
    assert_eq!(
        notes,
        "Sensitive values are hidden: --show-sensitive prints them.\n"
    );
    let (_, data, notes) = outputs(&environment, &["-o", "json"]).await;
    let hidden = json!({ "hidden": true });
    assert_eq!(
        serde_json::from_str::<Value>(&data).unwrap(),
        json!({ "host": "db.internal", "ports": [80, 443], "token": hidden })
    );
    assert_eq!(notes, "");
    let (_, data, _) = outputs(&environment, &["-o", "yaml"]).await;
    let yaml: Value = serde_yaml_ng::from_str(&data).unwrap();
    assert_eq!(yaml["token"], hidden);
    let (_, data, notes) = outputs(&environment, &["--show-sensitive"]).await;
    assert!(data.ends_with("token   hunter2\n"), "{data}");
    assert_eq!(notes, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_value_is_printed_if_it_is_not_sensitive() {
    let environment = environment_with_outputs(Some(&["host", "ports"])).await;
    for (key, value) in [("host", "db.internal\n"), ("ports", "[80,443]\n")] {
        let (code, data, notes) = outputs(&environment, &[key]).await;
        assert_eq!((code, data.as_str(), notes.as_str()), (Some(0), value, ""));
    }
    let (code, data, notes) = outputs(&environment, &["token"]).await;
    assert_eq!((code, data.as_str()), (Some(1), ""), "{notes}");
    assert!(notes.contains("the value of token is hidden"), "{notes}");
    assert!(
        notes.contains("next: sluice outputs web token --show-sensitive"),
        "{notes}"
    );
    let (_, data, _) = outputs(&environment, &["token", "--show-sensitive"]).await;
    assert_eq!(data, "hunter2\n");
    let (code, _, notes) = outputs(&environment, &["absent"]).await;
    assert_eq!(code, Some(1));
    assert!(notes.contains("no key absent"), "{notes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_a_secret_that_does_not_say_what_is_sensitive_are_hidden() {
    let environment = environment_with_outputs(None).await;
    let (_, data, notes) = outputs(&environment, &[]).await;
    assert_eq!(data, ALL_HIDDEN);
    assert!(notes.contains("--show-sensitive prints them"), "{notes}");
    let (code, data, _) = outputs(&environment, &["host"]).await;
    assert_eq!((code, data.as_str()), (Some(1), ""));
}

/// As after a write of tofu-controller, which leaves the annotation.
#[tokio::test(flavor = "multi_thread")]
async fn values_that_another_program_has_written_are_hidden() {
    let environment = environment_with_outputs(Some(&["host", "ports"])).await;
    let secrets = secrets(&environment);
    let other = Patch::Merge(json!({ "data": { "host": "aHVudGVyMg==" } }));
    secrets
        .patch("web-outputs", &PatchParams::default(), &other)
        .await
        .unwrap();
    let (_, data, notes) = outputs(&environment, &[]).await;
    assert_eq!(data, ALL_HIDDEN, "{notes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_readable_secret_the_names_are_listed_and_the_note_says_why() {
    let environment = environment_with_outputs(Some(&["host"])).await;
    secrets(&environment)
        .delete("web-outputs", &DeleteParams::default())
        .await
        .unwrap();
    let (code, data, notes) = outputs(&environment, &[]).await;
    assert_eq!((code, data.as_str()), (Some(0), ALL_HIDDEN), "{notes}");
    assert_eq!(
        notes,
        "Values are not shown: their secret web-outputs does not exist.\n"
    );
    let none = Patch::Merge(json!({ "spec": { "writeOutputsToSecret": null } }));
    environment
        .stacks()
        .patch("web", &PatchParams::default(), &none)
        .await
        .unwrap();
    let (_, data, notes) = outputs(&environment, &[]).await;
    assert_eq!(data, ALL_HIDDEN);
    assert!(notes.contains("spec.writeOutputsToSecret is not set"), "{notes}");
}

/// As the role sluice-view.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_read_the_secret_sees_the_names() {
    let environment = environment_with_outputs(Some(&["host"])).await;
    let proxy = Proxy::open(&environment).await;
    let message = "secrets \"web-outputs\" is forbidden: User \"vera\" cannot get resource \"secrets\" in API group \"\" \
                   in the namespace \"default\"";
    proxy.set(Fault::AnswerTo("/secrets/web-outputs", 403, message));
    let mut command = command(proxy.kubeconfig(), &["outputs", "web"]);
    let output = tokio::time::timeout(TIMEOUT, command.output()).await;
    let output = output.expect("the command ends").unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, ALL_HIDDEN.as_bytes());
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "Values are not shown: you may not read their secret web-outputs.\n"
    );
    for arguments in [["outputs", "web", "host"], ["outputs", "web", "--show-sensitive"]] {
        let (code, errors) = stderr_of(proxy.kubeconfig(), &arguments).await;
        assert_eq!(code, 1, "{errors}");
        assert!(errors.contains("you may not get secrets"), "{errors}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_offers_the_keys_that_the_command_accepts() {
    let environment = environment_with_outputs(None).await;
    let complete = ["__complete", "--", "outputs", "web", ""];
    // `outputs: [host:db.host, ports]` writes the output `host` under another key, and no `token`.
    let data = json!({ "host": null, "token": null, "db.host": "ZGIuaW50ZXJuYWw=" });
    let data = Patch::Merge(json!({ "data": data }));
    secrets(&environment)
        .patch("web-outputs", &PatchParams::default(), &data)
        .await
        .unwrap();
    assert_eq!(environment.stdout(&complete).await, "db.host\nports\n:36\n");
    let (code, data, notes) = outputs(&environment, &["db.host", "--show-sensitive"]).await;
    assert_eq!((code, data.as_str()), (Some(0), "db.internal\n"), "{notes}");
    let (code, _, _) = outputs(&environment, &["host", "--show-sensitive"]).await;
    assert_eq!(code, Some(1));
    secrets(&environment)
        .delete("web-outputs", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(environment.stdout(&complete).await, ":36\n");
}
