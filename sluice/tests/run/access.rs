//! A run whose ways to the API are not in the environment: the CLI's backend has a credential that is good for the stack's state and
//! lock alone, and what the module starts has the user's environment.

use serde_json::json;
use sluice_embedded::{Grant, GrantRule};
use tokio_util::sync::CancellationToken;

use crate::world::{NAMESPACE, STACK, Wish, World, ending};

fn rule(group: &str, resource: &str, verbs: &[&str], names: &[String], selector: &str) -> GrantRule {
    GrantRule {
        group: group.to_owned(),
        resource: resource.to_owned(),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        names: names.to_vec(),
        selector: selector.to_owned(),
    }
}

/// What the CLI's kubernetes backend needs for one state.
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
    let world = World::new("").await;
    let told = world.dir.path().join("environment");
    world.commit(&[(
        "main.tf",
        &format!(
            "resource \"terraform_data\" \"it\" {{\n  provisioner \"local-exec\" {{ command = \"env > {}\" }}\n}}\n",
            told.display()
        ),
    )]);
    let credential_issuer = world
        .serving
        .lock()
        .unwrap()
        .as_ref()
        .unwrap()
        .credential_issuer();
    let run = async |wish: Wish| {
        let name = world.prepare(wish).await;
        let mut context = world.context(&name);
        context.kubeconfig = None;
        context.backend_kubeconfig = Some(credential_issuer.kubeconfig(&state_only()).unwrap());
        for (variable, value) in [
            ("KUBECONFIG", "/the/users/own"),
            ("KUBE_CONFIG_PATH", "/the/users/own"),
            ("KUBE_TOKEN", "misleading"),
        ] {
            context.environment.insert(variable.to_owned(), value.to_owned());
        }
        world.carry_out(&name, context, CancellationToken::new()).await;
        world.get(&name).await
    };
    let planned = run(Wish::plan()).await;
    assert_eq!(
        ending(&planned),
        "Succeeded TerraformPlannedWithChanges",
        "{:?}",
        planned.status
    );
    let applied = run(Wish::apply(&planned)).await;
    assert_eq!(
        ending(&applied),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        applied.status
    );
    assert!(world.secret(&format!("tfstate-default-{STACK}")).await.is_some());
    let environment = std::fs::read_to_string(&told).unwrap();
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
async fn a_run_whose_input_is_cut_off_is_not_claimed() {
    let world = World::new("").await;
    world.commit(&[("main.tf", "")]);
    let name = world.prepare(Wish::plan()).await;
    let input = serde_json::to_vec(&json!({ "bundle": "canary".repeat(10_000) })).unwrap();
    let output = world.output_with_input(&name, &input[..input.len() / 2]).await;
    let log = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(3), "{log}");
    assert!(
        log.contains("standard input is not the JSON that --input-stdin asks for"),
        "{log}"
    );
    assert!(!log.contains("canary"), "{log}");
    let status = world.get(&name).await.status.unwrap_or_default();
    assert!(status.claim.is_none(), "{status:?}");
}
