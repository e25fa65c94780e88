//! Signed records of runs: the commands of `docs/guides/run-records.md`, changed records and other keys.

use std::path::Path;
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::run::{Action, TerraformRun};
use sluice_api::source::GitRepository;
use sluice_harness::cli;

use crate::environment::{NAMESPACE, SOURCE, TestEnvironment};
use crate::observe::pending;

const PAGE: &str = include_str!("../../../docs/guides/run-records.md");
const STACK: &str = "resource \"terraform_data\" \"it\" { input = \"one\" }\n";

/// Returns the commands of the page, in order.
fn page_commands() -> String {
    let blocks = PAGE.split("```console\n").skip(1);
    blocks.filter_map(|block| block.split("```").next()).collect()
}

/// Runs commands of a user with access to the API, in a directory.
fn shell(env: &TestEnvironment, directory: &Path, script: &str) -> Output {
    let kubectl = cli::kubectl().unwrap();
    let sluice = Path::new(env!("CARGO_BIN_EXE_sluice"));
    let config = directory.join("kubeconfig");
    std::fs::copy(&env.kubeconfig, &config).unwrap();
    let script =
        format!("kubectl config set-context --current --namespace={NAMESPACE} > /dev/null\n{script}");
    let directories = [sluice, &kubectl].map(|program| program.parent().unwrap().display().to_string());
    let path = format!("{}:{}", directories.join(":"), cli::search_path().unwrap());
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(directory)
        .env("KUBECONFIG", config)
        .env("KUBECACHEDIR", directory.join("cache"))
        .env("HOME", directory)
        .env("PATH", path)
        .output()
        .unwrap()
}

/// Returns the standard output of commands that succeed.
fn succeed(env: &TestEnvironment, directory: &Path, script: &str) -> String {
    let output = shell(env, directory, script);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the standard error of a command that fails with exit code 1 and prints nothing else.
fn fail(env: &TestEnvironment, directory: &Path, script: &str) -> String {
    let output = shell(env, directory, script);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{script}\n{errors}");
    assert!(output.stdout.is_empty(), "{script}");
    errors
}

/// Marks the commit of the source as verified, as source-controller does.
async fn verify_source(env: &TestEnvironment) {
    let api: Api<GitRepository> = env.api();
    let params = PatchParams::default();
    let spec = json!({ "spec": { "verify": { "mode": "HEAD", "secretRef": { "name": "keys" } } } });
    let source = api.patch(SOURCE, &params, &Patch::Merge(spec)).await.unwrap();
    let generation = source.metadata.generation;
    let condition = json!({ "type": "SourceVerified", "status": "True", "reason": "Succeeded",
        "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
        "message": "verified signature of\n\t- commit 'aaaa' with key 'ABCD'" });
    let status = json!({ "status": { "observedGeneration": generation, "sourceVerificationMode": "HEAD",
        "conditions": [condition] } });
    api.patch_status(SOURCE, &params, &Patch::Merge(status))
        .await
        .unwrap();
}

/// Plans, approves and applies the stack `app`. Returns the plan id and the run that applied.
async fn apply(env: &TestEnvironment) -> (String, TerraformRun) {
    env.commit("a", &[("main.tf", STACK)]).await;
    env.stack("app", json!({ "approvePlan": "" })).await;
    let id = pending(&env.wait_ready("app", "Unknown TerraformPlannedWithChanges").await);
    env.edit("app", json!({ "approvePlan": id })).await;
    env.wait_ready("app", "True TerraformAppliedSucceed").await;
    verify_source(env).await;
    let runs = env.runs("app").await;
    let applied = runs.into_iter().find(|run| run.spec.action == Action::Apply);
    (id, applied.unwrap())
}

/// Writes a record in which the payload of `file` is changed, with its signature.
fn change_payload(directory: &Path, file: &str, from: &str, to: &str) {
    let text = std::fs::read(directory.join(file)).unwrap();
    let mut envelope: Value = serde_json::from_slice(&text).unwrap();
    let payload = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
    let payload = String::from_utf8(payload).unwrap();
    assert!(payload.contains(from), "{payload}");
    envelope["payload"] = json!(STANDARD.encode(payload.replace(from, to)));
    std::fs::write(directory.join("changed.json"), envelope.to_string()).unwrap();
}

/// The statement that the commands wrote has the digests of the run.
fn check_statement(directory: &Path, run: &TerraformRun) {
    let statement = std::fs::read(directory.join("app-statement.json")).unwrap();
    let statement: Value = serde_json::from_slice(&statement).unwrap();
    let (spec, record) = (&run.spec, &statement["predicate"]);
    assert_eq!(
        record["plan"]["digest"],
        json!(spec.plan.as_ref().unwrap().digest)
    );
    assert_eq!(record["inputs"]["digest"], json!(spec.inputs_digest));
    let named: Vec<_> = statement["subject"]
        .as_array()
        .unwrap()
        .iter()
        .map(|subject| subject["name"].clone())
        .collect();
    assert_eq!(named, ["commit", "artifact", "plan", "bundle"]);
}

/// The run that planned is recorded too, with a key of the other algorithm in a file.
fn record_the_plan_with_another_key(env: &TestEnvironment, directory: &Path) {
    let other = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out other.pem
        openssl pkey -in other.pem -pubout -out other.pub
        sluice record export app --run 1 --key other.pem > plan.json
        sluice record verify plan.json --key other.pub";
    let plan = succeed(env, directory, other);
    assert!(
        plan.contains("\naction       Plan (Revision, attempt 1)\n"),
        "{plan}"
    );
    assert!(
        plan.contains("\napply        not started\n") && !plan.contains("approved by"),
        "{plan}"
    );
}

/// Another key, and a changed record.
fn refuse_what_the_key_has_not_signed(env: &TestEnvironment, directory: &Path) {
    let wrong = fail(
        env,
        directory,
        "sluice record verify app-record.json --key other.pub",
    );
    assert!(
        wrong.contains("app-record.json is refused: no given key has signed it"),
        "{wrong}"
    );
    change_payload(
        directory,
        "app-record.json",
        "\"applied\":true",
        "\"applied\":false",
    );
    let changed = fail(
        env,
        directory,
        "sluice record verify changed.json --key record-key.pub",
    );
    assert!(
        changed.contains("changed.json is refused: the signature of the key ")
            && changed.contains(" is not valid: the record was changed"),
        "{changed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_an_apply_is_exported_and_verified() {
    let env = TestEnvironment::new().await;
    let (id, run) = apply(&env).await;
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();

    let shown = succeed(&env, directory, &page_commands());
    let has = |line: &str| assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    has(&format!("run          {NAMESPACE}/{}", run.name_any()));
    has("action       Apply (Approval, attempt 1)");
    has("source       GitRepository team/code");
    has("signature    Verified: HEAD, verified signature of - commit 'aaaa' with key 'ABCD'");
    has(&format!("plan         {id} (+1 ~0 -0)"));
    has(&format!("approved by  {}", run.spec.approved_by));
    has("apply        succeeded");
    check_statement(directory, &run);
    record_the_plan_with_another_key(&env, directory);
    refuse_what_the_key_has_not_signed(&env, directory);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_made_says_why() {
    let env = TestEnvironment::without_controller().await;
    env.commit("a", &[("main.tf", STACK)]).await;
    env.stack("app", json!({})).await;
    env.secret("no-key", &[("other", "x")]).await;
    env.secret("bad-key", &[("key.pem", "hunter2")]).await;
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    std::fs::write(
        directory.join("key.pem"),
        include_str!("../../../tf-core/src/record/tests/golden/ed25519.pem"),
    )
    .unwrap();
    for (arguments, message) in [
        (
            "app --key key.pem",
            "terraform team/app has no run that has ended",
        ),
        ("app --run 7 --key key.pem", "terraform team/app has no run 7"),
        ("other --key key.pem", "terraform team/other does not exist"),
        (
            "app -n elsewhere --key key.pem",
            "terraform elsewhere/app does not exist",
        ),
        ("app --key missing.pem", "cannot read the key missing.pem: "),
        ("app --key-secret missing", "secret team/missing does not exist"),
        (
            "app --key-secret team/no-key",
            "secret team/no-key has no data key key.pem",
        ),
        (
            "app --key-secret bad-key",
            "the key of secret team/bad-key cannot be used: it contains no PEM block",
        ),
    ] {
        let errors = fail(&env, directory, &format!("sluice record export {arguments}"));
        assert!(
            errors.contains(&format!("sluice record: {message}")) && !errors.contains("hunter2"),
            "{arguments}: {errors}"
        );
    }
}
