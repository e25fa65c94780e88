//! Inputs of a stack: variables from all kinds of sources, values with templates, a rendered module, variable files.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::environment::TestEnvironment;
use crate::observe::condition;

/// Three variables with defaults, all of them outputs.
const TEXTS: &str = r#"
variable "a" { default = "own-a" }
variable "b" { default = "own-b" }
variable "c" { default = "own-c" }
output "all" { value = "${var.a} ${var.b} ${var.c}" }
"#;

/// Creates two Secrets and two ConfigMaps with variables.
async fn create_variable_sources(env: &TestEnvironment) {
    env.secret("one", &[("a", "one-a"), ("b", "one-b")]).await;
    env.secret("two", &[("b", "two-b"), ("x", "two-x")]).await;
    env.config_map("three", json!({ "c": "three-c", "b": "three-b" }))
        .await;
    env.config_map("four", json!({ "a": "four-a", "b": "four-b" }))
        .await;
}

/// Creates a stack with outputs, waits for them, and returns the output `all`.
async fn output_all(env: &TestEnvironment, name: &str, mut spec: serde_json::Value) -> String {
    spec["writeOutputsToSecret"] = json!({ "name": format!("{name}-out") });
    env.stack(name, spec).await;
    env.wait_ready(name, "True TerraformOutputsWritten").await;
    env.value(&format!("{name}-out"), "all").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn vars_from_uses_all_or_selected_and_renamed_keys_and_the_last_wins() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", TEXTS)]).await;
    create_variable_sources(&env).await;
    let from = |kind: &str, name: &str| json!({ "kind": kind, "name": name });
    let keys =
        |kind: &str, name: &str, keys: &[&str]| json!({ "kind": kind, "name": name, "varsKeys": keys });
    for (name, spec, wanted) in [
        (
            "whole",
            json!({ "varsFrom": [from("Secret", "one")] }),
            "one-a one-b own-c",
        ),
        (
            "chosen",
            json!({ "varsFrom": [keys("Secret", "one", &["b"])] }),
            "own-a one-b own-c",
        ),
        (
            "renamed",
            json!({ "varsFrom": [keys("Secret", "two", &["x:a", "b:c"])] }),
            "two-x own-b two-b",
        ),
        (
            "many",
            json!({ "varsFrom": [from("Secret", "one"), keys("Secret", "two", &["b", "x:c"])] }),
            "one-a two-b two-x",
        ),
        (
            "maps",
            json!({ "varsFrom": [from("Secret", "one"), from("ConfigMap", "three"), keys("ConfigMap", "three", &["c:a"])] }),
            "three-c three-b three-c",
        ),
        (
            "last",
            json!({ "varsFrom": [from("ConfigMap", "three"), keys("ConfigMap", "four", &["b"])] }),
            "own-a four-b three-c",
        ),
        (
            "last-whole",
            json!({ "varsFrom": [keys("ConfigMap", "four", &["b"]), from("ConfigMap", "three")] }),
            "own-a three-b three-c",
        ),
        (
            // A missing key of a Secret is empty, one of a ConfigMap is omitted.
            "lacking",
            json!({ "varsFrom": [keys("Secret", "one", &["a", "c"]), keys("ConfigMap", "three", &["q:b"])] }),
            "one-a own-b ",
        ),
        (
            "override",
            json!({ "vars": [{ "name": "a", "value": "var-a" }, { "name": "b", "value": "var-b" }],
                "varsFrom": [keys("Secret", "one", &["a"])] }),
            "one-a var-b own-c",
        ),
    ] {
        assert_eq!(output_all(&env, name, spec).await, wanted, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_secret_fails_unless_optional_and_counts_once_it_exists() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", TEXTS)]).await;
    let from = |optional: bool| json!([{ "kind": "Secret", "name": "late", "optional": optional }]);
    let out = |name: &str| json!({ "name": name });
    env.stack(
        "strict",
        json!({ "varsFrom": from(false), "writeOutputsToSecret": out("strict-out") }),
    )
    .await;
    env.stack(
        "loose",
        json!({ "varsFrom": from(true), "writeOutputsToSecret": out("loose-out") }),
    )
    .await;
    let failed = env.wait_ready("strict", "False VarsGenerationFailed").await;
    assert!(
        condition(&failed, "Ready").contains("Secret late of varsFrom"),
        "{}",
        condition(&failed, "Ready")
    );
    env.wait_ready("loose", "True TerraformOutputsWritten").await;
    assert_eq!(env.value("loose-out", "all").await.unwrap(), "own-a own-b own-c");
    env.secret("late", &[("a", "late-a")]).await;
    for name in ["strict", "loose"] {
        env.request(name, "now").await;
        let secret = format!("{name}-out");
        let looking = async {
            while env.value(&secret, "all").await.as_deref() != Some("late-a own-b own-c") {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(crate::environment::TIMEOUT, looking)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_takes_its_value_from_a_key_and_optional_ones_keep_the_default() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", TEXTS)]).await;
    env.secret("keys", &[("one", "from-secret")]).await;
    env.config_map("maps", json!({ "two": "from-map" })).await;
    let secret = |key: &str, optional: bool| json!({ "secretKeyRef": { "name": "keys", "key": key, "optional": optional } });
    let spec = json!({ "vars": [
        { "name": "a", "valueFrom": secret("one", false) },
        { "name": "b", "valueFrom": { "configMapKeyRef": { "name": "maps", "key": "two" } } },
        { "name": "c", "valueFrom": secret("absent", true) },
    ] });
    assert_eq!(output_all(&env, "net", spec).await, "from-secret from-map own-c");
    for (name, from, text) in [
        (
            "key",
            secret("absent", false),
            "vars[a].valueFrom has no key \"absent\"",
        ),
        (
            "kind",
            json!({ "fieldRef": { "fieldPath": "metadata.name" } }),
            "neither secretKeyRef nor configMapKeyRef",
        ),
        (
            "gone",
            json!({ "configMapKeyRef": { "name": "gone", "key": "k" } }),
            "cannot read ConfigMap gone",
        ),
    ] {
        env.stack(name, json!({ "vars": [{ "name": "a", "valueFrom": from }] }))
            .await;
        let failed = env.wait_ready(name, "False VarsGenerationFailed").await;
        assert!(
            condition(&failed, "Ready").contains(text),
            "{}",
            condition(&failed, "Ready")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_every_json_type_reach_the_module_and_are_returned_with_their_types() {
    let env = TestEnvironment::new().await;
    let module = r#"
        variable "o" { type = object({ n = number, l = list(string), t = bool }) }
        variable "s" {}
        output "o" { value = var.o }
        output "s" { value = var.s }
    "#;
    env.commit("a", &[("main.tf", module)]).await;
    env.secret("text", &[("s", "plain")]).await;
    env.stack(
        "net",
        json!({ "vars": [{ "name": "o", "value": { "n": 1.5, "l": ["x"], "t": true } }],
            "varsFrom": [{ "kind": "Secret", "name": "text" }], "writeOutputsToSecret": { "name": "out" } }),
    )
    .await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(env.value("out", "s").await.unwrap(), "plain");
    let object: serde_json::Value = serde_json::from_str(&env.value("out", "o").await.unwrap()).unwrap();
    assert_eq!(object, json!({ "n": 1.5, "l": ["x"], "t": true }));
    let kind: serde_json::Value = serde_json::from_str(&env.value("out", "o__type").await.unwrap()).unwrap();
    assert_eq!(kind[0], "object");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_rendered_with_the_typed_outputs_of_another_stack() {
    let env = TestEnvironment::new().await;
    let giver = r#"
        output "id" { value = "vpc-1" }
        output "count" { value = 3 }
        output "zones" { value = ["a", "b"] }
    "#;
    let reader = r#"
        variable "values" {}
        output "all" { value = "${var.values.name} ${var.values.size + 1} ${join("+", var.values.plain)}" }
    "#;
    env.commit("a", &[("giver/main.tf", giver), ("reader/main.tf", reader)])
        .await;
    let values = json!({ "name": "${{ .net.id }}${{ range .net.zones }}-${{ . }}${{ end }}", "size": "${{ .net.count }}",
        "plain": ["x", "{{ y }}"] });
    let spec = json!({ "path": "reader", "values": values, "readInputsFromSecrets": [{ "name": "giver-out", "as": "net" }],
        "writeOutputsToSecret": { "name": "reader-out" } });
    env.stack("reader", spec).await;
    let missing = env.wait_ready("reader", "False VarsGenerationFailed").await;
    assert!(
        condition(&missing, "Ready").contains("Secret giver-out of readInputsFromSecrets"),
        "{}",
        condition(&missing, "Ready")
    );
    env.stack(
        "giver",
        json!({ "path": "giver", "writeOutputsToSecret": { "name": "giver-out" } }),
    )
    .await;
    env.wait_ready("reader", "True TerraformOutputsWritten").await;
    assert_eq!(
        env.value("reader-out", "all").await.unwrap(),
        "vpc-1-a-b 4 x+{{ y }}"
    );

    env.edit("reader", json!({ "values": { "name": "${{ upper .net.id }}" } }))
        .await;
    let failed = env.wait_ready("reader", "False VarsGenerationFailed").await;
    assert!(
        condition(&failed, "Ready").contains("function \"upper\" is not defined"),
        "{}",
        condition(&failed, "Ready")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn main_tf_tpl_is_rendered_with_all_variables_and_unknown_functions_are_reported() {
    let env = TestEnvironment::new().await;
    let template = r#"
        {{- range $i, $name := .Values.names }}
        output "{{ $name | lower }}" { value = "{{ $i }}-{{ $.suffix | upper }}-{{ $.values.names | join "+" }}" }
        {{- end }}
    "#;
    let declared = "variable \"values\" {}\nvariable \"suffix\" {}\n";
    env.commit("a", &[("main.tf.tpl", template), ("variables.tf", declared)])
        .await;
    env.stack(
        "net",
        json!({ "values": { "names": ["One", "Two"] }, "vars": [{ "name": "suffix", "value": "x" }],
            "writeOutputsToSecret": { "name": "out" } }),
    )
    .await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(env.value("out", "one").await.unwrap(), "0-X-One+Two");
    assert_eq!(env.value("out", "two").await.unwrap(), "1-X-One+Two");

    env.commit(
        "b",
        &[
            ("main.tf.tpl", "\n{{ frobnicate .suffix }}"),
            ("variables.tf", declared),
        ],
    )
    .await;
    let failed = env.wait_ready("net", "False TemplateGenerationFailed").await;
    assert!(
        condition(&failed, "Ready").contains("line 2: function \"frobnicate\" is not defined"),
        "{}",
        condition(&failed, "Ready")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn variable_files_override_the_generated_ones_in_order_at_plan_and_apply() {
    let env = TestEnvironment::new().await;
    let one = ("env/one.tfvars", "a = \"one-a\"\nb = \"one-b\"\n");
    let two = |text| ("env/two.tfvars.json", text);
    env.commit("a", &[("app/main.tf", TEXTS), one, two(r#"{"b": "two-b"}"#)])
        .await;
    let spec = json!({ "path": "app", "vars": [{ "name": "a", "value": "var-a" }, { "name": "c", "value": "var-c" }],
        "tfVarsFiles": ["env/one.tfvars", "./app/../env/two.tfvars.json"], "approvePlan": "",
        "writeOutputsToSecret": { "name": "out" } });
    env.stack("net", spec).await;
    let planned = env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    env.edit("net", json!({ "approvePlan": crate::observe::pending(&planned) }))
        .await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(env.value("out", "all").await.unwrap(), "one-a two-b var-c");

    // A commit that only changes a variable file changes the inputs.
    let revision = env
        .commit("b", &[("app/main.tf", TEXTS), one, two(r#"{"b": "new-b"}"#)])
        .await;
    let planned = env.wait_ready("net", "Unknown TerraformPlannedWithChanges").await;
    assert_eq!(planned.status.unwrap().last_planned_revision, revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_variable_file_or_a_directory_fails_the_plan_and_no_path_leads_outside() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", TEXTS), ("env/one.tfvars", "a = \"x\"\n")])
        .await;
    for (name, file, text) in [
        (
            "missing",
            "nope.tfvars",
            "error running plan: tfvars file's path does not exist: nope.tfvars",
        ),
        (
            "folder",
            "env",
            "error running plan: tfvars file's path is a directory: env",
        ),
        (
            "out",
            "../../../etc/hostname",
            "error running plan: tfvars file's path does not exist",
        ),
    ] {
        env.stack(name, json!({ "tfVarsFiles": [file] })).await;
        let failed = env.wait_ready(name, "False TFExecPlanFailed").await;
        assert!(
            condition(&failed, "Ready").contains(text),
            "{}",
            condition(&failed, "Ready")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_input_secret_is_reported_by_key_without_its_value() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", "variable \"values\" {}")]).await;
    env.secret("typed", &[("n", "hunter2"), ("n__type", "\"number\"")])
        .await;
    let spec = json!({ "values": { "n": "${{ .in.n }}" }, "readInputsFromSecrets": [{ "name": "typed", "as": "in" }] });
    env.stack("net", spec).await;
    let failed = env.wait_ready("net", "False VarsGenerationFailed").await;
    let text = condition(&failed, "Ready");
    assert!(
        text.contains("the value of key \"n\" is not JSON of the type") && !text.contains("hunter2"),
        "{text}"
    );
    let good = json!({ "stringData": { "n": "7" } });
    let api: Api<Secret> = env.api();
    api.patch("typed", &PatchParams::default(), &Patch::Merge(good))
        .await
        .unwrap();
    env.wait_ready("net", "True TerraformPlannedNoChanges").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_during_a_missing_input_is_acknowledged_at_once_and_executed_later() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", TEXTS)]).await;
    env.secret("late", &[("a", "one")]).await;
    let from = json!([{ "kind": "Secret", "name": "late" }]);
    env.stack("net", json!({ "varsFrom": from, "retryInterval": "1h" }))
        .await;
    env.wait_ready("net", "True ").await;
    let secrets: Api<Secret> = env.api();
    secrets.delete("late", &DeleteParams::default()).await.unwrap();
    env.wait_ready("net", "False VarsGenerationFailed").await;
    env.request("net", "drift-detection").await;
    env.wait_for("net", "the request acknowledged", |stack| {
        let status = stack.status.as_ref();
        status.is_some_and(|status| status.last_handled_reconcile_at == "drift-detection")
    })
    .await;
    assert_eq!(env.runs("net").await.len(), 1);
    env.secret("late", &[("a", "one")]).await;
    env.wait_run("net", "the requested run", |run| {
        run.spec.trigger.as_str() == "Request"
    })
    .await;
    env.wait_ready("net", "True NoDrift").await;
}
