//! Break the glass: a person in the stack's directory.

use crate::looks::condition;
use crate::world::World;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const SIMPLE: &str = r#"resource "terraform_data" "it" { input = "x" }"#;

/// What the message says is to be sourced.
fn door(message: &str) -> PathBuf {
    let rest = message.split_once(" works: . ").unwrap().1;
    PathBuf::from(rest.split_once(" (").unwrap().0)
}

fn shell(door: &Path, script: &str) -> String {
    let out = std::process::Command::new("/bin/sh")
        .args(["-c", &format!(". {} && {script}", door.display())])
        .env_clear()
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_works_in_the_directory_while_others_run_and_a_fresh_plan_follows() {
    let mut world = World::without_controller().await;
    world.start(1).await; // one run at once: a session takes nobody's place
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    world.edit("net", json!({ "breakTheGlass": true })).await;
    let open = world
        .until("net", "an open session", |s| {
            condition(s, "Ready").contains("Breaking the glass ...")
        })
        .await;
    let message = condition(&open, "Ready");
    assert!(
        message.starts_with("Unknown Progressing Breaking the glass ..."),
        "{message}"
    );
    let door = door(&message);
    let seen = shell(
        &door,
        "ls && $(command -v terraform || command -v tofu) state list",
    );
    assert!(
        seen.contains("main.tf") && seen.contains("terraform_data.it"),
        "{seen}"
    );
    world.event("net", "Warning BreakTheGlass").await;
    world.stack("other", json!({})).await;
    world.ready("other", "True TerraformAppliedSucceed").await;

    std::fs::remove_file(&door).unwrap();
    let over = world
        .until("net", "its end", |s| {
            condition(s, "Ready").contains("break the glass session has ended at")
        })
        .await;
    assert!(condition(&over, "Ready").contains("set breakTheGlass: false to go on"));
    assert_eq!(
        world.runs("net").await.len(),
        2,
        "nothing runs until the field is unset"
    );
    world.edit("net", json!({ "breakTheGlass": null })).await;
    world.ready("net", "True NoDrift").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_annotation_asks_for_one_session_and_unsetting_ends_it() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", "this is no module")]).await;
    let annotation = "break-the-glass.tf-controller/requestedAt";
    world.stack("net", json!({ "retryInterval": "1h" })).await;
    world.ready("net", "False TFExecInitFailed").await;
    world.annotate("net", json!({ annotation: "now" })).await;
    world.edit("net", json!({ "parallelism": 3 })).await; // the annotation alone calls no pass, as upstream
    let open = world
        .until("net", "an open session", |s| {
            condition(s, "Ready").contains("Breaking the glass ...")
        })
        .await;
    let message = condition(&open, "Ready");
    assert!(
        message.contains("The preparation failed: error running Init"),
        "{message}"
    );
    assert!(door(&message).exists());
    world.annotate("net", json!({ annotation: null })).await;
    world.ready("net", "False TFExecInitFailed").await;
    assert!(!door(&message).exists());
    let runs = world.history("net").await;
    assert_eq!(
        runs.matches("BreakTheGlass Request 1: Succeeded BreakTheGlassEnded")
            .count(),
        1,
        "{runs}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_flag_the_glass_stays_whole_and_nothing_runs() {
    let mut world = World::without_controller().await;
    world.glass = false;
    world.start(1).await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({ "breakTheGlass": true })).await;
    world
        .ready("net", "Unknown Progressing Breaking the glass is not allowed")
        .await;
    world.event("net", "Warning ReconciliationFailed").await;
    assert_eq!(world.history("net").await, "");
    world.edit("net", json!({ "breakTheGlass": false })).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_flag_an_annotation_stops_all_until_it_is_removed() {
    let mut world = World::without_controller().await;
    world.glass = false;
    world.start(1).await;
    world.commit("a", &[("main.tf", SIMPLE)]).await;
    world.stack("net", json!({})).await;
    world.ready("net", "True TerraformAppliedSucceed").await;
    let asked = |token: Value| json!({ "break-the-glass.tf-controller/requestedAt": token });
    world.annotate("net", asked(json!("now"))).await;
    world.edit("net", json!({ "interval": "2h" })).await;
    world
        .ready("net", "Unknown Progressing Breaking the glass is not allowed")
        .await;
    world.annotate("net", asked(Value::Null)).await;
    world.ready("net", "True ").await;
}
