//! Who builds on a stack: those that are to go before it does, and the finalizers on it that nobody stands behind any
//! more.

use super::super::{Context, PassError};
use super::{builds_on, cycle, finalizer_of};
use kube::{Api, Resource, ResourceExt, core::DeserializeGuard};
use sluice_api::{
    condition::{TerraformCondition as Kind, find},
    reference::CrossNamespace,
    terraform::{DEPENDANT_FINALIZER, FINALIZER, Terraform},
};
use sluice_runtime::{finalizer, pages, schedule::ObjectKey};
use std::collections::BTreeSet;

/// A stack, or one that cannot be read.
type Guarded = DeserializeGuard<Terraform>;

/// The stacks that build on this one and keep it from being destroyed: those that hold something, and with a deletion
/// those whose finalizer it carries. That there is none is read fresh: a cache could lack the newest of them. Finalizers
/// that nobody stands behind any more are then taken off.
pub(in crate::reconcile) async fn dependants(
    stack: &Terraform,
    context: &Context,
) -> Result<Vec<String>, PassError> {
    let own = stack.namespace().unwrap_or_default();
    let failed = |source: kube::Error| PassError::Observe {
        stack: stack.name_any(),
        source: Box::new(source),
    };
    let api: Api<Terraform> = Api::namespaced(context.client.clone(), &own);
    let Some(fresh) = api.get_opt(&stack.name_any()).await.map_err(failed)? else {
        return Ok(Vec::new());
    };
    let mut look = Look::new(&fresh, context.cross_namespace);
    look.waiting = waiting_for(&fresh, context);
    let known = known(&look, context).await.map_err(failed)?;
    if !known.is_empty() {
        return Ok(known);
    }
    let all = around(&own, context);
    pages::each(&all, |other: Guarded| look.see(&other))
        .await
        .map_err(failed)?;
    for name in &look.stale {
        finalizer::release(&api, &fresh, name).await?;
    }
    look.names.sort();
    Ok(look.names)
}

/// The stacks that build on this one and wait for it all the same: all are deleted, they form circles, and this one goes first.
fn waiting_for(stack: &Terraform, context: &Context) -> BTreeSet<ObjectKey> {
    let (own, mut together) = (
        ObjectKey::of(stack),
        cycle::deleted_together(stack, &context.stacks),
    );
    if together.first() != Some(&own) {
        return BTreeSet::new();
    }
    together.remove(&own);
    if !together.is_empty() {
        tracing::warn!(stack = %own, "this stack goes before others that build on it: all are deleted and form a cycle");
    }
    together
}

/// Those that the cache knows of. It may lag, so one of them is read anew: whoever waits for one that has gone meanwhile
/// might not be called again. If that one keeps the stack no longer, nothing is known.
async fn known(look: &Look<'_>, context: &Context) -> Result<Vec<String>, kube::Error> {
    let known = context.stacks.filter(|other| look.is_kept_by(other));
    let Some(first) = known.first() else {
        return Ok(Vec::new());
    };
    let namespace = first.namespace().unwrap_or_default();
    let api: Api<Guarded> = Api::namespaced(context.client.clone(), &namespace);
    let newest = api.get_opt(&first.name_any()).await?;
    let newest = newest.and_then(|newest| newest.0.ok());
    if newest.is_none_or(|newest| !look.is_kept_by(&newest)) {
        return Ok(Vec::new());
    }
    let mut names: Vec<_> = known.iter().map(|other| look.name_of(&**other)).collect();
    names.sort();
    Ok(names)
}

/// The stacks among which dependants are looked for.
fn around(own: &str, context: &Context) -> Api<Guarded> {
    let namespace = match context.cross_namespace {
        CrossNamespace::Denied => Some(own),
        CrossNamespace::Allowed => context.watched.as_deref(),
    };
    match namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    }
}

/// A look at one stack after the other for those that build on this one.
struct Look<'a> {
    stack: &'a Terraform,
    namespace: String,
    name: String,
    policy: CrossNamespace,
    /// Those that keep the stack, as they are told.
    names: Vec<String>,
    /// The finalizers of dependants on the stack, but for those that one seen so far stands behind.
    stale: Vec<String>,
    /// Those that do not keep the stack, since they wait for it to go.
    waiting: BTreeSet<ObjectKey>,
}

impl<'a> Look<'a> {
    fn new(stack: &'a Terraform, policy: CrossNamespace) -> Self {
        let held = stack.finalizers().iter();
        Self {
            stack,
            namespace: stack.namespace().unwrap_or_default(),
            name: stack.name_any(),
            policy,
            names: Vec::new(),
            stale: held
                .filter(|name| name.starts_with(DEPENDANT_FINALIZER))
                .cloned()
                .collect(),
            waiting: BTreeSet::new(),
        }
    }

    /// Takes one of the stacks into account. What one that cannot be read builds on is not known: its finalizer tells, and
    /// what it may hold keeps the stack until it can be read again, or is gone.
    fn see(&mut self, other: &Guarded) {
        let name = other.name_any();
        let readable = other.0.as_ref().ok();
        if readable.is_none_or(|other| self.is_below(other) && !self.is_awaited_by(other)) {
            self.stale
                .retain(|held| held.strip_prefix(DEPENDANT_FINALIZER) != Some(name.as_str()));
        }
        let told = self.name_of(other);
        match readable {
            Some(other) if self.is_kept_by(other) => self.names.push(told),
            None if self.carries(&name) => self.names.push(format!("{told} (cannot be read)")),
            _ => {}
        }
    }

    /// Whether it is one of those that the other builds on.
    fn is_below(&self, other: &Terraform) -> bool {
        builds_on(other, &self.namespace, &self.name, self.policy)
    }

    /// Whether the other is to go first.
    fn is_kept_by(&self, other: &Terraform) -> bool {
        let going = self.stack.meta().deletion_timestamp.is_some();
        self.is_below(other)
            && other.uid() != self.stack.uid()
            && !self.is_awaited_by(other)
            && (going && self.carries(&other.name_any()) || holds(other))
    }

    /// Whether the other is deleted too, in a circle with this one, and goes behind it.
    fn is_awaited_by(&self, other: &Terraform) -> bool {
        other.metadata.deletion_timestamp.is_some() && self.waiting.contains(&ObjectKey::of(other))
    }

    /// Whether it carries the finalizer of a dependant of this name.
    fn carries(&self, dependant: &str) -> bool {
        finalizer_of(dependant).is_some_and(|name| finalizer::is_held(self.stack, &name))
    }

    /// How the other is told.
    fn name_of<K: Resource>(&self, other: &K) -> String {
        let (namespace, name) = (other.namespace().unwrap_or_default(), other.name_any());
        if namespace == self.namespace {
            name
        } else {
            format!("{namespace}/{name}")
        }
    }
}

/// Whether a stack may hold resources: it was applied, or may be at it, and is neither destroyed nor let go.
fn holds(stack: &Terraform) -> bool {
    let Some(status) = &stack.status else {
        return false;
    };
    let released = stack.meta().deletion_timestamp.is_some() && !finalizer::is_held(stack, FINALIZER);
    let ready = find(&status.conditions, Kind::Ready).map(|ready| ready.status.as_str());
    let seen = status.observed_generation == stack.meta().generation;
    // A suspended one is as it was before, whatever its spec says by now.
    let destroyed = stack.spec.destroy && !stack.spec.suspend && seen && ready == Some("True");
    let applied = !status.last_applied_revision.is_empty() || find(&status.conditions, Kind::Apply).is_some();
    !released && !destroyed && (applied || ready == Some("Unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A stack with these finalizers that builds on these; none: it cannot be read.
    fn stack(name: &str, finalizers: &[&str], below: Option<&[&str]>) -> Guarded {
        let below: Option<Vec<Value>> =
            below.map(|names| names.iter().map(|name| json!({ "name": name })).collect());
        let spec = json!({ "interval": "1h", "dependsOn": below.as_deref().unwrap_or_default(),
            "sourceRef": { "kind": "GitRepository", "name": "code" } });
        let metadata = json!({ "name": name, "namespace": "team", "uid": name, "finalizers": finalizers });
        let whole = json!({ "metadata": metadata, "spec": below.map(|_| spec) });
        serde_json::from_value(whole).unwrap()
    }

    /// What a look at the others finds: who keeps `net`, and which of its finalizers are stale.
    fn looked(net: &[&str], going: bool, others: &[Guarded]) -> (Vec<String>, Vec<String>) {
        let mut net = stack("net", net, Some(&[])).0.unwrap();
        if going {
            let now = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            net.metadata.deletion_timestamp = Some(now);
        }
        let mut look = Look::new(&net, CrossNamespace::Denied);
        for other in others {
            look.see(other);
        }
        (look.names, look.stale)
    }

    #[test]
    fn one_that_cannot_be_read_counts_where_its_finalizer_tells_of_it() {
        let strange = || [stack("app", &[], None), stack("other", &[], None)];
        for going in [true, false] {
            let (names, stale) = looked(&["tf.dependency.of.app"], going, &strange());
            assert_eq!(names, ["app (cannot be read)"], "{going}");
            assert!(stale.is_empty(), "{going}");
            let (names, stale) = looked(&["tf.dependency.of.gone"], going, &strange());
            assert!(names.is_empty(), "{going}");
            assert_eq!(stale, ["tf.dependency.of.gone"], "{going}");
        }
    }

    #[test]
    fn a_finalizer_counts_as_long_as_its_stack_builds_on_this_one() {
        let finalizers = ["tf.dependency.of.app", "tf.dependency.of.db", "of.another"];
        let others = [
            stack("app", &[], Some(&["net"])),
            stack("db", &[], Some(&["dns"])),
        ];
        let (names, stale) = looked(&finalizers, true, &others);
        assert_eq!(names, ["app"]);
        assert_eq!(stale, ["tf.dependency.of.db"]);
        let (names, _) = looked(&finalizers, false, &others);
        assert!(names.is_empty(), "it holds nothing yet: {names:?}");
    }
}
