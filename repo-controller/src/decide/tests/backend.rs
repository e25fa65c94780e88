//! Where the state of a `Repo` is.

use std::collections::BTreeSet;

use sluice_api::terraform::{label_value, name_with_digest};

use super::*;

/// Returns the Secret with the state of a new `Repo`, as the CLI names it.
fn state_secret(name: &str, workspace: &str) -> String {
    let mut repo = repo(&json!({ "workspace": workspace }));
    repo.metadata.name = Some(name.to_owned());
    let object = created(decide(&repo, &Observed::default()).stack);
    let stack: Terraform = typed(serde_json::to_value(object).unwrap());
    let suffix = stack.spec.backend_config.as_ref().map_or_else(
        || label_value(name),
        |config| {
            assert!(config.in_cluster_config);
            config.secret_suffix.clone()
        },
    );
    format!("tfstate-{}-{suffix}", stack.spec.workspace_name())
}

#[test]
fn no_two_repos_of_a_namespace_share_a_state() {
    assert_eq!(state_secret("app", ""), "tfstate-default-app");
    assert_eq!(state_secret("eu-app", "prod"), "tfstate-prod-eu-app");
    assert_eq!(
        state_secret("app", "prod-eu"),
        format!("tfstate-prod-eu-{}", name_with_digest("app"))
    );
    let parts = ["a", "b", "a-b", "b-a", "a-a-b", "a-b-a", "b-a-b"];
    let all = parts.iter().flat_map(|name| {
        let workspaces = parts.iter().chain(&[""]);
        workspaces.map(|workspace| state_secret(name, workspace))
    });
    let all: Vec<String> = all.collect();
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "{all:#?}");
}

#[test]
fn the_suffix_of_a_state_follows_from_the_present_workspace() {
    let suffix = name_with_digest("app");
    let own = json!({ "secretSuffix": suffix, "inClusterConfig": true });
    let backend = |workspace: &str, spec: &Value| {
        let stack = stack(&json!({ "spec": spec }));
        let observed = Observed {
            stack: Some(stack),
            ..Observed::default()
        };
        let repo = repo(&json!({ "workspace": workspace }));
        match decide(&repo, &observed).stack {
            Some(ChildWrite::Patch(body)) => body["spec"].get("backendConfig").cloned(),
            _ => None,
        }
    };
    let with_own = json!({ "backendConfig": own });
    assert_eq!(backend("prod-eu", &json!({})), Some(own.clone()));
    assert_eq!(backend("prod-eu", &with_own), None);
    assert_eq!(backend("prod", &with_own), Some(Value::Null));
    assert_eq!(backend("", &with_own), Some(Value::Null));
    assert_eq!(backend("prod", &json!({})), None);
    // Of a user.
    for spec in [
        json!({ "backendConfig": { "secretSuffix": "net", "inClusterConfig": true } }),
        json!({ "backendConfig": { "customConfiguration": "backend \"s3\" {}" } }),
        json!({ "cloud": { "organization": "o", "workspaces": { "name": "w" } } }),
    ] {
        for workspace in ["prod-eu", "prod"] {
            assert_eq!(backend(workspace, &spec), None, "{workspace} {spec}");
        }
    }
}
