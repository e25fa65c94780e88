//! Definitions in the repository of a server: written over the API, pushed, and removed.

use kube::Client;
use serde_json::{Value, json};

use crate::definitions::{DEFINITIONS, TOOLS, definition, tool};
use crate::fixture::{CONFIGMAPS, call, eventually, ok};
use crate::git_store::{Checkout, git, repository, server};
use crate::watch::{pair, watch};

/// Place of the definition in the repository.
const FILE: &str = "apiextensions.k8s.io/v1/customresourcedefinitions/_cluster/tools.tools.dev.yaml";

/// Returns an object without its managers: those of updates are not in the repository.
fn without_managers(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("managedFields");
    object
}

/// Waits until the definition of tools is established, and by that in its last commit.
async fn established(client: &Client) {
    let path = format!("{DEFINITIONS}/tools.tools.dev");
    let path = path.as_str();
    eventually("the definition is established", || async {
        let found = call(client, "GET", path, None).await;
        let conditions = found.body["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_written_definition_is_a_commit_and_survives_with_its_objects() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let (definition_path, tool_path) = (format!("{DEFINITIONS}/tools.tools.dev"), format!("{TOOLS}/a"));
    let (stored, created) = {
        let client = server(dir.path(), &repository).client();
        ok(&client, "POST", DEFINITIONS, Some(&definition())).await;
        let created = ok(&client, "POST", TOOLS, Some(&tool("a"))).await;
        let stored = ok(&client, "GET", &definition_path, None).await;
        (stored, created)
    };
    assert_eq!(stored["status"]["conditions"][1]["type"], "Established");
    let files = git(&repository, &["ls-tree", "-r", "--name-only", "main"]);
    assert_eq!(
        files,
        format!("{FILE}\ntools.dev/v1/tools/default/a.yaml\n"),
        "the definition of the program is not in the repository"
    );
    let log = git(&repository, &["log", "--reverse", "--format=%s", "main"]);
    assert_eq!(
        log.lines().next(),
        Some("create customresourcedefinitions tools.tools.dev")
    );
    let other = tempfile::tempdir().unwrap();
    let client = server(other.path(), &repository).client();
    for (path, before) in [(definition_path, stored), (tool_path, created)] {
        let read = ok(&client, "GET", &path, None).await;
        assert_eq!(without_managers(read), without_managers(before));
    }
    let mut wrong = tool("b");
    wrong["spec"]["size"] = 11.into();
    assert_eq!(call(&client, "POST", TOOLS, Some(&wrong)).await.code, 422);
    let own = format!("{DEFINITIONS}/widgets.example.dev");
    assert_eq!(call(&client, "DELETE", &own, None).await.code, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pushed_definition_serves_the_files_of_its_kind() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let client = server(dir.path(), &repository).client();
    ok(
        &client,
        "POST",
        CONFIGMAPS,
        Some(&json!({"metadata": {"name": "first"}})),
    )
    .await;
    let clone = Checkout::new(dir.path());
    clone.write("mine/tool.yaml", &tool("a").to_string());
    clone.write(
        "mine/map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: second}\n",
    );
    clone.push();
    let second = format!("{CONFIGMAPS}/second");
    let second = second.as_str();
    eventually("the push is read", || async {
        call(&client, "GET", second, None).await.code == 200
    })
    .await;
    assert_eq!(
        call(&client, "GET", TOOLS, None).await.code,
        404,
        "an unknown kind"
    );
    let before = ok(&client, "GET", CONFIGMAPS, None).await;
    let before = before["metadata"]["resourceVersion"].as_str().unwrap();

    clone.write("mine/definition.yaml", &definition().to_string());
    clone.push();
    established(&client).await;
    let since = format!("{TOOLS}?watch=1&resourceVersion={before}");
    let mut events = watch(&client, &since).await;
    assert_eq!(events.next_name().await, pair("ADDED", "a"));
    let patch = json!({"spec": {"size": 2}});
    ok(&client, "PATCH", &format!("{TOOLS}/a"), Some(&patch)).await;
    assert_eq!(events.next_name().await, pair("MODIFIED", "a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_removes_the_definition_leaves_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let client = server(dir.path(), &repository).client();
    ok(&client, "POST", DEFINITIONS, Some(&definition())).await;
    let created = ok(&client, "POST", TOOLS, Some(&tool("a"))).await;
    let mut events = watch(&client, &format!("{TOOLS}?watch=1")).await;
    assert_eq!(events.next_name().await, pair("ADDED", "a"));

    let clone = Checkout::new(dir.path());
    let text = std::fs::read_to_string(clone.0.join(FILE)).unwrap();
    std::fs::remove_file(clone.0.join(FILE)).unwrap();
    clone.push();
    assert_eq!(events.next_name().await, pair("DELETED", "a"));
    assert_eq!(events.next().await, None, "the watch ends");
    assert_eq!(call(&client, "GET", TOOLS, None).await.code, 404);
    let files = git(&repository, &["ls-tree", "-r", "--name-only", "main"]);
    assert_eq!(files, "tools.dev/v1/tools/default/a.yaml\n");

    clone.write(FILE, &text);
    clone.push();
    established(&client).await;
    let path = format!("{TOOLS}/a");
    let path = path.as_str();
    eventually("the object is served again", || async {
        call(&client, "GET", path, None).await.code == 200
    })
    .await;
    let again = ok(&client, "GET", path, None).await;
    assert_eq!(again["metadata"]["uid"], created["metadata"]["uid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deletion_of_a_definition_deletes_the_files_of_its_objects() {
    let dir = tempfile::tempdir().unwrap();
    let repository = repository(dir.path());
    let client = server(dir.path(), &repository).client();
    ok(&client, "POST", DEFINITIONS, Some(&definition())).await;
    ok(&client, "POST", TOOLS, Some(&tool("a"))).await;
    let path = format!("{DEFINITIONS}/tools.tools.dev");
    ok(&client, "DELETE", &path, None).await;
    assert_eq!(call(&client, "GET", TOOLS, None).await.code, 404);
    assert_eq!(git(&repository, &["ls-tree", "-r", "--name-only", "main"]), "");
}
