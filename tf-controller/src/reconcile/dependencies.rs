//! `dependsOn` as seen on the API: what a stack builds on, and who builds on it. The stacks that a stack names carry the
//! finalizer `tf.dependency.of.<its name>`, so that none of them goes before it.

mod cycle;
mod dependants;

use super::{Context, PassError, resolve::words};
use crate::decide::{Dependencies, SourceFact};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Resource, ResourceExt};
use sluice_api::{
    condition::{TerraformCondition as Kind, find},
    reference::{self, CrossNamespace, ObjectName},
    terraform::{DEPENDANT_FINALIZER, Dependency, Terraform},
};
use sluice_runtime::{
    finalizer,
    schedule::ObjectKey,
    status::{Applied, WriteError},
    watch::Objects,
};

use cycle::targets;

pub(crate) use cycle::in_order;
pub(super) use dependants::dependants;

/// Longest name of a finalizer that the API takes.
const LONGEST: usize = 63;

/// The finalizer that a dependant puts on what it builds on; none where its name is too long for one. Then what it holds
/// keeps the other from going before it, and before it holds anything nothing does.
fn finalizer_of(dependant: &str) -> Option<String> {
    Some(format!("{DEPENDANT_FINALIZER}{dependant}")).filter(|name| name.len() <= LONGEST)
}

/// The circle that the stack is in, if it is in one.
pub(super) fn circle(stack: &Terraform, context: &Context) -> Dependencies {
    let together = cycle::deleted_together(stack, &context.stacks);
    if let Some(first) = together.first() {
        let names: Vec<_> = together.iter().map(ToString::to_string).collect();
        return Dependencies::Cycle(format!(
            "dependsOn forms a cycle of stacks that are all deleted: they go in the order of their names, {first} first: {}",
            names.join(", ")
        ));
    }
    cycle::of(stack, &context.stacks).map_or(Dependencies::Ready, Dependencies::Cycle)
}

/// Looks at what the stack builds on, one after the other; the first that is not as far decides. Each that is there gets
/// the finalizer.
pub(super) async fn look(
    stack: &Terraform,
    source: &SourceFact,
    context: &Context,
) -> Result<Dependencies, PassError> {
    let circle = circle(stack, context);
    if circle != Dependencies::Ready {
        return Ok(circle);
    }
    let own = stack.namespace().unwrap_or_default();
    for wanted in &stack.spec.depends_on {
        let name = match reference::resolve(&own, &wanted.namespace, &wanted.name, context.cross_namespace) {
            Ok(name) => name,
            Err(denied) => return Ok(Dependencies::Denied(denied.to_string())),
        };
        if let Some(text) = stands_in_the_way(stack, source, &name, &context.client).await? {
            return Ok(Dependencies::Waiting(text));
        }
    }
    Ok(Dependencies::Ready)
}

/// Why the stack cannot go on because of this one.
async fn stands_in_the_way(
    stack: &Terraform,
    source: &SourceFact,
    name: &ObjectName,
    client: &Client,
) -> Result<Option<String>, PassError> {
    let api: Api<Terraform> = Api::namespaced(client.clone(), &name.namespace);
    let mut found = match api.get(&name.name).await {
        Ok(found) => found,
        Err(error) => {
            let text = words(&error);
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
                let text = refusal(&error).ok_or(error)?;
                return Ok(Some(format!(
                    "cannot put finalizer {own} on dependency '{name}': {text}"
                )));
            }
        }
    }
    if let Some(text) = behind(stack, source, &found, name) {
        return Ok(Some(text));
    }
    let Some(target) = &found.spec.write_outputs_to_secret else {
        return Ok(None);
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &name.namespace);
    let text = match secrets.get_opt(&target.name).await {
        Ok(Some(_)) => return Ok(None),
        Ok(None) => format!(
            "dependency output secret: '{}/{}' of '{name}' is not ready yet",
            name.namespace, target.name
        ),
        Err(error) => format!("unable to get '{name}' dependency: {error}"),
    };
    Ok(Some(text))
}

/// What the API says where it would refuse the same write again: an admission rule, a right that is missing. The rest is
/// nobody's business, and over soon.
fn refusal(error: &WriteError) -> Option<String> {
    let WriteError::Api { source, .. } = error else {
        return None;
    };
    match &**source {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => Some(words(source)),
        _ => None,
    }
}

/// What a dependency itself says: it must have seen its spec, be as it wants to be, and have the revision that the stack
/// is about to run. One that is to be destroyed is none to build on.
fn behind(
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
        return Some(format!("dependency '{name}' is not ready: it is to be destroyed"));
    }
    let SourceFact::Found { revision, .. } = source else {
        return None;
    };
    let updated = [&status.last_applied_revision, &status.last_planned_revision].contains(&revision);
    (share_source(stack, dependency) && !updated).then(|| format!("dependency '{name}' is not updated yet"))
}

/// Whether both read the same source: where a reference names no namespace, it is that of its own stack.
fn share_source(one: &Terraform, other: &Terraform) -> bool {
    let source = |stack: &Terraform| {
        let (own, to) = (stack.namespace().unwrap_or_default(), &stack.spec.source_ref);
        let target = reference::resolve(&own, &to.namespace, &to.name, CrossNamespace::Allowed);
        (to.kind, target)
    };
    source(one) == source(other)
}

/// Whether `other` names the stack in its `dependsOn`.
fn builds_on(other: &Terraform, namespace: &str, name: &str, policy: CrossNamespace) -> bool {
    let own = other.namespace().unwrap_or_default();
    let leads = |to: &Dependency| {
        reference::resolve(&own, &to.namespace, &to.name, policy)
            .is_ok_and(|target| target.namespace == namespace && target.name == name)
    };
    other.spec.depends_on.iter().any(leads)
}

/// Takes the stack's finalizer off everything it builds on. What is gone needs none.
pub(super) async fn let_go(stack: &Terraform, context: &Context) -> Result<(), PassError> {
    let own = stack.namespace().unwrap_or_default();
    let Some(finalizer) = finalizer_of(&stack.name_any()) else {
        return Ok(());
    };
    for wanted in &stack.spec.depends_on {
        let Ok(name) = reference::resolve(&own, &wanted.namespace, &wanted.name, context.cross_namespace)
        else {
            continue;
        };
        let api: Api<Terraform> = Api::namespaced(context.client.clone(), &name.namespace);
        let found = api.get_opt(&name.name).await;
        let found = found.map_err(|source| PassError::Observe {
            stack: name.to_string(),
            source: Box::new(source),
        })?;
        if let Some(found) = found {
            finalizer::release(&api, &found, &finalizer).await?;
        }
    }
    Ok(())
}

/// What others of a stack wait for: a change of it calls those that build on it, and those that it builds on. A stack that
/// no pass has looked at has nothing to say.
pub(crate) fn version(stack: &Terraform) -> Option<String> {
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

/// Whom a change of this stack calls.
pub(crate) fn neighbours(stack: &Terraform, all: &Objects<Terraform>) -> Vec<ObjectKey> {
    let (own, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    let mut keys = all.keys(|other| builds_on(other, &own, &name, CrossNamespace::Allowed));
    let going = |key: &ObjectKey| {
        all.get(key)
            .is_some_and(|found| found.meta().deletion_timestamp.is_some() || found.spec.destroy)
    };
    keys.extend(targets(stack).into_iter().filter(going));
    // The last one of a circle that is deleted tells the first one that it may go.
    keys.extend(cycle::deleted_together(stack, all));
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use serde_json::json;

    #[test]
    fn a_name_that_no_finalizer_can_hold_gives_none() {
        assert_eq!(finalizer_of("app").as_deref(), Some("tf.dependency.of.app"));
        assert!(finalizer_of(&"a".repeat(46)).is_some());
        assert_eq!(finalizer_of(&"a".repeat(47)), None);
    }

    /// A stack of revision `a` that reads the source `code`.
    fn stack(namespace: &str, source: &str) -> Terraform {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "TerraformAppliedSucceed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let whole = json!({ "metadata": { "name": "net", "namespace": namespace, "generation": 1 },
            "spec": { "interval": "1h",
                "sourceRef": { "kind": "GitRepository", "name": "code", "namespace": source } },
            "status": { "observedGeneration": 1, "lastAppliedRevision": "a", "conditions": [ready] } });
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn the_revision_of_another_source_is_not_waited_for() {
        let fresh = SourceFact::Found {
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
            let text = behind(&stack(mine.0, mine.1), &fresh, &stack(theirs.0, theirs.1), &name);
            let wanted = waits.then(|| format!("dependency '{name}' is not updated yet"));
            assert_eq!(text, wanted, "{mine:?} {theirs:?}");
        }
    }

    #[test]
    fn only_a_refusal_for_good_is_told() {
        let error = |code| WriteError::Api {
            what: "finalizers",
            kind: "Terraform".into(),
            name: "net".into(),
            source: Box::new(kube::Error::Api(
                Status::failure("no", "No").with_code(code).boxed(),
            )),
        };
        for code in [400, 403, 422] {
            assert_eq!(refusal(&error(code)).as_deref(), Some("no"), "{code}");
        }
        for code in [401, 404, 409, 429, 500, 503] {
            assert_eq!(refusal(&error(code)), None, "{code}");
        }
    }
}
