//! What a stack is given: variables from everywhere, values with templates, a rendered module, variable files.

use crate::looks::condition;
use crate::world::World;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

/// Three texts with defaults of their own, all of them outputs.
const TEXTS: &str = r#"
variable "a" { default = "own-a" }
variable "b" { default = "own-b" }
variable "c" { default = "own-c" }
output "all" { value = "${var.a} ${var.b} ${var.c}" }
"#;

async fn config(world: &World, name: &str, data: serde_json::Value) {
    let map = json!({ "metadata": { "name": name }, "data": data });
    let api: Api<ConfigMap> = world.api();
    api.create(&PostParams::default(), &serde_json::from_value(map).unwrap())
        .await
        .unwrap();
}

/// Creates a stack that writes its outputs, waits until it has, and gives the output `all`.
async fn all(world: &World, name: &str, mut spec: serde_json::Value) -> String {
    spec["writeOutputsToSecret"] = json!({ "name": format!("{name}-out") });
    world.stack(name, spec).await;
    world.ready(name, "True TerraformOutputsWritten").await;
    world.value(&format!("{name}-out"), "all").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn vars_from_gives_all_keys_or_chosen_and_renamed_ones_and_the_last_wins() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", TEXTS)]).await;
    world.secret("one", &[("a", "one-a"), ("b", "one-b")]).await;
    world.secret("two", &[("b", "two-b"), ("x", "two-x")]).await;
    config(&world, "three", json!({ "c": "three-c", "b": "three-b" })).await;
    config(&world, "four", json!({ "a": "four-a", "b": "four-b" })).await;
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
            // What a Secret lacks is empty, what a ConfigMap lacks is left out.
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
        assert_eq!(all(&world, name, spec).await, wanted, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_secret_is_a_failure_unless_it_is_optional_and_counts_once_it_is_there() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", TEXTS)]).await;
    let from = |optional: bool| json!([{ "kind": "Secret", "name": "late", "optional": optional }]);
    let out = |name: &str| json!({ "name": name });
    world
        .stack(
            "strict",
            json!({ "varsFrom": from(false), "writeOutputsToSecret": out("strict-out") }),
        )
        .await;
    world
        .stack(
            "loose",
            json!({ "varsFrom": from(true), "writeOutputsToSecret": out("loose-out") }),
        )
        .await;
    let failed = world.ready("strict", "False VarsGenerationFailed").await;
    assert!(
        condition(&failed, "Ready").contains("Secret late of varsFrom"),
        "{}",
        condition(&failed, "Ready")
    );
    world.ready("loose", "True TerraformOutputsWritten").await;
    assert_eq!(
        world.value("loose-out", "all").await.unwrap(),
        "own-a own-b own-c"
    );
    world.secret("late", &[("a", "late-a")]).await;
    for name in ["strict", "loose"] {
        world.request(name, "now").await;
        let secret = format!("{name}-out");
        let looking = async {
            while world.value(&secret, "all").await.as_deref() != Some("late-a own-b own-c") {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(crate::world::DEADLINE, looking)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_takes_its_value_from_a_key_and_optional_ones_leave_the_default() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", TEXTS)]).await;
    world.secret("keys", &[("one", "from-secret")]).await;
    config(&world, "maps", json!({ "two": "from-map" })).await;
    let secret = |key: &str, optional: bool| json!({ "secretKeyRef": { "name": "keys", "key": key, "optional": optional } });
    let spec = json!({ "vars": [
        { "name": "a", "valueFrom": secret("one", false) },
        { "name": "b", "valueFrom": { "configMapKeyRef": { "name": "maps", "key": "two" } } },
        { "name": "c", "valueFrom": secret("absent", true) },
    ] });
    assert_eq!(all(&world, "net", spec).await, "from-secret from-map own-c");
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
        world
            .stack(name, json!({ "vars": [{ "name": "a", "valueFrom": from }] }))
            .await;
        let failed = world.ready(name, "False VarsGenerationFailed").await;
        assert!(
            condition(&failed, "Ready").contains(text),
            "{}",
            condition(&failed, "Ready")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_every_json_type_reach_the_module_and_come_back_typed() {
    let world = World::new().await;
    let module = r#"
        variable "o" { type = object({ n = number, l = list(string), t = bool }) }
        variable "s" {}
        output "o" { value = var.o }
        output "s" { value = var.s }
    "#;
    world.commit("a", &[("main.tf", module)]).await;
    world.secret("text", &[("s", "plain")]).await;
    world
        .stack(
            "net",
            json!({ "vars": [{ "name": "o", "value": { "n": 1.5, "l": ["x"], "t": true } }],
            "varsFrom": [{ "kind": "Secret", "name": "text" }], "writeOutputsToSecret": { "name": "out" } }),
        )
        .await;
    world.ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(world.value("out", "s").await.unwrap(), "plain");
    let object: serde_json::Value = serde_json::from_str(&world.value("out", "o").await.unwrap()).unwrap();
    assert_eq!(object, json!({ "n": 1.5, "l": ["x"], "t": true }));
    let kind: serde_json::Value =
        serde_json::from_str(&world.value("out", "o__type").await.unwrap()).unwrap();
    assert_eq!(kind[0], "object");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_rendered_with_the_typed_outputs_of_another_stack() {
    let world = World::new().await;
    let giver = r#"
        output "id" { value = "vpc-1" }
        output "count" { value = 3 }
        output "zones" { value = ["a", "b"] }
    "#;
    let reader = r#"
        variable "values" {}
        output "all" { value = "${var.values.name} ${var.values.size + 1} ${join("+", var.values.plain)}" }
    "#;
    world
        .commit("a", &[("giver/main.tf", giver), ("reader/main.tf", reader)])
        .await;
    let values = json!({ "name": "${{ .net.id }}${{ range .net.zones }}-${{ . }}${{ end }}", "size": "${{ .net.count }}",
        "plain": ["x", "{{ y }}"] });
    let spec = json!({ "path": "reader", "values": values, "readInputsFromSecrets": [{ "name": "giver-out", "as": "net" }],
        "writeOutputsToSecret": { "name": "reader-out" } });
    world.stack("reader", spec).await;
    let waits = world.ready("reader", "False VarsGenerationFailed").await;
    assert!(
        condition(&waits, "Ready").contains("Secret giver-out of readInputsFromSecrets"),
        "{}",
        condition(&waits, "Ready")
    );
    world
        .stack(
            "giver",
            json!({ "path": "giver", "writeOutputsToSecret": { "name": "giver-out" } }),
        )
        .await;
    world.ready("reader", "True TerraformOutputsWritten").await;
    assert_eq!(
        world.value("reader-out", "all").await.unwrap(),
        "vpc-1-a-b 4 x+{{ y }}"
    );

    world
        .edit("reader", json!({ "values": { "name": "${{ upper .net.id }}" } }))
        .await;
    let failed = world.ready("reader", "False VarsGenerationFailed").await;
    assert!(
        condition(&failed, "Ready").contains("function \"upper\" is not defined"),
        "{}",
        condition(&failed, "Ready")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn main_tf_tpl_is_rendered_with_all_variables_and_an_unknown_function_is_named() {
    let world = World::new().await;
    let template = r#"
        {{- range $i, $name := .Values.names }}
        output "{{ $name | lower }}" { value = "{{ $i }}-{{ $.suffix | upper }}-{{ $.values.names | join "+" }}" }
        {{- end }}
    "#;
    let declared = "variable \"values\" {}\nvariable \"suffix\" {}\n";
    world
        .commit("a", &[("main.tf.tpl", template), ("variables.tf", declared)])
        .await;
    world
        .stack(
            "net",
            json!({ "values": { "names": ["One", "Two"] }, "vars": [{ "name": "suffix", "value": "x" }],
            "writeOutputsToSecret": { "name": "out" } }),
        )
        .await;
    world.ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(world.value("out", "one").await.unwrap(), "0-X-One+Two");
    assert_eq!(world.value("out", "two").await.unwrap(), "1-X-One+Two");

    world
        .commit(
            "b",
            &[
                ("main.tf.tpl", "\n{{ frobnicate .suffix }}"),
                ("variables.tf", declared),
            ],
        )
        .await;
    let failed = world.ready("net", "False TemplateGenerationFailed").await;
    assert!(
        condition(&failed, "Ready").contains("line 2: function \"frobnicate\" is not defined"),
        "{}",
        condition(&failed, "Ready")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn variable_files_override_the_generated_ones_in_order_at_plan_and_at_apply() {
    let world = World::new().await;
    let one = ("env/one.tfvars", "a = \"one-a\"\nb = \"one-b\"\n");
    let two = |text| ("env/two.tfvars.json", text);
    world
        .commit("a", &[("app/main.tf", TEXTS), one, two(r#"{"b": "two-b"}"#)])
        .await;
    let spec = json!({ "path": "app", "vars": [{ "name": "a", "value": "var-a" }, { "name": "c", "value": "var-c" }],
        "tfVarsFiles": ["env/one.tfvars", "./app/../env/two.tfvars.json"], "approvePlan": "",
        "writeOutputsToSecret": { "name": "out" } });
    world.stack("net", spec).await;
    let planned = world.ready("net", "Unknown TerraformPlannedWithChanges").await;
    world
        .edit("net", json!({ "approvePlan": crate::looks::pending(&planned) }))
        .await;
    world.ready("net", "True TerraformOutputsWritten").await;
    assert_eq!(world.value("out", "all").await.unwrap(), "one-a two-b var-c");

    // A commit that changes only a variable file is one that the stack reads.
    let revision = world
        .commit("b", &[("app/main.tf", TEXTS), one, two(r#"{"b": "new-b"}"#)])
        .await;
    let planned = world.ready("net", "Unknown TerraformPlannedWithChanges").await;
    assert_eq!(planned.status.unwrap().last_planned_revision, revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_file_that_is_missing_or_a_directory_fails_the_plan_and_none_leads_out() {
    let world = World::new().await;
    world
        .commit("a", &[("main.tf", TEXTS), ("env/one.tfvars", "a = \"x\"\n")])
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
        world.stack(name, json!({ "tfVarsFiles": [file] })).await;
        let failed = world.ready(name, "False TFExecPlanFailed").await;
        assert!(
            condition(&failed, "Ready").contains(text),
            "{}",
            condition(&failed, "Ready")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_no_set_of_inputs_is_named_by_its_key_without_its_value() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", "variable \"values\" {}")]).await;
    world
        .secret("typed", &[("n", "hunter2"), ("n__type", "\"number\"")])
        .await;
    let spec = json!({ "values": { "n": "${{ .in.n }}" }, "readInputsFromSecrets": [{ "name": "typed", "as": "in" }] });
    world.stack("net", spec).await;
    let failed = world.ready("net", "False VarsGenerationFailed").await;
    let text = condition(&failed, "Ready");
    assert!(
        text.contains("the value of key \"n\" is no JSON of the type") && !text.contains("hunter2"),
        "{text}"
    );
    let good = json!({ "stringData": { "n": "7" } });
    let api: Api<Secret> = world.api();
    api.patch("typed", &PatchParams::default(), &Patch::Merge(good))
        .await
        .unwrap();
    world.ready("net", "True TerraformPlannedNoChanges").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_meets_an_input_that_is_away_is_echoed_at_once_and_carried_out_later() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", TEXTS)]).await;
    world.secret("late", &[("a", "one")]).await;
    let from = json!([{ "kind": "Secret", "name": "late" }]);
    world
        .stack("net", json!({ "varsFrom": from, "retryInterval": "1h" }))
        .await;
    world.ready("net", "True ").await;
    let secrets: Api<Secret> = world.api();
    secrets.delete("late", &DeleteParams::default()).await.unwrap();
    world.ready("net", "False VarsGenerationFailed").await;
    world.request("net", "look").await;
    world
        .until("net", "the request to be answered", |stack| {
            let status = stack.status.as_ref();
            status.is_some_and(|status| status.last_handled_reconcile_at == "look")
        })
        .await;
    assert_eq!(world.runs("net").await.len(), 1);
    world.secret("late", &[("a", "one")]).await;
    world
        .run("net", "to look as asked", |run| {
            run.spec.trigger.as_str() == "Request"
        })
        .await;
    world.ready("net", "True NoDrift").await;
}
