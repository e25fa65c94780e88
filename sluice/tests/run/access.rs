//! Kubeconfigs outside of the environment: the backend of the CLI has a credential for state and lock of the stack only, and processes
//! of the module have the environment of the user.

use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use sluice_api::run::TerraformRun;
use sluice_embedded::{Grant, GrantRule};
use sluice_tf_runner::run::execute;
use tokio_util::sync::CancellationToken;

use crate::environment::{NAMESPACE, RunSetup, STACK, TestEnvironment, assert_ending, ending};

fn rule(group: &str, resource: &str, verbs: &[&str], names: &[String], selector: &str) -> GrantRule {
    GrantRule {
        group: group.to_owned(),
        resource: resource.to_owned(),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        names: names.to_vec(),
        selector: selector.to_owned(),
    }
}

/// Returns the rights that the `kubernetes` backend requires for one state.
fn state_only() -> Grant {
    let all = ["get", "create", "update", "patch", "delete"];
    let state = [format!("tfstate-default-{STACK}")];
    let lock = [format!("lock-tfstate-default-{STACK}")];
    Grant {
        namespace: NAMESPACE.to_owned(),
        rules: vec![
            rule("", "secrets", &all, &state, ""),
            rule(
                "",
                "secrets",
                &["list"],
                &[],
                &format!("tfstateSecretSuffix={STACK}"),
            ),
            rule("coordination.k8s.io", "leases", &all, &lock, ""),
        ],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_for_state_and_lock_is_enough_and_is_not_in_the_environment() {
    let env = TestEnvironment::new("").await;
    let output = env.dir.path().join("environment");
    env.commit(&[(
        "main.tf",
        &format!(
            "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"env > {}\" }}\n}}\n",
            output.display()
        ),
    )]);
    let credential_issuer = env.serving.lock().unwrap().as_ref().unwrap().credential_issuer();
    let run = async |setup: RunSetup| {
        let name = env.prepare(setup).await;
        let mut context = env.context(&name);
        context.kubeconfig = None;
        context.backend_kubeconfig = Some(credential_issuer.kubeconfig(&state_only()).unwrap());
        for (variable, value) in [
            ("KUBECONFIG", "/the/users/own"),
            ("KUBE_CONFIG_PATH", "/the/users/own"),
            ("KUBE_TOKEN", "misleading"),
        ] {
            context.environment.insert(variable.to_owned(), value.to_owned());
        }
        env.execute_run(&name, context, CancellationToken::new()).await;
        env.get(&name).await
    };
    let planned = run(RunSetup::plan()).await;
    assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
    let applied = run(RunSetup::apply(&planned)).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    assert!(env.secret(&format!("tfstate-default-{STACK}")).await.is_some());
    // The run reads the new state with that credential, and needs no command for it.
    let result = applied.status.unwrap();
    assert_eq!(result.state.map(|state| state.resources), Some(1));
    let logs = std::fs::read_dir(&result.log_path).unwrap();
    let logs: Vec<_> = logs
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    let has_log_of = |command: &str| logs.iter().any(|log| log.contains(command));
    assert!(has_log_of("apply") && !has_log_of("state-pull"), "{logs:?}");
    let environment = std::fs::read_to_string(&output).unwrap();
    let kube: Vec<_> = environment
        .lines()
        .filter(|line| line.starts_with("KUBE"))
        .collect();
    let mut kube = kube;
    kube.sort_unstable();
    assert_eq!(
        kube,
        ["KUBECONFIG=/the/users/own", "KUBE_CONFIG_PATH=/the/users/own"]
    );
    assert!(!environment.contains("sluice-grant"), "no token is in it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_truncated_input_is_not_claimed() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", "")]);
    let name = env.prepare(RunSetup::plan()).await;
    let input = serde_json::to_vec(&json!({ "bundle": "canary".repeat(10_000) })).unwrap();
    let output = env.output_with_input(&name, &input[..input.len() / 2]).await;
    let log = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(3), "{log}");
    assert!(
        log.contains("standard input is not the JSON that --input-stdin requires"),
        "{log}"
    );
    assert!(!log.contains("canary"), "{log}");
    let status = env.get(&name).await.status.unwrap_or_default();
    assert!(status.claim.is_none(), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_run_that_its_executor_passed_names_its_version() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", "output \"it\" { value = 1 }\n")]);
    let runs: Api<TerraformRun> = Api::namespaced(env.client(), NAMESPACE);
    for is_outdated in [false, true] {
        let name = env.prepare(RunSetup::plan()).await;
        let mut context = env.context(&name);
        context.run = Some(env.get(&name).await);
        if is_outdated {
            let change = json!({ "metadata": { "annotations": { "by": "another client" } } });
            let (params, patch) = (PatchParams::default(), Patch::Merge(change));
            runs.patch(&name, &params, &patch).await.unwrap();
        }
        env.execute_run(&name, context, CancellationToken::new()).await;
        let ended = env.get(&name).await;
        assert_eq!(
            ending(&ended),
            "Succeeded TerraformPlannedWithChanges",
            "outdated: {is_outdated}"
        );
        assert!(ended.status.unwrap().claim.is_some());
    }
    // One that another runner has claimed since is not claimed again.
    let name = env.prepare(RunSetup::plan()).await;
    let mut context = env.context(&name);
    context.run = Some(env.get(&name).await);
    let claimed = json!({ "status": { "phase": "Claimed", "claim": { "holder": "another" } } });
    let (params, patch) = (PatchParams::default(), Patch::Merge(claimed));
    runs.patch_status(&name, &params, &patch).await.unwrap();
    let refused = Box::pin(execute(&context, CancellationToken::new())).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("another"), "{error}");
    let holder = env.get(&name).await.status.unwrap().claim.unwrap().holder;
    assert_eq!(holder, "another");
}
