//! Runs the commands of the page about back-ups: a stack is backed up on one API server and restored on another one, where no resource is
//! created a second time.

use std::collections::BTreeSet;
use std::path::Path;

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_harness::directory::TestDirectory;
use sluice_tests::scenario::{NAME, manifests, wait_for};

use crate::docs::blocks;
use crate::environment::{Origin, TestEnvironment, kubectl};
use crate::migration::shell;
use crate::walkthrough::{self, instance_ids};
use crate::{TEST_TIMEOUT, with_timeout_of, without_cluster};

const PAGE: &str = include_str!("../../../docs/guides/backup.md");
/// A variable that only the restored Secret has.
const OWNER: &str = "variable \"owner\" { type = string }\noutput \"owner\" { value = var.owner }\n";

/// The stack before its cluster is lost.
struct BackedUpStack {
    uid: String,
    revision: String,
    state: Value,
}

/// Makes `kubectl` in this folder the administrator of this cluster.
fn connect(folder: &Path, env: &TestEnvironment) {
    std::fs::write(folder.join("admin"), env.plane.admin().kubeconfig()).unwrap();
}

/// Returns the names of the objects in a file: JSON documents, one after the other.
fn names(file: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let objects = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    objects
        .map(|object| object.unwrap()["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn end_controllers(env: &mut TestEnvironment) {
    for controller in [&mut env.source_controller, &mut env.tf_controller] {
        controller.end().await.unwrap();
    }
}

/// Applies a stack on a new cluster, backs it up, and loses the cluster.
async fn back_up(origin: &Origin, folder: &Path) -> BackedUpStack {
    let mut env = TestEnvironment::start().await;
    connect(folder, &env);
    let create = [
        "create",
        "secret",
        "generic",
        "inputs",
        "--from-literal=owner=shop",
    ];
    kubectl(folder, &create).await;
    env.start_controllers();
    let scenario = env.scenario().await;
    let [source, mut stack] = manifests(&origin.url);
    stack["spec"]["varsFrom"] = json!([{ "kind": "Secret", "name": "inputs" }]);
    scenario.create(&[source, stack]).await.unwrap();
    let revision = format!("main@sha1:{}", origin.repository.head().unwrap());
    let applied = scenario.approve_until_applied(&revision).await;
    applied.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));

    let commands = blocks(PAGE, "Back up");
    assert_eq!(commands.len(), 1);
    shell(folder, &commands[0]).await;
    // It does not contain the data of the old object and of its runs.
    let expected = ["app-outputs", "inputs", "tfstate-default-app"].map(str::to_owned);
    assert_eq!(names(&folder.join("backup/inputs.json")), expected.into());
    let stack = scenario.stacks().get(NAME).await.unwrap();
    let state = scenario.state().await.unwrap();
    assert_eq!(instance_ids(&state).len(), 2, "{state}");
    end_controllers(&mut env).await;
    BackedUpStack {
        uid: stack.uid().unwrap(),
        revision,
        state,
    }
}

/// Restores the objects; they start nothing until the stack is resumed. Then it plans, and changes nothing.
async fn restore(env: &mut TestEnvironment, folder: &Path, lost: &BackedUpStack) {
    let commands = blocks(PAGE, "Restore");
    let [create, resume] = &commands[..] else {
        panic!("{commands:?}")
    };
    shell(folder, create).await;
    env.start_controllers();
    let scenario = env.scenario().await;
    let has_artifact =
        |source: &Value| source.pointer("/status/artifact/revision") == Some(&json!(lost.revision));
    let fetched = wait_for(&scenario.sources(), NAME, "its artifact", has_artifact).await;
    fetched.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
    let stack = scenario.stacks().get(NAME).await.unwrap();
    assert_ne!(stack.uid().as_ref(), Some(&lost.uid), "another object");
    assert_eq!(stack.data["spec"]["suspend"], true);
    assert_eq!(stack.data["spec"]["approvePlan"], "", "the approval was used up");
    assert!(scenario.runs().await.unwrap().is_empty());

    shell(folder, resume).await;
    let runs = scenario.runs().await.unwrap();
    assert!(!runs.is_empty());
    assert!(
        runs.iter()
            .all(|run| run.action == "Plan" && !run.attempted_apply),
        "{runs:#?}"
    );
    let state = scenario.state().await.unwrap();
    for field in ["lineage", "serial"] {
        assert_eq!(state[field], lost.state[field], "{field}");
    }
    assert_eq!(instance_ids(&state), instance_ids(&lost.state));
    walkthrough::assert_outputs(&scenario, "1.0.0").await.unwrap();
}

#[test]
fn a_stack_that_is_restored_into_another_cluster_makes_no_resource_twice() {
    if without_cluster() {
        return;
    }
    with_timeout_of(2 * TEST_TIMEOUT, async {
        let origin = Origin::start().await;
        let commit = origin
            .repository
            .commit_files(&[("stack/owner.tf", OWNER)], "An owner");
        commit.unwrap();
        // The machine of the user who backs up and restores.
        let folder = TestDirectory::create().unwrap();
        let lost = back_up(&origin, folder.path()).await;

        let mut env = TestEnvironment::start().await;
        connect(folder.path(), &env);
        restore(&mut env, folder.path(), &lost).await;
        // The plan without changes has recorded the state, so the destroy is not held.
        let scenario = env.scenario().await;
        let deleted = scenario.delete_stack().await;
        deleted.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
        let state = scenario.state().await.unwrap();
        assert_eq!(instance_ids(&state), Vec::<String>::new(), "destroyed");
        end_controllers(&mut env).await;
    });
}
