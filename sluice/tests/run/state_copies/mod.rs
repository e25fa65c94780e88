//! Copies of the state before applies: when they are made, how many remain, and how a user restores one.

mod documented_commands;
mod refused_copies;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;
use sluice_harness::trial::TrialProvider;
use sluice_tf_core::bundle::{PlanKey, Stack};
use sluice_tf_core::state_copy;
use sluice_tf_core::state_summary::StateSummary;

use self::refused_copies::{apply_with, refuse_copies};
use crate::break_glass::session;
use crate::environment::{NAMESPACE, RunSetup, STACK, TestEnvironment, assert_ending, ending, status};

const MODULE: &str =
    "variable \"size\" { default = \"one\" }\nresource \"terraform_data\" \"it\" { input = var.size }\n";

/// The inputs of a run: the size of the module, and the settings of copies.
fn bundle(size: &str, copies: &Value) -> Value {
    json!({ "variables": json!({ "size": size }).to_string(), "stateCopies": copies })
}

fn three() -> Value {
    json!({ "count": 3, "limit": 1_000_000 })
}

fn key() -> Value {
    json!({ "id": "2026-01", "key": "ab".repeat(32) })
}

async fn apply(env: &TestEnvironment, size: &str, copies: &Value) -> TerraformRun {
    let run = env
        .run(RunSetup::plan_and_apply().with(bundle(size, copies)))
        .await;
    assert_ending(&run, "Succeeded TerraformAppliedSucceed");
    run
}

/// Returns the copies of the stack, oldest first.
async fn copies(env: &TestEnvironment) -> Vec<Secret> {
    let api: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let params = ListParams::default().labels("infra.sluice.dev/state-copy=net");
    let mut found = api.list(&params).await.unwrap().items;
    found.sort_by_key(|secret| serial(secret).parse::<u64>().unwrap());
    found
}

fn serial(secret: &Secret) -> &str {
    &secret.labels()[state_copy::SERIAL]
}

async fn serials(env: &TestEnvironment) -> Vec<String> {
    let all = copies(env).await;
    all.iter().map(|copy| serial(copy).to_owned()).collect()
}

fn decode(secret: &Secret, workspace: &str, keys: &[PlanKey]) -> Value {
    let stack = Stack {
        namespace: NAMESPACE.into(),
        name: STACK.into(),
        uid: String::new(),
    };
    let opened = state_copy::decode(std::slice::from_ref(secret), &stack, workspace, keys).unwrap();
    serde_json::from_slice(&opened.state).unwrap()
}

/// The size in a state.
fn size(state: &Value) -> &str {
    state["resources"][0]["instances"][0]["attributes"]["input"]["value"]
        .as_str()
        .or_else(|| state["resources"][0]["instances"][0]["attributes"]["input"].as_str())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_copies_the_state_that_it_changes() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let first = apply(&env, "one", &three()).await;
    assert_eq!(
        status(&first).state_copy,
        "",
        "there is no state before the first apply"
    );
    assert!(copies(&env).await.is_empty());

    let second = apply(&env, "two", &three()).await;
    let all = copies(&env).await;
    assert_eq!(all.len(), 1);
    let copy = &all[0];
    assert!(copy.owner_references().is_empty(), "it outlives the object");
    assert_eq!(copy.name_any(), format!("{}-00", status(&second).state_copy));
    let annotations = copy.annotations();
    assert_eq!(annotations["infra.sluice.dev/run"], second.name_any());
    assert_eq!(
        annotations["infra.sluice.dev/revision"],
        second.spec.source.revision
    );
    let state = decode(copy, "default", &[]);
    assert_eq!(size(&state), "one");
    let summary = StateSummary::parse(state.to_string().as_bytes())
        .unwrap()
        .unwrap();
    assert_eq!(annotations[state_copy::LINEAGE], summary.lineage);
    assert_eq!(
        (serial(copy), summary.resources),
        (summary.serial.to_string().as_str(), 1)
    );

    // A destroy changes the state too. After it, there is nothing to copy.
    let destroy = RunSetup {
        destroy: true,
        ..RunSetup::plan_and_apply().with(bundle("two", &three()))
    };
    let destroyed = env.run(destroy).await;
    assert_eq!(status(&destroyed).message, "Destroy applied successfully");
    let all = copies(&env).await;
    assert_eq!((all.len(), size(&decode(&all[1], "default", &[]))), (2, "two"));
    let again = apply(&env, "three", &three()).await;
    assert_eq!(status(&again).state_copy, "");
    assert_eq!(copies(&env).await.len(), 2);
}

/// The plan shows the state after its refresh, which has no resource any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_whose_resources_have_disappeared_is_copied() {
    let env = TestEnvironment::new("auto").await;
    let trial = TrialProvider::create().unwrap();
    let thing = "resource \"trial_thing\" \"it\" {\n  name = \"it\"\n}\n";
    env.commit(&[("main.tf", &format!("{}{thing}", trial.provider_block()))]);
    let own = json!({ "stateCopies": three(), "environment": { "TF_CLI_CONFIG_FILE": trial.cli_config() } });
    let mut copied = Vec::new();
    for _ in 0..2 {
        let run = env.run(RunSetup::plan_and_apply().with(own.clone())).await;
        assert_ending(&run, "Succeeded TerraformAppliedSucceed");
        copied.push(!status(&run).state_copy.is_empty());
        trial.delete_resource("it").unwrap();
    }
    assert_eq!(copied, [false, true]);
    assert_eq!(copies(&env).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_state_has_one_copy() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    apply(&env, "one", &three()).await;
    let planned = env.run(RunSetup::plan().with(bundle("two", &three()))).await;
    let applied = RunSetup::apply(&planned).with(bundle("two", &three()));
    assert_eq!(
        ending(&env.run(applied).await),
        "Succeeded TerraformAppliedSucceed"
    );
    assert_eq!(copies(&env).await.len(), 1);
    // The plan is stale: its apply changes nothing.
    let mut names = Vec::new();
    let mut times = Vec::new();
    for _ in 0..2 {
        let stale = env
            .run(RunSetup::apply(&planned).with(bundle("two", &three())))
            .await;
        assert_ending(&stale, "Failed PlanStale");
        names.push(status(&stale).state_copy);
        let all = copies(&env).await;
        assert_eq!(all.len(), 2);
        // The copy names the run that needed it last, also if an earlier one stored it.
        let annotations = all[1].annotations();
        assert_eq!(annotations["infra.sluice.dev/run"], stale.name_any());
        times.push(annotations["infra.sluice.dev/copied-at"].clone());
    }
    assert!(!names[0].is_empty() && names[0] == names[1], "{names:?}");
    assert!(times[0] < times[1], "{times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_three_copies_of_a_workspace_remain() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let blue = |size: &str| {
        let mut bundle = bundle(size, &three());
        bundle["workspace"] = "blue".into();
        RunSetup::plan_and_apply().with(bundle)
    };
    env.run(blue("one")).await;
    env.run(blue("two")).await;
    let of_blue = copies(&env).await;
    assert_eq!(of_blue.len(), 1);
    for size in ["one", "two", "three", "four", "five"] {
        apply(&env, size, &three()).await;
    }
    let all = copies(&env).await;
    let of_default: Vec<_> = all
        .iter()
        .filter(|copy| copy.labels()[state_copy::WORKSPACE] == "default")
        .collect();
    let sizes: Vec<_> = of_default
        .iter()
        .map(|copy| size(&decode(copy, "default", &[])).to_owned())
        .collect();
    assert_eq!(sizes, ["two", "three", "four"]);
    assert_eq!(all.len(), 4, "the other workspace has its own");
    assert_eq!(size(&decode(&of_blue[0], "blue", &[])), "one");

    // Switched off, nothing is stored, and what exists stays.
    let before = serials(&env).await;
    let off = apply(&env, "six", &json!({ "count": 0, "limit": 1_000_000 })).await;
    assert_eq!(
        (
            status(&off).state_copy.as_str(),
            status(&off).state_copy_error.as_str()
        ),
        ("", "")
    );
    assert_eq!(serials(&env).await, before);
    apply(&env, "seven", &json!({ "count": 1, "limit": 1_000_000 })).await;
    assert_eq!(copies(&env).await.len(), 2, "one of each workspace");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_above_the_limit_is_applied_without_a_copy_and_reported() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    apply(&env, "one", &three()).await;
    let applied = apply(&env, "two", &json!({ "count": 3, "limit": 100 })).await;
    let status = status(&applied);
    assert_eq!(status.state_copy, "");
    assert!(
        status
            .state_copy_error
            .contains("compressed, more than --state-copy-limit=100"),
        "{}",
        status.state_copy_error
    );
    assert!(copies(&env).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_state_is_not_copied_without_a_key() {
    // Comments are enough: Terraform has no such blocks.
    for encryption in [
        "# encryption { key_provider \"pbkdf2\" \"it\" {} }",
        "# encryption { method \"external\" \"it\" { encrypt_command = [\"seal\"] } }",
    ] {
        is_copied_only_sealed(&format!("{MODULE}{encryption}\n")).await;
    }
}

async fn is_copied_only_sealed(module: &str) {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", module)]);
    let first = apply(&env, "one", &three()).await;
    assert_eq!(status(&first).state_copy_error, "", "there is nothing to copy");
    let applied = apply(&env, "two", &three()).await;
    assert!(
        status(&applied)
            .state_copy_error
            .contains("OpenTofu encrypts the state"),
        "{:?}",
        applied.status
    );
    assert!(copies(&env).await.is_empty());
    let sealed = json!({ "count": 3, "limit": 1_000_000, "keys": [key()] });
    apply(&env, "three", &sealed).await;
    assert_eq!(copies(&env).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_applied_if_the_copy_cannot_be_stored() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    apply(&env, "one", &three()).await;
    // A conflict does not prove that a copy exists: the API also reports one when several requests change the same quota.
    for refusal in [(403, "Forbidden"), (409, "Conflict")] {
        let refused = apply_with(&env, "two", refuse_copies(&env, u32::MAX, refusal)).await;
        assert_ending(&refused, "Failed TFExecApplyFailed");
        let status = status(&refused);
        assert!(!status.attempted_apply && status.state_copy.is_empty());
        for part in [
            "so nothing was applied",
            "--state-copies=0",
            "exceeded quota: secrets",
        ] {
            assert!(status.message.contains(part), "{}", status.message);
        }
        assert!(copies(&env).await.is_empty());
    }
    // The next run applies, also after a conflict that ends.
    let applied = apply_with(&env, "two", refuse_copies(&env, 1, (409, "Conflict"))).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    assert_eq!(copies(&env).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_copy_is_opened_in_a_session_only() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let sealed = json!({ "count": 3, "limit": 1_000_000, "keys": [key()] });
    apply(&env, "zero", &three()).await;
    // A copy from the time before the key. A forged one looks the same.
    apply(&env, "one", &three()).await;
    apply(&env, "two", &sealed).await;
    let all = copies(&env).await;
    let [unsealed, copy] = all.as_slice() else {
        panic!("{}", all.len())
    };
    assert!(
        !copy.data.as_ref().unwrap().contains_key("state"),
        "it is not readable"
    );
    let keys = [serde_json::from_value(key()).unwrap()];
    assert_eq!(size(&decode(copy, "default", &keys)), "one");

    // As documented for a session, with the directory of `Ready`.
    let script = "D=$(echo \"$PWD\"/../.team_net_run-*/state-copies) && ls \"$D\" && \
        $(command -v terraform || command -v tofu) state push -force \"$(ls \"$D\"/*.tfstate | grep -v unsealed)\" >&2";
    let (run, shell) = session(&env, bundle("two", &sealed), script).await;
    assert!(shell.status.success(), "{shell:?}");
    assert_ending(&run, "Succeeded BreakTheGlassEnded");
    let names = String::from_utf8(shell.stdout).unwrap();
    let name = |copy: &Secret| format!("{}-{}", serial(copy), state_copy::id_of(&copy.metadata));
    let mut names: Vec<_> = names.lines().collect();
    names.sort_unstable();
    let mut expected = [
        format!("{}.unsealed.tfstate", name(unsealed)),
        format!("{}.tfstate", name(copy)),
    ];
    expected.sort_unstable();
    assert_eq!(names, expected);
    let plan = env.run(RunSetup::plan().with(bundle("two", &sealed))).await;
    assert_eq!(status(&plan).changes, "+0 ~1 -0", "the state is that of the copy");
}
