//! Ids of real plans, stored plans, and applies of stored plans.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;

use crate::cli_wrapper::wrap_cli;
use crate::environment::{NAMESPACE, RunSetup, TestEnvironment, assert_ending, ending, status};

const VOLATILE: &str = r#"
variable "secret" {
  default   = "hunter2"
  sensitive = true
}
resource "terraform_data" "one" {
  input = { when = timestamp(), id = uuid(), hash = bcrypt("x"), secret = var.secret, number = 0.1 }
}
resource "terraform_data" "two" { input = "behind ${terraform_data.one.id}" }
output "when" { value = timestamp() }
"#;

/// A fixed inputs digest. By default it is that of the artifact, which contains times.
fn inputs() -> Value {
    json!({ "inputsDigest": "hmac-sha256:11" })
}

/// Plans with changes and returns the plan id.
async fn plan_and_get_id(env: &TestEnvironment) -> String {
    let planned = env.run(RunSetup::plan().with(inputs())).await;
    assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
    status(&planned).plan_id
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_plans_of_the_same_inputs_in_two_directories_have_one_id() {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let env = TestEnvironment::new("").await;
        env.commit(&[("main.tf", VOLATILE)]);
        for _ in 0..5 {
            ids.push(plan_and_get_id(&env).await);
        }
    }
    assert_eq!(ids.len(), 10);
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
}

/// Writes the state of another stack with one output for `terraform_remote_state`.
fn other_state(env: &TestEnvironment, command: &str) -> String {
    let file = env.dir.path().join("other.tfstate");
    let state = json!({ "version": 4, "terraform_version": "1.0.0", "serial": 1, "lineage": "a",
        "outputs": { "command": { "value": command, "type": "string" } }, "resources": [] });
    std::fs::write(&file, state.to_string()).unwrap();
    format!(
        "data \"terraform_remote_state\" \"other\" {{\n  backend = \"local\"\n  config  = {{ path = \"{}\" }}\n}}\n",
        file.display()
    )
}

/// The values of a command from data sources are neither inputs nor in a change.
#[tokio::test(flavor = "multi_thread")]
async fn a_provisioner_command_from_data_changes_the_id() {
    let env = TestEnvironment::new("").await;
    for (for_each, command) in [
        (
            "toset([\"k\"])",
            "data.terraform_remote_state.other.outputs.command",
        ),
        // The key does not change.
        (
            "{ k = data.terraform_remote_state.other.outputs.command }",
            "each.value",
        ),
    ] {
        let module = format!(
            "resource \"terraform_data\" \"it\" {{\n  for_each = {for_each}\n  provisioner \"local-exec\" {{ command = {command} }}\n}}\n"
        );
        let mut ids = Vec::new();
        for said in ["echo kind", "echo kind", "echo evil"] {
            let data = other_state(&env, said);
            env.commit(&[("main.tf", &format!("{data}{module}"))]);
            ids.push(plan_and_get_id(&env).await);
        }
        assert_eq!(ids[0], ids[1], "{command}");
        assert_ne!(ids[1], ids[2], "another command: {command}");
    }
}

/// Only a data source shows the contents of an archive, and nothing shows a difference in times.
#[tokio::test(flavor = "multi_thread")]
async fn data_changes_the_id_of_a_plan_with_generated_files() {
    let env = TestEnvironment::new("").await;
    let cli = wrap_cli(&env, "[ \"$1\" = plan ] && date +%s.%N > made.txt");
    let mut ids = Vec::new();
    for hash in ["one", "one", "two"] {
        let data = other_state(&env, hash);
        env.commit(&[(
            "main.tf",
            &format!("{data}resource \"terraform_data\" \"it\" {{}}\n"),
        )]);
        let planned = env.run_with_path(RunSetup::plan().with(inputs()), &cli).await;
        assert_eq!(ending(&planned), "Succeeded TerraformPlannedWithChanges");
        ids.push(status(&planned).plan_id);
    }
    assert_eq!(ids[0], ids[1], "the time is not an effect");
    assert_ne!(ids[1], ids[2], "what data tells is one");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readable_plan_shows_the_effect_and_is_removed_when_disabled() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", VOLATILE)]);
    let form = |form: &str| json!({ "inputsDigest": "hmac-sha256:11", "readablePlan": form });
    let planned = env.run(RunSetup::plan().with(form("human"))).await;
    let maps: Api<ConfigMap> = Api::namespaced(env.client(), NAMESPACE);
    let text = maps.get("tfplan-default-net").await.unwrap().data.unwrap()["tfplan"].clone();
    assert!(
        text.contains("Terraform will perform") || text.contains("OpenTofu will perform"),
        "the CLI's own text"
    );
    let covered = text
        .split_once("What this plan's id covers (sluice.effect/2):\n")
        .unwrap()
        .1;
    assert!(
        covered.starts_with("  inputs: hmac-sha256:11\n  modules: none\n  lock: "),
        "{covered}"
    );
    for line in [
        "+ terraform_data.one: create\n",
        "    # type: \"terraform_data\"\n",
        "    input.when: (absent) -> (known after apply)\n",
        "    input.number: (absent) -> 0.1\n",
        "    input.secret: (absent) -> (sensitive value)\n",
        "+ output when: create\n",
    ] {
        assert!(covered.contains(line), "{line:?} is not in\n{covered}");
    }
    assert!(!text.contains("hunter2"));
    assert_eq!(status(&planned).plan_id.len(), "plan-main-0123456789-".len() + 40);

    env.run(RunSetup::plan().with(form("json"))).await;
    let names = env.stored().await;
    assert!(names.contains(&"tfplan-default-net.json".to_owned()), "{names:?}");
    assert!(
        !names.contains(&"tfplan-default-net".to_owned()),
        "the text went: {names:?}"
    );
    let secrets: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let data = secrets
        .get("tfplan-default-net.json")
        .await
        .unwrap()
        .data
        .unwrap();
    let effect = sluice_tf_core::chunk::decompress(&data["effect"].0, 1_000_000).unwrap();
    let effect: Value = serde_json::from_slice(&effect).unwrap();
    assert_eq!(effect["form"], "sluice.effect/2");
    let json = sluice_tf_core::chunk::decompress(&data["tfplan"].0, 1_000_000).unwrap();
    assert!(serde_json::from_slice::<Value>(&json).unwrap()["resource_changes"].is_array());

    env.run(RunSetup::plan().with(form("none"))).await;
    let names = env.stored().await;
    assert!(!names.iter().any(|name| name.contains("net.json")), "{names:?}");
}

/// The state contains resources that the plan does not change, for example those that are not targets.
#[tokio::test(flavor = "multi_thread")]
async fn the_readable_json_contains_no_sensitive_values_of_the_state() {
    const CANARY: &str = "canary-of-the-state";
    let env = TestEnvironment::new("auto").await;
    let module = |word: &str| {
        format!(
            "variable \"pin\" {{\n  default   = \"4711\"\n  sensitive = true\n}}\n\
             resource \"terraform_data\" \"secret\" {{ input = sensitive(\"{CANARY}\") }}\n\
             resource \"terraform_data\" \"it\" {{ input = {{ word = \"{word}\", pin = var.pin }} }}\n"
        )
    };
    env.commit(&[("main.tf", &module("one"))]);
    let applied = env.run(RunSetup::plan_and_apply().with(inputs())).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    env.commit(&[("main.tf", &module("two").replace(CANARY, "something-else"))]);
    let options = json!({ "targets": ["terraform_data.it"], "planLock": true, "upgradeOnInit": true });
    let setup = RunSetup::plan().with(json!({ "options": options, "readablePlan": "json" }));
    let planned = env.run(setup).await;
    assert_eq!(status(&planned).changes, "+0 ~1 -0", "{:?}", planned.status);
    let secrets: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let data = secrets
        .get("tfplan-default-net.json")
        .await
        .unwrap()
        .data
        .unwrap();
    let json = sluice_tf_core::chunk::decompress(&data["tfplan"].0, 1_000_000).unwrap();
    let text = String::from_utf8(json).unwrap();
    assert!(
        text.contains("terraform_data.secret") && !text.contains(CANARY),
        "{text}"
    );
    let plan: Value = serde_json::from_str(&text).unwrap();
    let changed = plan["resource_changes"][0]["change"]["after"]["input"].clone();
    assert_eq!(changed, json!({ "word": "two", "pin": "(sensitive)" }));
    assert_eq!(plan["variables"]["pin"]["value"], "(sensitive)");
}

/// The JSON of the plans of `net` and the plans of a stack `net.json` have the same labels.
#[tokio::test(flavor = "multi_thread")]
async fn stored_plans_of_stacks_with_similar_names_are_retained() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", VOLATILE)]);
    let stacks: Api<Terraform> = Api::namespaced(env.client(), NAMESPACE);
    let mut other = stacks.get("net").await.unwrap();
    other.metadata = ObjectMeta {
        name: Some("net.json".to_owned()),
        ..ObjectMeta::default()
    };
    let other = stacks.create(&PostParams::default(), &other).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let foreign: Secret = serde_json::from_value(json!({ "metadata": { "name": "tfplan-default-net.json-0123456789-0",
        "labels": { "infra.contrib.fluxcd.io/plan-name": "net.json", "infra.contrib.fluxcd.io/plan-workspace": "default" },
        "ownerReferences": [{ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "name": "net.json",
                              "uid": other.uid() }] } }))
    .unwrap();
    secrets.create(&PostParams::default(), &foreign).await.unwrap();
    for form in ["json", "none", "human"] {
        let setup = RunSetup::plan().with(json!({ "inputsDigest": "hmac-sha256:11", "readablePlan": form }));
        assert_eq!(
            ending(&env.run(setup).await),
            "Succeeded TerraformPlannedWithChanges"
        );
        let names = env.stored().await;
        assert!(names.contains(&foreign.name_any()), "{form}: {names:?}");
    }
}

fn bundle_with_keys(keys: &Value) -> Value {
    json!({ "inputsDigest": "hmac-sha256:11", "planKeys": keys })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_plan_is_applied_by_a_new_process_from_stored_data() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", VOLATILE)]);
    let old = json!({ "id": "2026-01", "key": "01".repeat(32) });
    let new = json!({ "id": "2026-02", "key": "02".repeat(32) });
    let planned = env
        .run(RunSetup::plan().with(bundle_with_keys(&json!([old]))))
        .await;
    assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
    let secrets: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let stored = secrets
        .list(&ListParams::default().labels("infra.contrib.fluxcd.io/plan-name=net"))
        .await
        .unwrap()
        .items;
    assert_eq!(stored.len(), 1);
    assert_eq!(
        stored[0].data.as_ref().unwrap().keys().collect::<Vec<_>>(),
        ["sealed"]
    );
    assert_eq!(
        stored[0].annotations()["infra.sluice.dev/plan-sealed-with"],
        "2026-01"
    );

    let without = env
        .run(RunSetup::apply(&planned).with(bundle_with_keys(&json!([new]))))
        .await;
    assert_eq!(ending(&without), "Failed TFExecApplyFailed");
    assert!(
        status(&without)
            .message
            .contains("sealed with the key \"2026-01\""),
        "{:?}",
        without.status
    );
    assert!(!status(&without).attempted_apply);

    std::fs::remove_dir_all(env.dir.path().join("work")).unwrap();
    let name = env
        .prepare(RunSetup::apply(&planned).with(bundle_with_keys(&json!([new, old]))))
        .await;
    let (mut process, _) = env.spawn(&name);
    let waited = tokio::task::spawn_blocking(move || process.wait().unwrap())
        .await
        .unwrap();
    let applied = env.get(&name).await;
    assert!(waited.success(), "{:?}", applied.status);
    assert_eq!(ending(&applied), "Succeeded TerraformAppliedSucceed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_many_mebibytes_is_stored_and_applied() {
    let env = TestEnvironment::new("").await;
    let module = "resource \"terraform_data\" \"big\" {\n  count = 6\n  input = file(\"${path.module}/data-${count.index}\")\n}\n";
    let files: Vec<(String, String)> = (0..6)
        .map(|index| (format!("data-{index}"), noise(index, 3_600_000)))
        .collect();
    let mut all: Vec<(&str, &str)> = vec![("main.tf", module)];
    all.extend(files.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    env.commit(&all);
    let mut bundle = bundle_with_keys(&json!([{ "id": "a", "key": "01".repeat(32) }]));
    // The state exceeds the size of a Secret of the `kubernetes` backend.
    let state = env.dir.path().join("large.tfstate");
    bundle["backend"] = json!(format!(
        "terraform {{\n  backend \"local\" {{ path = \"{}\" }}\n}}\n",
        state.display()
    ));
    let planned = env.run(RunSetup::plan().with(bundle.clone())).await;
    assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
    let stored = env.stored().await;
    let chunks = stored
        .iter()
        .filter(|name| name.starts_with("tfplan-default-net-"))
        .count();
    assert!(chunks > 15, "{chunks} chunks hold more than 13 MB");
    let applied = env.run(RunSetup::apply(&planned).with(bundle)).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    let state = std::fs::read_to_string(state).unwrap();
    assert!(files.iter().all(|(_, text)| state.contains(text.as_str())));
}

/// An approval is valid for one apply.
#[tokio::test(flavor = "multi_thread")]
async fn an_apply_with_stale_plan_in_a_provisioners_output_has_begun() {
    let env = TestEnvironment::new("").await;
    let module = "resource \"terraform_data\" \"it\" {\n  provisioner \"local-exec\" {\n    \
        command = \"echo 'Error: Saved plan is stale' >&2; exit 1\"\n  }\n}\n";
    env.commit(&[("main.tf", module)]);
    let planned = env.run(RunSetup::plan()).await;
    let applied = env.run(RunSetup::apply(&planned)).await;
    assert_ending(&applied, "Failed TFExecApplyFailed");
    let message = status(&applied).message;
    assert!(message.contains("Saved plan is stale"), "{message}");
}

/// Returns random letters, which do not compress well.
pub(crate) fn noise(seed: u64, length: usize) -> String {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(LETTERS[(state >> 58) as usize])
    };
    (0..length).map(next).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_apply_logs_the_plan_if_configured() {
    const CANARY: &str = "canary-of-the-plan";
    let env = TestEnvironment::new("auto").await;
    env.commit(&[(
        "main.tf",
        "variable \"word\" {}\nresource \"terraform_data\" \"it\" { input = var.word }\n",
    )]);
    let variables = json!({ "word": CANARY }).to_string();
    let setup = RunSetup::plan_and_apply().with(json!({ "variables": variables, "secrets": [CANARY] }));
    for (value, shown) in [("1", true), ("0", false)] {
        let name = env.prepare(setup.clone()).await;
        let log = env.log_with(&name, ("LOG_HUMAN_READABLE_PLAN", value)).await;
        assert_eq!(
            ending(&env.get(&name).await),
            "Succeeded TerraformAppliedSucceed",
            "{log}"
        );
        assert_eq!(log.contains("terraform_data.it will be created"), shown, "{log}");
        assert!(!log.contains(CANARY), "{log}");
        let destroy = RunSetup {
            destroy: true,
            ..setup.clone()
        };
        env.run(destroy).await;
    }
}
