//! Fields that this version does not carry out. A field is never silently ignored: it stalls the object by name.

use sluice_api::terraform::TerraformSpec;

/// The first refused field of a spec and what to do, or nothing. Fields that are materialised by the schema's defaults
/// count only when they differ from them; those of the runner's pod have no effect where a run is a process.
#[must_use]
pub fn refused(spec: &TerraformSpec) -> Option<String> {
    let field = refused_field(spec)?;
    Some(format!(
        "spec.{field} is not supported by this version of Sluice; remove it, or keep tofu-controller for this object"
    ))
}

fn refused_field(spec: &TerraformSpec) -> Option<&'static str> {
    let fields: &[(&'static str, bool)] = &[("tool", spec.tool.is_some())];
    fields.iter().find_map(|(name, used)| used.then_some(*name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(more: Value) -> TerraformSpec {
        let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" } });
        let Value::Object(more) = more else {
            panic!("an object")
        };
        spec.as_object_mut().unwrap().extend(more);
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn what_is_built_is_accepted() {
        let used = json!({"approvePlan": "auto", "path": "./a", "vars": [{"name": "a", "value": 1}], "destroy": true,
            "varsFrom": [{"kind": "Secret", "name": "x"}], "writeOutputsToSecret": {"name": "o"}, "planOnly": true,
            "storeReadablePlan": "human", "destroyResourcesOnDeletion": true, "targets": ["a.b"], "parallelism": 3,
            "remediation": {"retries": 2}, "retryStrategy": "ExponentialBackoff", "upgradeOnInit": false,
            "tfstate": {"lockTimeout": "10s", "forceUnlock": "yes", "lockIdentifier": "x"}, "breakTheGlass": true,
            "enableInventory": true, "healthChecks": [{"name": "it", "type": "tcp", "address": "localhost:1"}], "plan": {"lock": false}, "branchPlanner": {"enablePathScope": true},
            "refreshBeforeApply": true, "enterprise": {}, "disableDriftDetection": true,
            "backendConfig": {}, "cloud": {"organization": "o", "workspaces": {}}, "workspace": "blue",
            "backendConfigsFrom": [{"kind": "Secret", "name": "b"}], "cliConfigSecretRef": {"name": "c"},
            "fileMappings": [{"location": "home", "path": "a", "secretRef": {"name": "f"}}],
            "runnerPodTemplate": {}, "serviceAccountName": "own", "alwaysCleanupRunnerPod": false,
            "runnerTerminationGracePeriodSeconds": 90});
        assert_eq!(refused(&spec(used)), None);
    }

    #[test]
    fn what_is_not_built_is_named() {
        let text = refused(&spec(json!({ "tool": { "name": "tofu" } }))).unwrap();
        assert!(text.starts_with("spec.tool is not supported"), "{text}");
    }
}
