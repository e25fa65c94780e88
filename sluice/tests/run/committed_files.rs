//! Files of another use of the CLI in the artifact: a committed state, and records of a backend and a workspace.

use serde_json::{Value, json};

use crate::cli_wrapper::wrap_cli;
use crate::environment::{RunSetup, TestEnvironment, assert_ending, ending, status};

const MODULE: &str = "resource \"terraform_data\" \"it\" { input = \"old\" }\nresource \"terraform_data\" \"new\" {}\n\
    output \"workspace\" { value = terraform.workspace }\n";

/// Returns a state with `terraform_data.it` from a use without a backend.
pub(crate) fn state() -> String {
    let text = |value: &str| json!({ "value": value, "type": "string" });
    let attributes = json!({ "id": "2120f325-583f-7764-954d-3f070211d61b", "input": text("old"), "output": text("old"),
        "triggers_replace": null });
    let resource = json!({ "mode": "managed", "type": "terraform_data", "name": "it",
        "provider": "provider[\"terraform.io/builtin/terraform\"]",
        "instances": [{ "schema_version": 0, "attributes": attributes }] });
    let state = json!({ "version": 4, "terraform_version": "1.5.0", "serial": 3,
        "lineage": "598cbcdc-2618-ca6e-ebde-05e7b9443e8c", "outputs": {}, "resources": [resource], "check_results": null });
    state.to_string()
}

fn outputs() -> Value {
    json!({ "outputs": { "name": "net-outputs" } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_committed_state_is_imported_once_and_replaces_no_state() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE), ("terraform.tfstate", &state())]);
    let first = env.run(RunSetup::plan_and_apply()).await;
    assert_ending(&first, "Succeeded TerraformAppliedSucceed");
    assert_eq!(
        status(&first).changes,
        "+1 ~0 -0",
        "what the state holds is not made again"
    );
    let second = env.run(RunSetup::plan_and_apply()).await;
    assert_ending(&second, "Succeeded TerraformPlannedNoChanges");

    env.commit(&[
        ("main.tf", &MODULE.replace("old", "newer")),
        ("terraform.tfstate", &state()),
    ]);
    let planned = env.run(RunSetup::plan()).await;
    assert_eq!(status(&planned).changes, "+0 ~1 -0", "{:?}", planned.status);
    let applied = env.run(RunSetup::apply(&planned)).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    let setup = RunSetup {
        destroy: true,
        ..RunSetup::plan_and_apply()
    };
    assert_eq!(status(&env.run(setup.clone()).await).changes, "+0 ~0 -2");
    let again = env.run(setup).await;
    assert_eq!(
        ending(&again),
        "Succeeded TerraformPlannedNoChanges",
        "what was destroyed does not return: {:?}",
        again.status
    );
}

/// As OpenTofu does if `TF_CLI_CONFIG_FILE` does not exist. The `kubernetes` backend creates an empty state at `init`, others do not.
#[tokio::test(flavor = "multi_thread")]
async fn warnings_before_an_empty_state_are_not_a_state() {
    for makes_one in [true, false] {
        let env = TestEnvironment::new("auto").await;
        let cli = wrap_cli(
            &env,
            "if [ \"$1 $2\" = \"state pull\" ]; then\n  \
             printf '\\nWarning: Unable to open CLI configuration file\\n\\nThe file \"{x}\" does not exist.\\n\\n'\nfi",
        );
        let file = env.dir.path().join("elsewhere.tfstate");
        let local = format!(
            "terraform {{\n  backend \"local\" {{ path = \"{}\" }}\n}}\n",
            file.display()
        );
        let bundle = if makes_one {
            json!({})
        } else {
            json!({ "backend": local })
        };
        env.commit(&[("main.tf", MODULE), ("terraform.tfstate", &state())]);
        let setup = RunSetup::plan_and_apply().with(bundle);
        let first = env.run_with_path(setup.clone(), &cli).await;
        assert_eq!(
            (ending(&first).as_str(), status(&first).changes.as_str()),
            ("Succeeded TerraformAppliedSucceed", "+1 ~0 -0"),
            "what the state holds is not made again: {:?}",
            first.status
        );
        let second = env.run_with_path(setup, &cli).await;
        let ended = ending(&second);
        assert_eq!(
            ended, "Succeeded TerraformPlannedNoChanges",
            "{:?}",
            second.status
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_cli_metadata_is_ignored() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let blue = json!({ "workspace": "blue" });
    let elsewhere = env.run(RunSetup::plan_and_apply().with(blue)).await;
    assert_eq!(status(&elsewhere).changes, "+2 ~0 -0", "{:?}", elsewhere.status);

    let backend = json!({ "type": "local", "config": { "path": "mine.tfstate", "workspace_dir": null }, "hash": 1_234_567 });
    let note =
        json!({ "version": 3, "serial": 1, "lineage": "l", "backend": backend, "modules": [] }).to_string();
    env.commit(&[
        ("main.tf", MODULE),
        ("mine.tfstate", &state()),
        (".terraform/terraform.tfstate", &note),
        (".terraform/environment", "blue"),
    ]);
    let first = env.run(RunSetup::plan_and_apply().with(outputs())).await;
    assert_ending(&first, "Succeeded TerraformOutputsWritten");
    assert_eq!(env.secret("net-outputs").await.unwrap()["workspace"], "default");
    assert_eq!(status(&first).changes, "+2 ~0 -0");
    let second = env.run(RunSetup::plan_and_apply().with(outputs())).await;
    assert_ending(&second, "Succeeded TerraformPlannedNoChanges");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_backend_uses_the_committed_state() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE), ("terraform.tfstate", &state())]);
    for bundle in [
        json!({ "backend": "terraform {\n  backend \"local\" {}\n}\n" }),
        json!({ "backend": null, "surroundings": { "backendOff": true } }),
    ] {
        let planned = env.run(RunSetup::plan().with(bundle)).await;
        assert_eq!(status(&planned).changes, "+1 ~0 -0", "{:?}", planned.status);
    }
}
