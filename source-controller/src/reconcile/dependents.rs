//! Triggers reconciliations of dependent objects: when a referenced Secret changes, and when an included object has a
//! new artifact. The rules are pure; [`watch`] applies them.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, Resource as _};
use sluice_api::source::GitRepository;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::watch::{MetadataWatch, ObjectCache, Scope, Settings, ShownVersions, Watch};

/// Returns the watch of all objects selected by `settings`, with triggers for Secrets and includes. Only the metadata
/// of Secrets is watched; `shown` receives their versions.
#[must_use]
pub fn watch(client: Client, settings: Settings, shown: ShownVersions) -> Watch<GitRepository> {
    let scope = Scope {
        labels: None,
        ..settings.scope.clone()
    };
    let secrets = MetadataWatch::<Secret>::new(client.clone(), scope).with_versions(shown);
    let (secrets, listed) = secrets.keys();
    let watch = Watch::new(client, settings);
    let objects = watch.objects();
    let readers = secrets.flat_map(move |secret| stream::iter(objects.keys(|object| reads(object, &secret))));
    watch
        .trigger(readers)
        .requeue_dependents(version, includers)
        .begin_after(listed)
}

/// Returns whether a reconciliation of the object reads this Secret.
fn reads(object: &GitRepository, secret: &ObjectKey) -> bool {
    let spec = &object.spec;
    let named = [
        spec.secret_ref.as_ref(),
        spec.proxy_secret_ref.as_ref(),
        spec.verify.as_ref().map(|verify| &verify.secret_ref),
    ];
    !spec.suspend
        && object.meta().namespace.as_ref() == Some(&secret.namespace)
        && named
            .into_iter()
            .flatten()
            .any(|reference| reference.name == secret.name)
}

/// Returns what including objects depend on.
fn version(object: &GitRepository) -> Option<String> {
    let artifact = object.status.as_ref()?.artifact.as_ref()?;
    Some(format!("{} {}", artifact.revision, artifact.digest))
}

/// Returns the objects that include this one. Objects that include each other are left to their intervals, since each
/// new artifact would otherwise trigger the next one forever.
fn includers(object: &GitRepository, objects: &ObjectCache<GitRepository>) -> Vec<ObjectKey> {
    let key = ObjectKey::of(object);
    // This looks at every object after each new artifact, so it allocates nothing.
    let direct = objects.keys(|other| {
        !other.spec.suspend && other.meta().namespace == object.meta().namespace && includes(other, &key.name)
    });
    if direct.is_empty() {
        return direct;
    }
    let below = reachable(&key.name, |name| {
        let key = ObjectKey {
            namespace: key.namespace.clone(),
            name: name.to_owned(),
        };
        objects.get(&key).map(|object| names(&object)).unwrap_or_default()
    });
    direct
        .into_iter()
        .filter(|includer| {
            let cyclic = below.contains(&includer.name);
            if cyclic {
                tracing::debug!(included = %key, %includer, "cyclic include: not triggered");
            }
            !cyclic
        })
        .collect()
}

/// Returns whether an object includes the repository of this name.
fn includes(object: &GitRepository, name: &str) -> bool {
    object
        .spec
        .include
        .iter()
        .any(|include| include.repository.name == name)
}

/// Returns the names of the included repositories.
fn names(object: &GitRepository) -> Vec<String> {
    let included = object.spec.include.iter();
    included.map(|include| include.repository.name.clone()).collect()
}

/// Returns `start` and everything that it includes directly or indirectly.
fn reachable(start: &str, included: impl Fn(&str) -> Vec<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![start.to_owned()];
    while let Some(name) = waiting.pop() {
        if !found.contains(&name) {
            waiting.extend(included(&name));
            found.insert(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(spec: &Value) -> GitRepository {
        let mut object = json!({
            "metadata": { "name": "app", "namespace": "team" },
            "spec": { "url": "https://h/r", "interval": "1m" },
        });
        object["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_secret_triggers_the_objects_that_read_it() {
        let key = |namespace: &str, name: &str| ObjectKey {
            namespace: namespace.into(),
            name: name.into(),
        };
        for spec in [
            json!({ "secretRef": { "name": "x" } }),
            json!({ "proxySecretRef": { "name": "x" } }),
            json!({ "verify": { "secretRef": { "name": "x" } } }),
        ] {
            assert!(reads(&object(&spec), &key("team", "x")), "{spec}");
            assert!(!reads(&object(&spec), &key("team", "y")), "{spec}");
            assert!(!reads(&object(&spec), &key("other", "x")));
        }
        let suspended = object(&json!({ "secretRef": { "name": "x" }, "suspend": true }));
        assert!(!reads(&suspended, &key("team", "x")));
    }

    #[test]
    fn transitive_includes_are_found_in_cycles() {
        let included = |name: &str| {
            let names: &[&str] = match name {
                "a" => &["b", "c"],
                "c" => &["d", "a"],
                "d" => &["d"],
                _ => &[],
            };
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let found: Vec<_> = reachable("a", included).into_iter().collect();
        assert_eq!(found, ["a", "b", "c", "d"]);
        assert_eq!(reachable("b", included).len(), 1);
    }
}
