//! Who is looked at because something else changed: objects whose Secret became another, and objects that include one with
//! a new artifact. The rules are pure; [`watch`] puts them at work.

use std::collections::BTreeSet;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt as _};
use sluice_api::source::GitRepository;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::watch::{Changes, Objects, Scope, Settings, Watch};

/// The watch of all objects that `settings` lets this controller see, with these reasons for a pass. Of Secrets the
/// metadata alone is followed.
#[must_use]
pub fn watch(client: Client, settings: Settings) -> Watch<GitRepository> {
    let scope = Scope {
        labels: None,
        ..settings.scope.clone()
    };
    let (secrets, listed) = Changes::<Secret>::new(client.clone(), scope).keys();
    let watch = Watch::new(client, settings);
    let objects = watch.objects();
    let readers = secrets.flat_map(move |secret| stream::iter(objects.keys(|object| reads(object, &secret))));
    watch.trigger(readers).relate(version, includers).after(listed)
}

/// Whether a pass over the object reads this Secret.
fn reads(object: &GitRepository, secret: &ObjectKey) -> bool {
    let spec = &object.spec;
    let named = [
        spec.secret_ref.as_ref(),
        spec.proxy_secret_ref.as_ref(),
        spec.verify.as_ref().map(|verify| &verify.secret_ref),
    ];
    !spec.suspend
        && object.namespace().as_ref() == Some(&secret.namespace)
        && named
            .into_iter()
            .flatten()
            .any(|reference| reference.name == secret.name)
}

/// What others include of an object.
fn version(object: &GitRepository) -> Option<String> {
    let artifact = object.status.as_ref()?.artifact.as_ref()?;
    Some(format!("{} {}", artifact.revision, artifact.digest))
}

/// The objects that include this one. Where two include each other, in however many steps, each new artifact would make
/// the next one, for ever: such objects are left to their intervals.
fn includers(object: &GitRepository, objects: &Objects<GitRepository>) -> Vec<ObjectKey> {
    let key = ObjectKey::of(object);
    let direct = objects.keys(|other| {
        !other.spec.suspend && other.namespace() == object.namespace() && names(other).contains(&key.name)
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
                tracing::debug!(included = %key, %includer, "they include each other: left to the interval");
            }
            !cyclic
        })
        .collect()
}

/// The names that an object includes.
fn names(object: &GitRepository) -> Vec<String> {
    let included = object.spec.include.iter();
    included.map(|include| include.repository.name.clone()).collect()
}

/// All that `start` includes, in any number of steps, and itself.
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
    fn secrets_concern_those_that_read_them() {
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
    fn what_is_included_in_some_steps_is_found_also_in_a_circle() {
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
