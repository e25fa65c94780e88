//! The dependents of a stack, which are to be removed before it, and its stale dependency finalizers.

use std::collections::BTreeSet;

use kube::core::DeserializeGuard;
use kube::{Api, Resource, ResourceExt};
use sluice_api::condition::{TerraformCondition as Kind, find};
use sluice_api::reference::CrossNamespace;
use sluice_api::terraform::{DEPENDENT_FINALIZER_PREFIX, FINALIZER, Terraform};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::{finalizer, paging};

use super::super::{Context, ReconcileError, read_error};
use super::{cycle, depends_on, finalizer_of};
use crate::run::api_in;

/// A stack, or an object that does not decode.
type Guarded = DeserializeGuard<Terraform>;

/// Returns the dependents that block the destruction of this stack: those that may hold resources, and with a
/// deletion those whose finalizer it has. An empty result is read live, since the cache may lack the newest. Then
/// also removes the finalizers of stacks that do not depend on it any more.
pub(in crate::reconcile) async fn dependents(
    stack: &Terraform,
    context: &Context,
) -> Result<Vec<String>, ReconcileError> {
    let own = stack.namespace().unwrap_or_default();
    let failed = |source| read_error(stack, source);
    let api: Api<Terraform> = context.api_of(stack);
    let Some(live) = api.get_opt(&stack.name_any()).await.map_err(failed)? else {
        return Ok(Vec::new());
    };
    let mut search = DependentSearch::new(&live, context.cross_namespace);
    search.waiting = waiting_cycle_members(&live, context);
    let cached = cached_dependents(&search, context).await.map_err(failed)?;
    if !cached.is_empty() {
        return Ok(cached);
    }
    let all = search_scope(&own, context);
    paging::for_each(&all, |other: Guarded| search.add(&other))
        .await
        .map_err(failed)?;
    for name in &search.stale {
        finalizer::remove(&api, &live, name).await?;
    }
    search.names.sort();
    Ok(search.names)
}

/// Returns the dependents that wait for this stack although they depend on it: all are deleted and form a cycle, and
/// this one goes first.
fn waiting_cycle_members(stack: &Terraform, context: &Context) -> BTreeSet<ObjectKey> {
    let (own, mut together) = (ObjectKey::of(stack), cycle::deleted_cycle(stack, &context.stacks));
    if together.first() != Some(&own) {
        return BTreeSet::new();
    }
    together.remove(&own);
    if !together.is_empty() {
        tracing::warn!(stack = %own, "deleting a stack before its dependents: all are deleted and form a cycle");
    }
    together
}

/// Returns the dependents in the cache. The cache may lag, so one of them is read live: a stack that waits for a
/// deleted dependent might never be triggered again. If that one no longer blocks, returns none.
async fn cached_dependents(
    search: &DependentSearch<'_>,
    context: &Context,
) -> Result<Vec<String>, kube::Error> {
    let cached = context.stacks.filter(|other| search.is_blocked_by(other));
    let Some(first) = cached.first() else {
        return Ok(Vec::new());
    };
    let api: Api<Guarded> = context.api_of(&**first);
    let newest = api.get_opt(&first.name_any()).await?;
    let newest = newest.and_then(|newest| newest.0.ok());
    if newest.is_none_or(|newest| !search.is_blocked_by(&newest)) {
        return Ok(Vec::new());
    }
    let mut names: Vec<_> = cached.iter().map(|other| search.display_name(&**other)).collect();
    names.sort();
    Ok(names)
}

/// Returns the API in which dependents are searched.
fn search_scope(own: &str, context: &Context) -> Api<Guarded> {
    let namespace = match context.cross_namespace {
        CrossNamespace::Denied => Some(own),
        CrossNamespace::Allowed => context.watched_namespace.as_deref(),
    };
    api_in(&context.client, namespace)
}

/// A search for the dependents of one stack.
struct DependentSearch<'a> {
    stack: &'a Terraform,
    namespace: String,
    name: String,
    policy: CrossNamespace,
    /// The display names of the dependents that block the stack.
    names: Vec<String>,
    /// The dependency finalizers of the stack without a dependent so far.
    stale: Vec<String>,
    /// The dependents that do not block the stack, since they wait for its deletion.
    waiting: BTreeSet<ObjectKey>,
}

impl<'a> DependentSearch<'a> {
    fn new(stack: &'a Terraform, policy: CrossNamespace) -> Self {
        let finalizers = stack.finalizers().iter();
        Self {
            stack,
            namespace: stack.namespace().unwrap_or_default(),
            name: stack.name_any(),
            policy,
            names: Vec::new(),
            stale: finalizers
                .filter(|name| name.starts_with(DEPENDENT_FINALIZER_PREFIX))
                .cloned()
                .collect(),
            waiting: BTreeSet::new(),
        }
    }

    /// Adds one of the stacks. The dependencies of an object that does not decode are unknown: if the stack has its
    /// finalizer, it blocks until it decodes or is gone.
    fn add(&mut self, other: &Guarded) {
        let name = other.name_any();
        let readable = other.0.as_ref().ok();
        if readable.is_none_or(|other| self.is_dependency_of(other) && !self.is_excluded(other)) {
            self.stale.retain(|finalizer| {
                finalizer.strip_prefix(DEPENDENT_FINALIZER_PREFIX) != Some(name.as_str())
            });
        }
        let display_name = self.display_name(other);
        match readable {
            Some(other) if self.is_blocked_by(other) => self.names.push(display_name),
            None if self.has_finalizer_of(&name) => {
                self.names.push(format!("{display_name} (cannot be read)"));
            }
            _ => {}
        }
    }

    /// Returns whether the other depends on this stack.
    fn is_dependency_of(&self, other: &Terraform) -> bool {
        depends_on(other, &self.namespace, &self.name, self.policy)
    }

    /// Returns whether the other has to be removed first.
    fn is_blocked_by(&self, other: &Terraform) -> bool {
        let going = self.stack.meta().deletion_timestamp.is_some();
        self.is_dependency_of(other)
            && other.uid() != self.stack.uid()
            && !self.is_excluded(other)
            && (going && self.has_finalizer_of(&other.name_any()) || may_hold_resources(other))
    }

    /// Returns whether the other is deleted too, in a cycle with this stack, and goes after it.
    fn is_excluded(&self, other: &Terraform) -> bool {
        other.metadata.deletion_timestamp.is_some() && self.waiting.contains(&ObjectKey::of(other))
    }

    /// Returns whether the stack has the finalizer of a dependent of this name.
    fn has_finalizer_of(&self, dependent: &str) -> bool {
        finalizer_of(dependent).is_some_and(|name| finalizer::is_present(self.stack, &name))
    }

    /// Returns the name of the other for messages.
    fn display_name<K: Resource>(&self, other: &K) -> String {
        let (namespace, name) = (other.namespace().unwrap_or_default(), other.name_any());
        if namespace == self.namespace {
            name
        } else {
            format!("{namespace}/{name}")
        }
    }
}

/// Returns whether a stack may hold resources: it was applied or may be applying, and is neither destroyed nor released.
fn may_hold_resources(stack: &Terraform) -> bool {
    let Some(status) = &stack.status else {
        return false;
    };
    let released = stack.meta().deletion_timestamp.is_some() && !finalizer::is_present(stack, FINALIZER);
    let ready = find(&status.conditions, Kind::Ready).map(|ready| ready.status.as_str());
    let is_observed = status.observed_generation == stack.meta().generation;
    // A suspended stack is not destroyed, even if its spec sets `destroy`.
    let destroyed = stack.spec.destroy && !stack.spec.suspend && is_observed && ready == Some("True");
    let applied = !status.last_applied_revision.is_empty() || find(&status.conditions, Kind::Apply).is_some();
    !released && !destroyed && (applied || ready == Some("Unknown"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a stack with these finalizers and dependencies; without dependencies it does not decode.
    fn stack(name: &str, finalizers: &[&str], below: Option<&[&str]>) -> Guarded {
        let below: Option<Vec<Value>> =
            below.map(|names| names.iter().map(|name| json!({ "name": name })).collect());
        let spec = json!({ "interval": "1h", "dependsOn": below.as_deref().unwrap_or_default(),
            "sourceRef": { "kind": "GitRepository", "name": "code" } });
        let metadata = json!({ "name": name, "namespace": "team", "uid": name, "finalizers": finalizers });
        let whole = json!({ "metadata": metadata, "spec": below.map(|_| spec) });
        serde_json::from_value(whole).unwrap()
    }

    /// Searches the others: returns who blocks `net`, and which of its finalizers are stale.
    fn search_dependents(net: &[&str], going: bool, others: &[Guarded]) -> (Vec<String>, Vec<String>) {
        let mut net = stack("net", net, Some(&[])).0.unwrap();
        if going {
            let now = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            net.metadata.deletion_timestamp = Some(now);
        }
        let mut search = DependentSearch::new(&net, CrossNamespace::Denied);
        for other in others {
            search.add(other);
        }
        (search.names, search.stale)
    }

    #[test]
    fn an_object_that_does_not_decode_blocks_only_with_its_finalizer() {
        let undecodable = || [stack("app", &[], None), stack("other", &[], None)];
        for going in [true, false] {
            let (names, stale) = search_dependents(&["tf.dependency.of.app"], going, &undecodable());
            assert_eq!(names, ["app (cannot be read)"], "{going}");
            assert!(stale.is_empty(), "{going}");
            let (names, stale) = search_dependents(&["tf.dependency.of.gone"], going, &undecodable());
            assert!(names.is_empty(), "{going}");
            assert_eq!(stale, ["tf.dependency.of.gone"], "{going}");
        }
    }

    #[test]
    fn a_finalizer_blocks_while_its_stack_depends_on_this_one() {
        let finalizers = ["tf.dependency.of.app", "tf.dependency.of.db", "of.another"];
        let others = [
            stack("app", &[], Some(&["net"])),
            stack("db", &[], Some(&["dns"])),
        ];
        let (names, stale) = search_dependents(&finalizers, true, &others);
        assert_eq!(names, ["app"]);
        assert_eq!(stale, ["tf.dependency.of.db"]);
        let (names, _) = search_dependents(&finalizers, false, &others);
        assert!(names.is_empty(), "it holds no resources yet: {names:?}");
    }
}
