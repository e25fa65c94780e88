//! Backends: arguments, plans that cannot be saved, and states of other locations.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cli_wrapper::{terraform_of_version, wrap_cli};
use crate::environment::{RunSetup, TestEnvironment, assert_ending, ending, status, wait_for_file};

const MODULE: &str = "variable \"size\" { default = \"one\" }\nresource \"terraform_data\" \"it\" { input = var.size }\n\
    output \"size\" { value = terraform_data.it.output }\n";

/// Returns a CLI that cannot save plans, as with a remote service.
fn without_saved_plans(env: &TestEnvironment) -> PathBuf {
    let refusal = "for word in \"$@\"; do case \"$word\" in -out=*|tfplan)\n  \
        printf '\\nError: Saving a generated plan is currently not supported\\n' >&2; exit 1;;\nesac; done";
    wrap_cli(env, refusal)
}

/// Returns a module with its own backend in a directory of the test.
fn own_backend(env: &TestEnvironment, module: &str) -> (String, PathBuf) {
    let state = env.dir.path().join("own.tfstate");
    let path = state.display();
    let text = format!("terraform {{\n  backend \"local\" {{ path = \"{path}\" }}\n}}\n{module}");
    (text, state)
}

fn without_backend(more: &Value) -> Value {
    let mut bundle = json!({ "backend": null, "surroundings": { "backendOff": true } });
    bundle
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    bundle
}

fn resources(state: &Path) -> usize {
    let state: Value = serde_json::from_slice(&std::fs::read(state).unwrap()).unwrap();
    state["resources"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_backend_applies_the_saved_plan_and_destroys() {
    let env = TestEnvironment::new("auto").await;
    let (module, state) = own_backend(&env, MODULE);
    env.commit(&[("main.tf", &module)]);
    let planned = env.run(RunSetup::plan().with(without_backend(&json!({})))).await;
    assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
    let applied = env
        .run(RunSetup::apply(&planned).with(without_backend(&json!({}))))
        .await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    assert_eq!(resources(&state), 1);
    let again = env
        .run(RunSetup::apply(&planned).with(without_backend(&json!({}))))
        .await;
    assert_eq!(
        ending(&again),
        "Failed PlanStale",
        "the file is what is applied: {:?}",
        again.status
    );
    let setup = RunSetup {
        destroy: true,
        ..RunSetup::plan_and_apply().with(without_backend(&json!({})))
    };
    let destroyed = env.run(setup).await;
    assert_eq!(
        status(&destroyed).message,
        "Destroy applied successfully",
        "{:?}",
        destroyed.status
    );
    assert_eq!(resources(&state), 0);
    assert!(env.secret("tfstate-default-net").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsaved_plan_is_applied_only_if_its_effect_is_unchanged() {
    let env = TestEnvironment::new("auto").await;
    let cli = without_saved_plans(&env);
    let (module, state) = own_backend(&env, MODULE);
    env.commit(&[("main.tf", &module)]);
    let planned = env
        .run_with_path(RunSetup::plan().with(without_backend(&json!({}))), &cli)
        .await;
    assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
    let result = status(&planned);
    assert_eq!(result.changes, "+1 ~0 -0", "read from its headings");
    assert!(
        result.human_plan.starts_with("Note: this plan cannot be saved"),
        "{}",
        result.human_plan
    );
    let twice = env
        .run_with_path(RunSetup::plan().with(without_backend(&json!({}))), &cli)
        .await;
    assert_eq!(
        status(&twice).effect_digest,
        result.effect_digest,
        "the same plan has the same id"
    );

    let applied = env
        .run_with_path(RunSetup::apply(&twice).with(without_backend(&json!({}))), &cli)
        .await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    assert_eq!(resources(&state), 1);
    let changed = without_backend(&json!({ "variables": "{\"size\":\"two\"}" }));
    let planned = env
        .run_with_path(RunSetup::plan().with(changed.clone()), &cli)
        .await;
    std::fs::remove_file(&state).unwrap();
    let other = env
        .run_with_path(RunSetup::apply(&planned).with(changed), &cli)
        .await;
    assert_ending(&other, "Failed TFExecApplyFailed");
    assert!(
        status(&other).message.contains("a different effect"),
        "{}",
        status(&other).message
    );
    assert!(
        !status(&other).attempted_apply && !state.exists(),
        "nothing was applied"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unsaved_plans_are_applied_and_destroyed_in_auto() {
    let env = TestEnvironment::new("auto").await;
    let cli = without_saved_plans(&env);
    let (module, state) = own_backend(&env, MODULE);
    env.commit(&[("main.tf", &module)]);
    let bundle = without_backend(&json!({ "outputs": { "name": "net-outputs" } }));
    let applied = env
        .run_with_path(RunSetup::plan_and_apply().with(bundle.clone()), &cli)
        .await;
    assert_ending(&applied, "Succeeded TerraformOutputsWritten");
    assert_eq!(env.secret("net-outputs").await.unwrap()["size"], "one");
    let setup = RunSetup {
        destroy: true,
        ..RunSetup::plan_and_apply().with(bundle)
    };
    let destroyed = env.run_with_path(setup, &cli).await;
    assert_eq!(
        status(&destroyed).message,
        "Destroy applied successfully",
        "{:?}",
        destroyed.status
    );
    assert_eq!(
        (status(&destroyed).changes.as_str(), resources(&state)),
        ("+0 ~0 -1", 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_in_a_temporary_directory_causes_warnings() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let planned = env.run(RunSetup::plan().with(without_backend(&json!({})))).await;
    let text = status(&planned).human_plan;
    assert!(
        text.starts_with("Note: the state of this stack is in its working directory"),
        "{text}"
    );
    let applied = env
        .run(RunSetup::apply(&planned).with(without_backend(&json!({}))))
        .await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    let message = status(&applied).message;
    assert!(message.starts_with("Applied successfully. Note: "), "{message}");
    let next = env.run(RunSetup::plan_and_apply()).await;
    assert_eq!(status(&next).message, "Applied successfully");
    assert!(!status(&next).human_plan.contains("Note: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_of_the_runner_reach_the_cli_and_a_stack_may_set_its_own() {
    let env = TestEnvironment::new("auto").await;
    let module = "resource \"terraform_data\" \"it\" {\n  provisioner \"local-exec\" {\n    \
        command = \"printenv HTTPS_PROXY NO_PROXY > $TOLD\"\n  }\n}\n";
    env.commit(&[("main.tf", module)]);
    let output = env.dir.path().join("output");
    for (given, expected) in [
        (json!({}), "http://proxy.invalid\nlocalhost,127.0.0.1\n"),
        (
            json!({ "HTTPS_PROXY": "http://own.invalid" }),
            "http://own.invalid\nlocalhost,127.0.0.1\n",
        ),
    ] {
        let mut environment = json!({ "TOLD": output });
        environment
            .as_object_mut()
            .unwrap()
            .extend(given.as_object().unwrap().clone());
        // A separate state each time, so that there are changes.
        let off = without_backend(&json!({ "environment": environment }));
        let name = env.prepare(RunSetup::plan_and_apply().with(off)).await;
        let mut context = env.context(&name);
        let proxies = [
            ("HTTPS_PROXY", "http://proxy.invalid"),
            ("NO_PROXY", "localhost,127.0.0.1"),
        ];
        context
            .environment
            .extend(proxies.map(|(name, value)| (name.to_owned(), value.to_owned())));
        env.execute_run(&name, context, CancellationToken::new()).await;
        let run = env.get(&name).await;
        assert_ending(&run, "Succeeded TerraformAppliedSucceed");
        assert_eq!(std::fs::read_to_string(&output).unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsaved_plan_fails_with_the_kubernetes_backend() {
    let env = TestEnvironment::new("auto").await;
    let cli = without_saved_plans(&env);
    env.commit(&[("main.tf", MODULE)]);
    let failed = env.run_with_path(RunSetup::plan_and_apply(), &cli).await;
    assert_ending(&failed, "Failed TFExecPlanFailed");
}

#[tokio::test(flavor = "multi_thread")]
async fn backend_arguments_reach_init_but_not_the_command_line() {
    let env = TestEnvironment::new("auto").await;
    let log = env.dir.path().join("words");
    let cli = wrap_cli(&env, &format!("echo \"$@\" >> {}", log.display()));
    let state = env.dir.path().join("it's a state.tfstate");
    env.commit(&[("main.tf", MODULE)]);
    let bundle = json!({ "backend": "terraform {\n  backend \"local\" {}\n}\n",
        "surroundings": { "backendArguments": { "path": state.display().to_string() } },
        "options": { "planLock": true, "upgradeOnInit": false } });
    let applied = env
        .run_with_path(RunSetup::plan_and_apply().with(bundle), &cli)
        .await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    assert_eq!(resources(&state), 1);
    let words = std::fs::read_to_string(log).unwrap();
    assert!(
        !words.contains("a state") && words.contains("init") && words.contains("-upgrade=false"),
        "{words}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_errored_state_is_pushed_only_to_its_own_backend() {
    let env = TestEnvironment::new("auto").await;
    let marker = env.dir.path().join("marker");
    let go = marker.with_extension("go");
    let wait = format!(
        "touch {}; while ! test -e {}; do sleep 0.05; done",
        marker.display(),
        go.display()
    );
    let module = format!(
        "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"{wait}\" }}\n}}\n"
    );
    env.commit(&[("main.tf", &module)]);
    let here = json!({ "surroundings": { "statePlace": "here" } });
    let name = env.prepare(RunSetup::plan_and_apply().with(here.clone())).await;
    let context = env.context(&name);
    let interference = async {
        wait_for_file(&marker).await;
        let address = env.stop_api().await;
        std::fs::write(&go, "").unwrap();
        address
    };
    let (_, address) = tokio::join!(
        env.execute_run(&name, context, CancellationToken::new()),
        interference
    );
    env.restart_api(address).await;
    let backend = "terraform {\n  backend \"kubernetes\" {\n    secret_suffix = \"other\"\n    namespace = \"team\"\n  }\n}\n";
    let there = json!({ "backend": backend, "surroundings": { "statePlace": "there" } });
    let refused = env.run(RunSetup::plan_and_apply().with(there)).await;
    assert_ending(&refused, "Failed TFExecInitFailed");
    assert!(
        status(&refused).message.contains("previous backend"),
        "{}",
        status(&refused).message
    );
    let pushed = env.run(RunSetup::plan_and_apply().with(here)).await;
    assert_ending(&pushed, "Succeeded TerraformPlannedNoChanges");
}

/// `init` runs in the workspace `default`, where Terraform 1.6 replaces a state that its labels do not select.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_labels_do_not_select_is_not_replaced_in_any_workspace() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let applied = env.run(RunSetup::plan_and_apply()).await;
    assert_eq!(ending(&applied), "Succeeded TerraformAppliedSucceed");
    let state = env.secret("tfstate-default-net").await;
    let labelled = |workspace: &str| {
        let names = ["default".to_owned(), workspace.to_owned()].map(|name| format!("tfstate-{name}-net"));
        let secrets = json!({ "names": names, "labels": { "env": "b" } });
        RunSetup::plan().with(json!({ "workspace": workspace, "stateCheck": { "secrets": secrets } }))
    };
    let current = terraform_of_version(&env, "1.6.0");
    for workspace in ["default", "blue"] {
        let refused = env.run_with_path(labelled(workspace), &current).await;
        assert_eq!(
            ending(&refused),
            "Failed TFExecInitFailed",
            "{workspace}: {:?}",
            refused.status
        );
        let message = status(&refused).message;
        assert!(
            message.contains("the Secret tfstate-default-net does not have env=b"),
            "{message}"
        );
        assert_eq!(env.secret("tfstate-default-net").await, state);
        assert!(env.secret("tfstate-blue-net").await.is_none());
    }
    // An earlier version finds the state by its name.
    let earlier = terraform_of_version(&env, "1.5.7");
    let planned = env.run_with_path(labelled("default"), &earlier).await;
    assert_ending(&planned, "Succeeded TerraformPlannedNoChanges");
}
