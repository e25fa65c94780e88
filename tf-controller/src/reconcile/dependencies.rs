//! `dependsOn` as seen on the API: what a stack builds on, and who builds on it. The stacks that a stack names carry the
//! finalizer `tf.dependency.of.<its name>`, so that none of them goes before it.

mod cycle;

use super::{Context, PassError, resolve::words};
use crate::decide::{Dependencies, SourceFact};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, core::DeserializeGuard};
use sluice_api::{
    condition::{TerraformCondition as Kind, find},
    reference::{self, CrossNamespace, ObjectName},
    terraform::{DEPENDANT_FINALIZER, Dependency, FINALIZER, Terraform},
};
use sluice_runtime::{finalizer, schedule::ObjectKey, status::Applied, watch::Objects};

use cycle::targets;

pub(crate) use cycle::in_order;

/// Longest name of a finalizer that the API takes.
const LONGEST: usize = 63;

/// The finalizer that a dependant puts on what it builds on; none where its name is too long for one. Then what it holds
/// keeps the other from going before it, and before it holds anything nothing does.
fn finalizer_of(dependant: &str) -> Option<String> {
    Some(format!("{DEPENDANT_FINALIZER}{dependant}")).filter(|name| name.len() <= LONGEST)
}

/// The circle that the stack is in, if it is in one.
pub(super) fn circle(stack: &Terraform, context: &Context) -> Dependencies {
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
        match finalizer::ensure(&api, &found, &own).await? {
            Applied::Unchanged(newest) | Applied::Written(newest) => found = newest,
            Applied::Gone => return Ok(Some(format!("dependency '{name}' is not ready"))),
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
    let (mine, theirs) = (&stack.spec.source_ref, &dependency.spec.source_ref);
    let shared = (&mine.name, &mine.namespace, mine.kind) == (&theirs.name, &theirs.namespace, theirs.kind);
    let SourceFact::Found { revision, .. } = source else {
        return None;
    };
    let updated = [&status.last_applied_revision, &status.last_planned_revision].contains(&revision);
    (shared && !updated).then(|| format!("dependency '{name}' is not updated yet"))
}

/// The stacks that build on this one and keep it from being destroyed: those that hold something, and with a deletion
/// those whose finalizer it carries. Read fresh: a cache could lack the newest of them. Finalizers that nobody stands
/// behind any more are taken off.
pub(super) async fn dependants(stack: &Terraform, context: &Context) -> Result<Vec<String>, PassError> {
    let own = stack.namespace().unwrap_or_default();
    let failed = |source: kube::Error| PassError::Observe {
        stack: stack.name_any(),
        source: Box::new(source),
    };
    let api: Api<Terraform> = Api::namespaced(context.client.clone(), &own);
    let Some(fresh) = api.get_opt(&stack.name_any()).await.map_err(failed)? else {
        return Ok(Vec::new());
    };
    let all = listed(&own, context).await.map_err(failed)?;
    let mut names = Vec::new();
    for other in &all {
        let Ok(other) = &other.0 else { continue };
        let builds = builds_on(other, &own, &stack.name_any(), context.cross_namespace);
        let holds_on = fresh.meta().deletion_timestamp.is_some()
            && finalizer_of(&other.name_any()).is_some_and(|name| finalizer::is_held(&fresh, &name));
        if builds && other.uid() != stack.uid() && (holds_on || holds(other)) {
            let namespace = other.namespace().unwrap_or_default();
            let name = other.name_any();
            names.push(if namespace == own {
                name
            } else {
                format!("{namespace}/{name}")
            });
        }
    }
    for name in stale(&fresh, &all, &own, context.cross_namespace) {
        finalizer::release(&api, &fresh, &name).await?;
    }
    names.sort();
    Ok(names)
}

/// The stacks among which dependants are looked for.
async fn listed(own: &str, context: &Context) -> Result<Vec<DeserializeGuard<Terraform>>, kube::Error> {
    let namespace = match context.cross_namespace {
        CrossNamespace::Denied => Some(own),
        CrossNamespace::Allowed => context.watched.as_deref(),
    };
    let api: Api<DeserializeGuard<Terraform>> = match namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    Ok(api.list(&ListParams::default()).await?.items)
}

/// The finalizers of dependants that are gone, or build on something else now. An object that cannot be read may be one.
fn stale(
    stack: &Terraform,
    all: &[DeserializeGuard<Terraform>],
    own: &str,
    policy: CrossNamespace,
) -> Vec<String> {
    let name = stack.name_any();
    let stands = |dependant: &str| {
        all.iter().any(|other| match &other.0 {
            Ok(other) => other.name_any() == dependant && builds_on(other, own, &name, policy),
            Err(unreadable) => unreadable.metadata.name.as_deref() == Some(dependant),
        })
    };
    let held = stack.meta().finalizers.iter().flatten();
    held.filter(|held| {
        held.strip_prefix(DEPENDANT_FINALIZER)
            .is_some_and(|dependant| !stands(dependant))
    })
    .cloned()
    .collect()
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

/// Whether a stack may hold resources: it was applied, or may be at it, and is neither destroyed nor let go.
fn holds(stack: &Terraform) -> bool {
    let Some(status) = &stack.status else {
        return false;
    };
    let released = stack.meta().deletion_timestamp.is_some() && !finalizer::is_held(stack, FINALIZER);
    let ready = find(&status.conditions, Kind::Ready).map(|ready| ready.status.as_str());
    let seen = status.observed_generation == stack.meta().generation;
    let destroyed = stack.spec.destroy && seen && ready == Some("True");
    let applied = !status.last_applied_revision.is_empty() || find(&status.conditions, Kind::Apply).is_some();
    !released && !destroyed && (applied || ready == Some("Unknown"))
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
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_finalizer_can_hold_gives_none() {
        assert_eq!(finalizer_of("app").as_deref(), Some("tf.dependency.of.app"));
        assert!(finalizer_of(&"a".repeat(46)).is_some());
        assert_eq!(finalizer_of(&"a".repeat(47)), None);
    }
}
