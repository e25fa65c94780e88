//! Copies of the state before applies: when they are made, how many remain, and how a user restores one.

use std::convert::Infallible;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams};
use kube::client::Body;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;
use sluice_harness::cli;
use sluice_harness::trial::TrialProvider;
use sluice_tf_core::bundle::{PlanKey, Stack};
use sluice_tf_core::state_copy;
use sluice_tf_core::state_summary::StateSummary;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::break_glass::session;
use crate::environment::{NAMESPACE, RunSetup, STACK, TestEnvironment, ending, status};

const PAGE: &str = include_str!("../../../docs/guides/state-copies.md");
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
    assert_eq!(
        ending(&run),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        run.status
    );
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

/// Runs commands of a user with access to the API, in a directory.
fn shell(env: &TestEnvironment, directory: &Path, script: &str) -> Output {
    let kubectl = cli::kubectl().unwrap();
    let config = env.dir.path().join("user.kubeconfig");
    std::fs::copy(&env.kubeconfig, &config).unwrap();
    let script =
        format!("kubectl config set-context --current --namespace={NAMESPACE} > /dev/null\n{script}");
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(directory)
        .env("KUBECONFIG", config)
        .env("KUBECACHEDIR", env.dir.path().join("cache"))
        .env("HOME", directory)
        .env(
            "PATH",
            format!(
                "{}:{}",
                kubectl.parent().unwrap().display(),
                cli::search_path().unwrap()
            ),
        )
        .output()
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
        assert_eq!(
            ending(&run),
            "Succeeded TerraformAppliedSucceed",
            "{:?}",
            run.status
        );
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
        assert_eq!(ending(&stale), "Failed PlanStale", "{:?}", stale.status);
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

/// Returns a client whose first requests to create a copy are refused with this code and reason.
fn refuse_copies(env: &TestEnvironment, refusals: u32, (code, reason): (u16, &'static str)) -> Client {
    let api = env.embedded.clone();
    let requests = Arc::new(AtomicU32::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (mut api, requests) = (api.clone(), requests.clone());
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let is_copy =
                head.method == Method::POST && String::from_utf8_lossy(&bytes).contains("\"tfcopy-");
            if is_copy && requests.fetch_add(1, Ordering::SeqCst) < refusals {
                let status = json!({ "kind": "Status", "status": "Failure", "reason": reason,
                    "message": "exceeded quota: secrets", "code": code });
                let body = Body::from(status.to_string().into_bytes());
                return Ok(Response::builder().status(code).body(body).unwrap());
            }
            let request = Request::from_parts(head, Body::from(bytes));
            let (head, body) = api.call(request).await?.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Ok::<_, Infallible>(Response::from_parts(head, Body::from(body)))
        }
    });
    Client::new(service, NAMESPACE)
}

/// Applies with a client of [`refuse_copies`].
async fn apply_with(env: &TestEnvironment, size: &str, client: Client) -> TerraformRun {
    let name = env
        .prepare(RunSetup::plan_and_apply().with(bundle(size, &three())))
        .await;
    let mut context = env.context(&name);
    context.client = client;
    env.execute_run(&name, context, CancellationToken::new()).await;
    env.get(&name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_applied_if_the_copy_cannot_be_stored() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    apply(&env, "one", &three()).await;
    // A conflict does not prove that a copy exists: the API also reports one when several requests change the same quota.
    for refusal in [(403, "Forbidden"), (409, "Conflict")] {
        let refused = apply_with(&env, "two", refuse_copies(&env, u32::MAX, refusal)).await;
        assert_eq!(
            ending(&refused),
            "Failed TFExecApplyFailed",
            "{:?}",
            refused.status
        );
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
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
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
    assert_eq!(ending(&run), "Succeeded BreakTheGlassEnded", "{:?}", run.status);
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

/// Returns the command blocks of the page in order.
fn documented() -> Vec<String> {
    let blocks = PAGE.split("```console\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    let terraform = cli::terraform().unwrap();
    let program = terraform.file_name().unwrap().to_str().unwrap().to_owned();
    blocks
        .filter(|block| !block.starts_with("$ "))
        .map(|block| {
            block
                .replace("tofu ", &format!("{program} "))
                .replace("state-copy=app", "state-copy=net")
                .replace("terraform app", "terraform net")
                .replace("secret_suffix = \"app\"", "secret_suffix = \"net\"")
                .replace("= \"default\"", &format!("= \"{NAMESPACE}\""))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_restored_by_the_documented_commands() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    for size in ["one", "two", "three"] {
        apply(&env, size, &three()).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let blocks = documented();
    assert_eq!(blocks.len(), 4);
    let script = blocks.join("\n");
    let output = shell(&env, folder.path(), &script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    for copy in copies(&env).await {
        for part in [serial(&copy), state_copy::id_of(&copy.metadata)] {
            assert!(text.contains(part), "{text}");
        }
    }
    let copy: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("copy.tfstate")).unwrap()).unwrap();
    assert_eq!(size(&copy), "two", "the newest");
    let plan = env.run(RunSetup::plan().with(bundle("three", &three()))).await;
    assert_eq!(
        status(&plan).changes,
        "+0 ~1 -0",
        "the state is that of the copy: {:?}",
        plan.status
    );
    let back = env.run(RunSetup::plan().with(bundle("two", &three()))).await;
    assert_eq!(ending(&back), "Succeeded TerraformPlannedNoChanges");
    // The command of the page that deletes copies.
    let delete = PAGE
        .split('`')
        .find(|part| part.starts_with("kubectl delete secrets"));
    let output = shell(&env, folder.path(), delete.unwrap());
    assert!(output.status.success(), "{output:?}");
    assert!(copies(&env).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_in_several_secrets_is_joined_by_the_documented_command() {
    let env = TestEnvironment::new("auto").await;
    // Text that hardly compresses, in a state of more than one Secret.
    let module = format!(
        "{MODULE}locals {{\n  noise = [for a in range(128) : join(\"\", [for b in range(128) : sha512(\"${{a}}-${{b}}\")])]\n}}\n\
         resource \"terraform_data\" \"noise\" {{ input = local.noise }}\n"
    );
    env.commit(&[("main.tf", &module)]);
    let state = env.dir.path().join("large.tfstate");
    let large = |size: &str| {
        let mut bundle = bundle(size, &json!({ "count": 3, "limit": 100_000_000 }));
        // The kubernetes backend stores a state in one Secret.
        bundle["backend"] = format!(
            "terraform {{\n  backend \"local\" {{ path = \"{}\" }}\n}}\n",
            state.display()
        )
        .into();
        RunSetup::plan_and_apply().with(bundle)
    };
    env.run(large("one")).await;
    let before = std::fs::read(&state).unwrap();
    let applied = env.run(large("two")).await;
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
    assert!(copies(&env).await.len() > 1, "{:?}", applied.status);
    let folder = tempfile::tempdir().unwrap();
    let output = shell(&env, folder.path(), &documented()[1]);
    assert!(output.status.success(), "{output:?}");
    let copy = std::fs::read(folder.path().join("copy.tfstate")).unwrap();
    let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).unwrap() };
    assert_eq!(json(&copy), json(&before));

    // A copy of which a part is missing is not unpacked, and is deleted by the next apply.
    let api: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let name = copies(&env).await[0].name_any();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    env.run(large("three")).await;
    let all = copies(&env).await;
    let ids: std::collections::BTreeSet<_> = all
        .iter()
        .map(|secret| state_copy::id_of(&secret.metadata))
        .collect();
    assert_eq!(ids.len(), 1, "that of the last apply");
}
