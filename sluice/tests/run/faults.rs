//! Failures: each has a reason, and the next run recovers.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::json;
use sluice_tf_runner::run::{ClaimError, execute};
use tokio_util::sync::CancellationToken;

use crate::environment::{NAMESPACE, RunSetup, TestEnvironment, archive, assert_ending, ending, status};

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_bad_sources_name_the_cause() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "resource \"terraform_data\" \"x\" {")]);
    let run = env.run(RunSetup::plan()).await;
    assert_eq!(ending(&run), "Failed TFExecInitFailed");
    assert!(
        status(&run)
            .message
            .starts_with("error running Init: exit status 1"),
        "{}",
        status(&run).message
    );
    assert!(status(&run).message.contains("main.tf line 1"));

    env.commit(&[("main.tf", "")]);
    let run = env.run(RunSetup::plan().with(json!({ "path": "absent" }))).await;
    assert_eq!(ending(&run), "Failed ArtifactFailed");
    assert!(status(&run).message.contains("terraform path not found"));

    env.serve_bytes(b"no archive".to_vec());
    assert_eq!(ending(&env.run(RunSetup::plan()).await), "Failed ArtifactFailed");
    let name = env.prepare(RunSetup::plan()).await;
    env.serve_bytes(b"other bytes".to_vec());
    env.execute_run(&name, env.context(&name), CancellationToken::new())
        .await;
    assert!(
        status(&env.get(&name).await).message.contains("digest"),
        "altered in storage"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_says_that_it_waits_for_its_artifact() {
    let env = TestEnvironment::new("auto").await;
    let archive = archive(&[("main.tf", "")]);
    env.serve_bytes(archive.clone());
    let name = env.prepare(RunSetup::plan()).await;
    env.serve_bytes(Vec::new());
    let mut context = env.context(&name);
    context.fetcher.retries = 1_000;
    context.fetcher.min_wait = Duration::from_millis(50);
    context.fetcher.max_wait = context.fetcher.min_wait;
    context.settings.step = Duration::from_millis(50);
    let recovery = async {
        let message = env
            .wait_for_message(&name, " of 1001 failed, the next follows in 50ms: ")
            .await;
        env.serve_bytes(archive);
        message
    };
    let (_, message) = tokio::join!(
        env.execute_run(&name, context, CancellationToken::new()),
        recovery
    );
    assert!(
        message.starts_with("waiting for the artifact: attempt ")
            && message.ends_with("status 503 Service Unavailable"),
        "{message}"
    );
    let run = env.get(&name).await;
    assert_ending(&run, "Succeeded TerraformPlannedNoChanges");
    assert!(!status(&run).message.contains("waiting"), "{:?}", run.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_leads_outside_is_refused() {
    let env = TestEnvironment::new("auto").await;
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("evil.tf"), "").unwrap();
    let words = ["-P", "--transform", "s,^evil,../../evil,", "-czf", "-", "-C"];
    let out = Command::new("tar")
        .args(words)
        .arg(source.path())
        .arg("evil.tf")
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    env.serve_bytes(out.stdout);
    let run = env.run(RunSetup::plan()).await;
    assert_ending(&run, "Failed ArtifactFailed");
    assert!(!env.dir.path().join("evil.tf").exists());
}

/// A run reports its result even if its directory cannot be emptied, and the next run recovers.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_working_directory_hides_no_error_and_blocks_no_run() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "resource \"terraform_data\" \"x\" {}")]);
    let work = env.work().display().to_string();
    let breaking = format!(
        "case \"$1\" in plan) cd /; rm -rf {work}; touch {work}; echo 'Error: the true reason' >&2; exit 1;; esac"
    );
    let cli = crate::cli_wrapper::wrap_cli(&env, &breaking);
    let run = env.run_with_path(RunSetup::plan(), &cli).await;
    let message = status(&run).message;
    assert!(message.contains("the true reason"), "{message}");
    let next = env.run(RunSetup::plan()).await;
    assert_ending(&next, "Succeeded TerraformPlannedWithChanges");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_variables_stay_out_of_errors() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "variable \"count_of\" { type = number }")]);
    let run = env
        .run(RunSetup::plan().with(json!({ "variables": "{\"count_of\":\"hunter2\"}" })))
        .await;
    assert_eq!(ending(&run), "Failed TFExecPlanFailed");
    let message = status(&run).message;
    assert!(
        message.contains("Invalid value for input variable") && !message.contains("hunter2"),
        "{message}"
    );
    let run = env
        .run(RunSetup::plan().with(json!({ "environment": { "TF_VAR_x": "hunter2" } })))
        .await;
    assert_eq!(ending(&run), "Failed TFExecInitFailed");
    assert!(!status(&run).message.contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partially_failed_apply_saves_its_state() {
    let env = TestEnvironment::new("auto").await;
    let module = |command: &str| {
        format!(
            "resource \"terraform_data\" \"good\" {{ input = 1 }}\nresource \"terraform_data\" \"bad\" {{\n  \
             depends_on = [terraform_data.good]\n  provisioner \"local-exec\" {{ command = \"{command}\" }}\n}}\n"
        )
    };
    env.commit(&[("main.tf", &module("exit 3"))]);
    let failed = env.run(RunSetup::plan_and_apply()).await;
    assert_eq!(ending(&failed), "Failed TFExecApplyFailed");
    assert!(status(&failed).attempted_apply && status(&failed).message.contains("exit status 3"));
    env.commit(&[("main.tf", &module("true"))]);
    let repaired = env.run(RunSetup::plan_and_apply()).await;
    assert_ending(&repaired, "Succeeded TerraformAppliedSucceed");
    assert_eq!(
        status(&repaired).changes,
        "+1 ~0 -1",
        "the tainted one is replaced, the good one kept"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_runners_gets_the_run() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", "")]);
    let name = env.prepare(RunSetup::plan()).await;
    let (one, two) = (env.context(&name), env.context(&name));
    let stop = CancellationToken::new();
    let (first, second) = tokio::join!(execute(&one, stop.clone()), execute(&two, stop));
    let claimed = [first.is_ok(), second.is_ok()].iter().filter(|won| **won).count();
    assert_eq!(claimed, 1);
    let late = Box::pin(execute(&env.context(&name), CancellationToken::new())).await;
    assert!(matches!(late, Err(ClaimError::Taken { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_of_a_deleted_run_does_not_claim_the_next_one_of_its_name() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", "")]);
    let name = env.prepare(RunSetup::plan()).await;
    let mut context = env.context(&name);
    context
        .environment
        .insert("RUN_UID".into(), "of-the-deleted-run".into());
    let refused = Box::pin(execute(&context, CancellationToken::new())).await;
    assert!(matches!(refused, Err(ClaimError::Replaced(_))));
    let run = env.get(&name).await;
    assert!(run.status.is_none(), "nothing was claimed");
    context.environment.insert("RUN_UID".into(), run.uid().unwrap());
    Box::pin(execute(&context, CancellationToken::new()))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_with_other_inputs_supersedes_the_run() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", "output \"x\" { value = 1 }")]);
    let planned = env.run(RunSetup::plan()).await;
    let apply = RunSetup::apply(&planned).with(json!({ "inputsDigest": "sha256:moved" }));
    let run = env.run(apply).await;
    assert_eq!(ending(&run), "Superseded Superseded");
    let mut unknown = RunSetup::apply(&planned);
    unknown.plan = Some((status(&planned).plan_id, "another-run".into(), String::new()));
    let run = env.run(unknown).await;
    assert_eq!(ending(&run), "Failed TFExecApplyFailed");
    assert!(status(&run).message.contains("no plan secrets found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_do_not_overwrite_a_foreign_secret() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "output \"x\" { value = \"mine\" }")]);
    let secrets: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let owner_secret: Secret =
        serde_json::from_value(json!({ "metadata": { "name": "another-owner" } })).unwrap();
    let uid = secrets
        .create(&PostParams::default(), &owner_secret)
        .await
        .unwrap()
        .metadata
        .uid;
    let owner = json!([{ "apiVersion": "v1", "kind": "Secret", "name": "another-owner", "uid": uid }]);
    let foreign = json!({ "metadata": { "name": "theirs", "ownerReferences": owner }, "stringData": { "x": "theirs" } });
    let foreign: Secret = serde_json::from_value(foreign).unwrap();
    secrets.create(&PostParams::default(), &foreign).await.unwrap();
    let bundle = json!({ "outputs": { "name": "theirs" } });
    let run = env.run(RunSetup::plan_and_apply().with(bundle)).await;
    assert_ending(&run, "Failed OutputsWritingFailed");
    assert!(status(&run).message.contains("infra.contrib.fluxcd.io/adopt"));
    assert_ne!(
        env.secret("theirs").await.unwrap().get("x").map(String::as_str),
        Some("mine")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_overwrite_neither_states_nor_stored_data() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "output \"x\" { value = \"mine\" }")]);
    let secrets: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    let adopt = "infra.contrib.fluxcd.io/adopt";
    for (name, labels) in [
        (
            "state-of-another",
            json!({ "tfstate": "true", "tfstateSecretSuffix": "other", adopt: "true" }),
        ),
        ("plan", json!({ "infra.contrib.fluxcd.io/plan-name": "other" })),
        ("applied", json!({ "infra.sluice.dev/applied": "other" })),
        ("files", json!({ "infra.sluice.dev/applied-files": "0a" })),
        ("errored", json!({ "infra.sluice.dev/errored-state": "other" })),
        ("key", json!({ "infra.sluice.dev/terraform": "other" })),
    ] {
        let secret =
            json!({ "metadata": { "name": name, "labels": labels }, "stringData": { "x": "theirs" } });
        let secret: Secret = serde_json::from_value(secret).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        let run = env
            .run(RunSetup::plan_and_apply().with(json!({ "outputs": { "name": name } })))
            .await;
        assert_eq!(
            ending(&run),
            "Failed OutputsWritingFailed",
            "{name}: {:?}",
            run.status
        );
        assert_eq!(env.secret(name).await.unwrap()["x"], "theirs");
    }
    for name in [
        "tfstate-default-other",
        "tfplan-default-other",
        "tffiles-0a-0",
        "other-sluice-key",
        "tfstate-default-net",
    ] {
        let before = env.secret(name).await;
        let run = env
            .run(RunSetup::plan_and_apply().with(json!({ "outputs": { "name": name } })))
            .await;
        assert_eq!(
            ending(&run),
            "Failed OutputsWritingFailed",
            "{name}: {:?}",
            run.status
        );
        assert!(
            status(&run)
                .message
                .contains("set another name in writeOutputsToSecret")
        );
        assert_eq!(env.secret(name).await, before, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_file_that_came_with_the_source_is_never_pushed() {
    let env = TestEnvironment::new("auto").await;
    let theirs =
        r#"{"version":4,"terraform_version":"1.11.4","serial":9,"lineage":"x","outputs":{},"resources":[]}"#;
    env.commit(&[
        ("main.tf", "output \"x\" { value = 1 }"),
        ("errored.tfstate", theirs),
    ]);
    let run = env.run(RunSetup::plan_and_apply()).await;
    assert_ending(&run, "Succeeded TerraformAppliedSucceed");
    assert!(
        !env.stored()
            .await
            .iter()
            .any(|name| name.starts_with("tferrored-"))
    );
}
