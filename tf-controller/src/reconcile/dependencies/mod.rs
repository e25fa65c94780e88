//! `spec.dependsOn`: the stacks that a stack depends on, and its dependents. A dependent puts the finalizer
//! `tf.dependency.of.<its name>` on its dependencies, so that none of them is deleted before it.

mod cycle;
mod dependents;

pub(crate) use cycle::dependency_order;
use cycle::targets;
pub(super) use dependents::dependents;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Resource, ResourceExt};
use sluice_api::condition::{TerraformCondition as Kind, find};
use sluice_api::reference::{self, AccessDenied, CrossNamespace, ObjectName};
use sluice_api::terraform::{DEPENDENT_FINALIZER_PREFIX, Dependency, Terraform};
use sluice_runtime::finalizer;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::status::{Applied, WriteError};
use sluice_runtime::watch::ObjectCache;

use super::resolve::api_message;
use super::{Context, ReconcileError};
use crate::decide::{Dependencies, SourceFact};

/// Longest finalizer name that the API accepts.
const MAX_FINALIZER_LENGTH: usize = 63;

/// Returns the finalizer that a dependent puts on its dependencies; `None` if the name would be too long. Without it,
/// only a dependent that holds resources blocks a deletion.
fn finalizer_of(dependent: &str) -> Option<String> {
    Some(format!("{DEPENDENT_FINALIZER_PREFIX}{dependent}")).filter(|name| name.len() <= MAX_FINALIZER_LENGTH)
}

/// Returns the dependency cycle that the stack is in, if any.
pub(super) fn cycle_of(stack: &Terraform, context: &Context) -> Dependencies {
    let members = cycle::deleted_cycle(stack, &context.stacks);
    if let Some(first) = members.first() {
        let names: Vec<_> = members.iter().map(ToString::to_string).collect();
        return Dependencies::Cycle(format!(
            "dependsOn forms a cycle of stacks that are all deleted: they are destroyed in the order of their names, \
             {first} first: {}",
            names.join(", ")
        ));
    }
    cycle::describe(stack, &context.stacks).map_or(Dependencies::Ready, Dependencies::Cycle)
}

/// Checks the dependencies in order and returns the first that is not ready. Puts the finalizer on each that exists.
pub(super) async fn check(
    stack: &Terraform,
    source: &SourceFact,
    context: &Context,
) -> Result<Dependencies, ReconcileError> {
    let cycle = cycle_of(stack, context);
    if cycle != Dependencies::Ready {
        return Ok(cycle);
    }
    for dependency in &stack.spec.depends_on {
        let name = match resolve(stack, dependency, context.cross_namespace) {
            Ok(name) => name,
            Err(denied) => return Ok(Dependencies::Denied(denied.to_string())),
        };
        if let Some(text) = blocking_reason(stack, source, &name, &context.client).await? {
            return Ok(Dependencies::Waiting(text));
        }
    }
    Ok(Dependencies::Ready)
}

/// Returns why this dependency blocks the stack.
async fn blocking_reason(
    stack: &Terraform,
    source: &SourceFact,
    name: &ObjectName,
    client: &Client,
) -> Result<Option<String>, ReconcileError> {
    let api: Api<Terraform> = Api::namespaced(client.clone(), &name.namespace);
    let mut found = match api.get(&name.name).await {
        Ok(found) => found,
        Err(error) => {
            let text = api_message(&error);
            return Ok(Some(format!("unable to get '{name}' dependency: {text}")));
        }
    };
    if found.meta().deletion_timestamp.is_none()
        && let Some(own) = finalizer_of(&stack.name_any())
    {
        match finalizer::ensure(&api, &found, &own).await {
            Ok(Applied::Unchanged(newest) | Applied::Written(newest)) => found = newest,
            Ok(Applied::Gone) => return Ok(Some(format!("dependency '{name}' is not ready"))),
            Err(error) => {
                let text = permanent_rejection(&error).ok_or(error)?;
                return Ok(Some(format!(
                    "cannot add finalizer {own} to dependency '{name}': {text}"
                )));
            }
        }
    }
    if let Some(text) = not_ready_reason(stack, source, &found, name) {
        return Ok(Some(text));
    }
    let Some(target) = &found.spec.write_outputs_to_secret else {
        return Ok(None);
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &name.namespace);
    // Only whether it exists: a stack reads its inputs under its own account.
    let text = match secrets.get_metadata_opt(&target.name).await {
        Ok(Some(_)) => return Ok(None),
        Ok(None) => format!(
            "dependency output secret: '{}/{}' of '{name}' is not ready yet",
            name.namespace, target.name
        ),
        Err(error) => format!("unable to get '{name}' dependency: {error}"),
    };
    Ok(Some(text))
}

/// Returns the message of an API that would reject the same write again, such as an admission rule or a missing
/// right. Other errors are temporary and not reported.
fn permanent_rejection(error: &WriteError) -> Option<String> {
    let WriteError::Api { source, .. } = error else {
        return None;
    };
    match &**source {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => Some(api_message(source)),
        _ => None,
    }
}

/// Returns why a dependency is not ready: it must have observed its spec, be ready, and have the revision that the
/// stack is about to run. A dependency that is to be destroyed is never ready.
fn not_ready_reason(
    stack: &Terraform,
    source: &SourceFact,
    dependency: &Terraform,
    name: &ObjectName,
) -> Option<String> {
    let status = dependency.status.clone().unwrap_or_default();
    let ready = find(&status.conditions, Kind::Ready).is_some_and(|ready| ready.status == "True");
    if status.observed_generation != dependency.meta().generation || !ready {
        return Some(format!("dependency '{name}' is not ready"));
    }
    if dependency.meta().deletion_timestamp.is_some() || dependency.spec.destroy {
        return Some(format!("dependency '{name}' is not ready: it will be destroyed"));
    }
    let SourceFact::Found { revision, .. } = source else {
        return None;
    };
    let updated = [&status.last_applied_revision, &status.last_planned_revision].contains(&revision);
    (share_source(stack, dependency) && !updated).then(|| format!("dependency '{name}' is not updated yet"))
}

/// Returns whether both read the same source. A reference without namespace refers to that of its own stack.
fn share_source(one: &Terraform, other: &Terraform) -> bool {
    let source = |stack: &Terraform| {
        let (own, to) = (stack.namespace().unwrap_or_default(), &stack.spec.source_ref);
        let target = reference::resolve(&own, &to.namespace, &to.name, CrossNamespace::Allowed);
        (to.kind, target)
    };
    source(one) == source(other)
}

/// Returns whether `other` names the stack in its `dependsOn`.
fn depends_on(other: &Terraform, namespace: &str, name: &str, policy: CrossNamespace) -> bool {
    let is_named = |dependency: &Dependency| {
        resolve(other, dependency, policy)
            .is_ok_and(|target| target.namespace == namespace && target.name == name)
    };
    other.spec.depends_on.iter().any(is_named)
}

/// Returns the stack that an entry of `dependsOn` names.
fn resolve(
    stack: &Terraform,
    dependency: &Dependency,
    policy: CrossNamespace,
) -> Result<ObjectName, AccessDenied> {
    let own = stack.namespace().unwrap_or_default();
    reference::resolve(&own, &dependency.namespace, &dependency.name, policy)
}

/// Removes the stack's finalizer from all its dependencies.
pub(super) async fn remove_finalizers(stack: &Terraform, context: &Context) -> Result<(), ReconcileError> {
    let Some(finalizer) = finalizer_of(&stack.name_any()) else {
        return Ok(());
    };
    for dependency in &stack.spec.depends_on {
        let Ok(name) = resolve(stack, dependency, context.cross_namespace) else {
            continue;
        };
        let api: Api<Terraform> = Api::namespaced(context.client.clone(), &name.namespace);
        let found = api.get_opt(&name.name).await;
        let found = found.map_err(|source| ReconcileError::Observe {
            stack: name.to_string(),
            source: Box::new(source),
        })?;
        if let Some(found) = found {
            finalizer::remove(&api, &found, &finalizer).await?;
        }
    }
    Ok(())
}

/// Returns the part of a stack that others wait for: a change of it triggers its dependents and its dependencies.
/// `None` for a stack that was never reconciled.
pub(crate) fn relevant_version(stack: &Terraform) -> Option<String> {
    let status = stack.status.as_ref()?;
    let ready = find(&status.conditions, Kind::Ready).map_or("", |ready| ready.status.as_str());
    Some(format!(
        "{:?} {:?} {ready} {} {} {}",
        stack.meta().generation,
        status.observed_generation,
        status.last_applied_revision,
        status.last_planned_revision,
        stack.meta().deletion_timestamp.is_some(),
    ))
}

/// Returns the stacks that a change of this stack triggers.
pub(crate) fn related_stacks(stack: &Terraform, all: &ObjectCache<Terraform>) -> Vec<ObjectKey> {
    let (own, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    let mut keys = all.keys(|other| depends_on(other, &own, &name, CrossNamespace::Allowed));
    let is_removed = |key: &ObjectKey| {
        all.get(key)
            .is_some_and(|found| found.meta().deletion_timestamp.is_some() || found.spec.destroy)
    };
    keys.extend(targets(stack).into_iter().filter(is_removed));
    // The last member of a deleted cycle triggers the first.
    keys.extend(cycle::deleted_cycle(stack, all));
    keys
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_too_long_for_a_finalizer_has_no_finalizer() {
        assert_eq!(finalizer_of("app").as_deref(), Some("tf.dependency.of.app"));
        assert!(finalizer_of(&"a".repeat(46)).is_some());
        assert_eq!(finalizer_of(&"a".repeat(47)), None);
    }

    /// Returns a stack of revision `a` that reads the source `code`.
    fn stack(namespace: &str, source: &str) -> Terraform {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "TerraformAppliedSucceed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let object = json!({ "metadata": { "name": "net", "namespace": namespace, "generation": 1 },
            "spec": { "interval": "1h",
                "sourceRef": { "kind": "GitRepository", "name": "code", "namespace": source } },
            "status": { "observedGeneration": 1, "lastAppliedRevision": "a", "conditions": [ready] } });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_revision_of_another_source_is_not_waited_for() {
        let source = SourceFact::Found {
            revision: "b".into(),
            digest: String::new(),
        };
        for (mine, theirs, waits) in [
            (("team-a", ""), ("team-a", ""), true),
            (("team-a", "team-a"), ("team-a", ""), true),
            (("team-a", ""), ("team-a", "team-a"), true),
            (("team-a", "team-b"), ("team-b", ""), true),
            (("team-a", "shared"), ("team-b", "shared"), true),
            (("team-a", ""), ("team-b", ""), false),
            (("team-a", "shared"), ("team-a", ""), false),
        ] {
            let name = ObjectName {
                namespace: theirs.0.into(),
                name: "net".into(),
            };
            let text = not_ready_reason(&stack(mine.0, mine.1), &source, &stack(theirs.0, theirs.1), &name);
            let expected = waits.then(|| format!("dependency '{name}' is not updated yet"));
            assert_eq!(text, expected, "{mine:?} {theirs:?}");
        }
    }

    #[test]
    fn only_a_permanent_rejection_is_reported() {
        let error = |code| WriteError::Api {
            what: "finalizers",
            kind: "Terraform".into(),
            name: "net".into(),
            source: Box::new(kube::Error::Api(
                Status::failure("no", "No").with_code(code).boxed(),
            )),
        };
        for code in [400, 403, 422] {
            assert_eq!(permanent_rejection(&error(code)).as_deref(), Some("no"), "{code}");
        }
        for code in [401, 404, 409, 429, 500, 503] {
            assert_eq!(permanent_rejection(&error(code)), None, "{code}");
        }
    }
}
