//! The messages of a deletion that cannot destroy: what is in its way, and how a person ends the wait. Pure.

/// How to give up the destroy.
const ABANDON: &str =
    "abandon the resources with deletionPolicy: Retain or destroyResourcesOnDeletion: false";
/// The API server's text for a namespace in deletion, in which nothing can be created or restored.
const TERMINATING: &str = "because it is being terminated";

/// Returns the message about inputs that are missing, or that may not be read, and why nothing replaces them.
pub(super) fn without_inputs(missing: &str, is_denied: bool, why: &str) -> String {
    let message = format!("cannot destroy: {missing}; {why}");
    let remedy = if is_denied {
        "permit the access"
    } else {
        "restore the missing objects"
    };
    with_advice(&message, remedy)
}

/// Returns the message about a run that the API refuses.
pub(super) fn without_run(refusal: &str) -> String {
    with_advice(refusal, "permit it")
}

/// Returns the message about a run that waits for something before it begins. `wait` says how to end that.
pub(super) fn without_runner(wait: &str) -> String {
    format!("{wait}; or {ABANDON}")
}

fn with_advice(message: &str, remedy: &str) -> String {
    if message.contains(TERMINATING) {
        return format!(
            "{message}; nothing can be destroyed from a namespace that is being deleted: {ABANDON}, and delete them with the \
             tools of their provider"
        );
    }
    format!("{message}: {remedy}, or {ABANDON}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_obstacle_has_its_remedies() {
        let terminating = "unable to create new content in namespace team because it is being terminated";
        insta::assert_snapshot!([
            without_inputs("cannot read Secret a of varsFrom: not found", false, "no last applied record exists"),
            without_inputs("ServiceAccount team/own may not get Secret team/a of varsFrom", true, "no last applied record exists"),
            without_inputs(&format!("cannot use the Secret net-sluice-key: {terminating}"), false, "no last applied record exists"),
            without_run("cannot create a run: exceeded quota"),
            without_run(&format!("cannot create a run: {terminating}")),
            without_runner("Waiting for the pod of run net-1: create the ServiceAccount"),
        ].join("\n"), @"
        cannot destroy: cannot read Secret a of varsFrom: not found; no last applied record exists: restore the missing objects, or abandon the resources with deletionPolicy: Retain or destroyResourcesOnDeletion: false
        cannot destroy: ServiceAccount team/own may not get Secret team/a of varsFrom; no last applied record exists: permit the access, or abandon the resources with deletionPolicy: Retain or destroyResourcesOnDeletion: false
        cannot destroy: cannot use the Secret net-sluice-key: unable to create new content in namespace team because it is being terminated; no last applied record exists; nothing can be destroyed from a namespace that is being deleted: abandon the resources with deletionPolicy: Retain or destroyResourcesOnDeletion: false, and delete them with the tools of their provider
        cannot create a run: exceeded quota: permit it, or abandon the resources with deletionPolicy: Retain or destroyResourcesOnDeletion: false
        cannot create a run: unable to create new content in namespace team because it is being terminated; nothing can be destroyed from a namespace that is being deleted: abandon the resources with deletionPolicy: Retain or destroyResourcesOnDeletion: false, and delete them with the tools of their provider
        Waiting for the pod of run net-1: create the ServiceAccount; or abandon the resources with deletionPolicy: Retain or destroyResourcesOnDeletion: false
        ");
    }
}
