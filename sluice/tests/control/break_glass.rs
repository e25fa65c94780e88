//! Break-glass: a user works in the stack's directory.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::environment::TestEnvironment;
use crate::observe::condition;

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

/// Returns the path of the script in the message.
fn script_path(message: &str) -> PathBuf {
    let rest = message.split_once(" machine: . ").unwrap().1;
    PathBuf::from(rest.split_once(" (").unwrap().0)
}

fn shell(script_path: &Path, script: &str) -> String {
    let out = std::process::Command::new("/bin/sh")
        .args(["-c", &format!(". {} && {script}", script_path.display())])
        .env_clear()
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_works_in_the_directory_while_others_run_and_a_new_plan_follows() {
    let mut env = TestEnvironment::without_controller().await;
    env.start(1).await; // one concurrent run: a session takes no slot
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    env.edit("net", json!({ "breakTheGlass": true })).await;
    let open = env
        .wait_for("net", "an open session", |s| {
            condition(s, "Ready").contains("Breaking the glass ...")
        })
        .await;
    let message = condition(&open, "Ready");
    assert!(
        message.starts_with("Unknown Progressing Breaking the glass ..."),
        "{message}"
    );
    let script_path = script_path(&message);
    let output = shell(
        &script_path,
        "ls && $(command -v terraform || command -v tofu) state list",
    );
    assert!(
        output.contains("main.tf") && output.contains("terraform_data.it"),
        "{output}"
    );
    env.wait_event("net", "Warning BreakTheGlass").await;
    env.stack("other", json!({})).await;
    env.wait_ready("other", "True TerraformAppliedSucceed").await;

    std::fs::remove_file(&script_path).unwrap();
    let ended = env
        .wait_for("net", "its end", |s| {
            condition(s, "Ready").contains("break the glass session has ended at")
        })
        .await;
    assert!(condition(&ended, "Ready").contains("set breakTheGlass: false to resume"));
    assert_eq!(
        env.runs("net").await.len(),
        2,
        "nothing runs until the field is removed"
    );
    env.edit("net", json!({ "breakTheGlass": null })).await;
    env.wait_ready("net", "True NoDrift").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_annotation_requests_one_session_and_removing_it_ends_the_session() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", "invalid code")]).await;
    let annotation = "break-the-glass.tf-controller/requestedAt";
    env.stack("net", json!({ "retryInterval": "1h" })).await;
    env.wait_ready("net", "False TFExecInitFailed").await;
    env.annotate("net", json!({ annotation: "now" })).await;
    env.edit("net", json!({ "parallelism": 3 })).await; // the annotation alone triggers no reconciliation, as upstream
    let open = env
        .wait_for("net", "an open session", |s| {
            condition(s, "Ready").contains("Breaking the glass ...")
        })
        .await;
    let message = condition(&open, "Ready");
    assert!(
        message.contains("The preparation failed: error running Init"),
        "{message}"
    );
    assert!(script_path(&message).exists());
    env.annotate("net", json!({ annotation: null })).await;
    env.wait_ready("net", "False TFExecInitFailed").await;
    assert!(!script_path(&message).exists());
    let runs = env.history("net").await;
    assert_eq!(
        runs.matches("BreakTheGlass Request 1: Succeeded BreakTheGlassEnded")
            .count(),
        1,
        "{runs}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_flag_no_session_opens_and_nothing_runs() {
    let mut env = TestEnvironment::without_controller().await;
    env.break_glass = false;
    env.start(1).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({ "breakTheGlass": true })).await;
    env.wait_ready("net", "Unknown Progressing Breaking the glass is not allowed")
        .await;
    env.wait_event("net", "Warning ReconciliationFailed").await;
    assert_eq!(env.history("net").await, "");
    env.edit("net", json!({ "breakTheGlass": false })).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_flag_the_annotation_blocks_runs_until_it_is_removed() {
    let mut env = TestEnvironment::without_controller().await;
    env.break_glass = false;
    env.start(1).await;
    env.commit("a", &[("main.tf", SIMPLE)]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let annotation = |token: Value| json!({ "break-the-glass.tf-controller/requestedAt": token });
    env.annotate("net", annotation(json!("now"))).await;
    env.edit("net", json!({ "interval": "2h" })).await;
    env.wait_ready("net", "Unknown Progressing Breaking the glass is not allowed")
        .await;
    env.annotate("net", annotation(Value::Null)).await;
    env.wait_ready("net", "True ").await;
}
