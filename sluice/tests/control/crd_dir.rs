//! `sluice up --crd-dir`: the kinds of definitions in a directory.

use std::path::Path;
use std::process::Stdio;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_harness::cli::search_path;
use sluice_harness::directory::TestDirectory;
use sluice_harness::kubeconfig::connect;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::environment::TIMEOUT;

const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tools.tools.dev}
spec:
  group: tools.dev
  scope: Namespaced
  names: {plural: tools, kind: Tool}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {size: {type: integer, maximum: 10}}}}
";

/// Returns the command with the directories `definitions` and `state` of a folder.
fn up(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command
        .args(["up", "--quiet", "--state"])
        .arg(folder.join("state"))
        .arg("--crd-dir")
        .arg(folder.join("definitions"))
        .arg("--kubeconfig-out")
        .arg(folder.join("kubeconfig"))
        .env("PATH", search_path().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    command
}

fn folder_with(definition: &str) -> TestDirectory {
    let folder = TestDirectory::create().unwrap();
    std::fs::create_dir(folder.path().join("definitions")).unwrap();
    std::fs::write(folder.path().join("definitions/tools.yaml"), definition).unwrap();
    folder
}

/// Ends the program as Ctrl-C does.
async fn end(mut program: Child) {
    let id = program.id().unwrap().cast_signed();
    kill_process(Pid::from_raw(id).unwrap(), Signal::INT).unwrap();
    let ended = timeout(TIMEOUT, program.wait()).await.expect("sluice ends");
    assert!(ended.unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kinds_of_a_directory_are_served_and_read_only() {
    let folder = folder_with(DEFINITION);
    let mut program = up(folder.path()).spawn().unwrap();
    sluice_runtime::http::install_crypto();
    let client = connect(&folder.path().join("kubeconfig"), &mut program, TIMEOUT)
        .await
        .expect("sluice up serves");
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("tools.dev", "v1", "Tool"));
    let tools: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let tool = |size: i64| -> DynamicObject {
        let tool = json!({"apiVersion": "tools.dev/v1", "kind": "Tool", "metadata": {"name": "a"}, "spec": {"size": size}});
        serde_json::from_value(tool).unwrap()
    };
    let refused = tools.create(&PostParams::default(), &tool(11)).await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 422),
        "{refused:?}"
    );
    tools.create(&PostParams::default(), &tool(10)).await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let refused = definitions
        .delete("tools.tools.dev", &DeleteParams::default())
        .await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403),
        "{refused:?}"
    );
    end(program).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_faulty_definition_ends_the_start() {
    let folder = folder_with(&DEFINITION.replace("Namespaced", "Galaxy"));
    let ended = timeout(TIMEOUT, up(folder.path()).output()).await;
    let ended = ended.expect("sluice up ends").unwrap();
    let text = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(
        text.contains("definitions: tools.yaml, document 1: ") && text.contains("spec.scope"),
        "{text}"
    );
}
