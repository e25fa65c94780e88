//! The messages of a deletion that cannot destroy: what is in its way, and how a user ends the wait. Pure.

use sluice_api::terraform::TerraformSpec;

/// The API server's text for a namespace in deletion, in which nothing can be created or restored.
const TERMINATING: &str = "because it is being terminated";

/// Returns the message about inputs that are missing, or that may not be read, and why nothing replaces them.
pub(super) fn without_inputs(missing: &str, is_denied: bool, why: &str, spec: &TerraformSpec) -> String {
    let message = format!("cannot destroy: {missing}; {why}");
    let remedy = if is_denied {
        "permit the access"
    } else {
        "restore the missing objects"
    };
    let advice = with_advice(&message, remedy, spec);
    if message.contains(TERMINATING) {
        advice
    } else {
        // No attempt to create an object has shown whether it is.
        format!("{advice}; if the namespace is being deleted, only the latter is possible")
    }
}

/// Returns the message about a run that the API refuses.
pub(super) fn without_run(refusal: &str, spec: &TerraformSpec) -> String {
    with_advice(refusal, "permit it", spec)
}

/// Returns the message about a run that waits for something before it begins. `wait` says how to end that.
pub(super) fn without_runner(wait: &str, spec: &TerraformSpec) -> String {
    format!("{wait}; or {}", abandon(spec))
}

fn with_advice(message: &str, remedy: &str, spec: &TerraformSpec) -> String {
    let abandon = abandon(spec);
    if message.contains(TERMINATING) {
        return format!(
            "{message}; nothing can be destroyed from a namespace that is being deleted: {abandon}, and delete them with the \
             tools of their provider"
        );
    }
    format!("{message}: {remedy}, or {abandon}")
}

/// Says how to give up the destroy. `deletionPolicy` takes precedence, and the definition rejects `Retain` together with
/// `destroyResourcesOnDeletion`.
const fn abandon(spec: &TerraformSpec) -> &'static str {
    match (spec.deletion_policy, spec.destroy_resources_on_deletion) {
        (None, _) => "abandon the resources with destroyResourcesOnDeletion: false",
        (Some(_), false) => "abandon the resources with deletionPolicy: Retain",
        (Some(_), true) => {
            "abandon the resources with deletionPolicy: Retain and destroyResourcesOnDeletion: false"
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(fields: &Value) -> TerraformSpec {
        let mut spec = json!({ "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "code" } });
        let fields = fields.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn each_obstacle_has_its_remedies() {
        let terminating = "unable to create new content in namespace team because it is being terminated";
        let spec = spec(&json!({ "deletionPolicy": "Destroy" }));
        insta::assert_snapshot!([
            without_inputs("cannot read Secret a of varsFrom: not found", false, "no last applied record exists", &spec),
            without_inputs("ServiceAccount team/own may not get Secret team/a of varsFrom", true, "no last applied record exists", &spec),
            without_inputs(&format!("cannot use the Secret net-sluice-key: {terminating}"), false, "no last applied record exists", &spec),
            without_run("cannot create a run: exceeded quota", &spec),
            without_run(&format!("cannot create a run: {terminating}"), &spec),
            without_runner("Waiting for the pod of run net-1: create the ServiceAccount", &spec),
        ].join("\n"), @"
        cannot destroy: cannot read Secret a of varsFrom: not found; no last applied record exists: restore the missing objects, or abandon the resources with deletionPolicy: Retain; if the namespace is being deleted, only the latter is possible
        cannot destroy: ServiceAccount team/own may not get Secret team/a of varsFrom; no last applied record exists: permit the access, or abandon the resources with deletionPolicy: Retain; if the namespace is being deleted, only the latter is possible
        cannot destroy: cannot use the Secret net-sluice-key: unable to create new content in namespace team because it is being terminated; no last applied record exists; nothing can be destroyed from a namespace that is being deleted: abandon the resources with deletionPolicy: Retain, and delete them with the tools of their provider
        cannot create a run: exceeded quota: permit it, or abandon the resources with deletionPolicy: Retain
        cannot create a run: unable to create new content in namespace team because it is being terminated; nothing can be destroyed from a namespace that is being deleted: abandon the resources with deletionPolicy: Retain, and delete them with the tools of their provider
        Waiting for the pod of run net-1: create the ServiceAccount; or abandon the resources with deletionPolicy: Retain
        ");
    }

    #[test]
    fn the_fields_that_abandon_the_resources_follow_from_those_that_are_set() {
        let fields = |fields: Value| {
            let text = abandon(&spec(&fields));
            text.trim_start_matches("abandon the resources with ").to_owned()
        };
        assert_eq!(
            fields(json!({ "destroyResourcesOnDeletion": true })),
            "destroyResourcesOnDeletion: false"
        );
        let destroy = json!({ "deletionPolicy": "Destroy" });
        assert_eq!(fields(destroy), "deletionPolicy: Retain");
        assert_eq!(
            fields(json!({ "deletionPolicy": "Destroy", "destroyResourcesOnDeletion": true })),
            "deletionPolicy: Retain and destroyResourcesOnDeletion: false"
        );
    }
}
