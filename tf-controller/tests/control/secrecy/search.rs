//! The search: in logs, metrics, objects and files, also in what their bytes encode. Each search must find a text that may be seen,
//! or it looked at nothing.

use super::shipped::Shipped;
use crate::world::{NAMESPACE, World};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;
use sluice_harness::canary;
use std::{collections::BTreeSet, path::Path};

/// A part of the names of the stacks: what anybody may see, and what each search must find.
pub(super) const SEEN: &str = "seen-by-anybody-4e19";
/// The file of the API's objects: the Secrets themselves.
const STORE: &str = "store";
const LOG: &str = "the controller's log";
const RUNS: &str = "a runner's log";
const METRICS: &str = "the metrics";
pub(super) const READABLE: &str = "a readable plan";
/// Where the text that may be seen is, whatever is searched when.
const ALWAYS: [&str; 6] = [LOG, RUNS, METRICS, "Event", "Terraform", "TerraformRun"];

/// What is looked for.
#[derive(Clone, Copy)]
pub(super) struct Canaries<'a> {
    /// Values that stand in Secrets alone.
    pub(super) hidden: &'a [&'a str],
    /// Values that the user wrote into a spec in clear, which nobody may carry further.
    pub(super) in_specs: &'a [&'a str],
}

/// One search.
struct Search<'a> {
    canaries: Vec<&'a str>,
    /// What was found, and where.
    found: Vec<String>,
    /// The kinds of places where the text that may be seen was found.
    seen: BTreeSet<&'static str>,
}

impl Search<'_> {
    fn look(&mut self, kind: &'static str, place: &str, bytes: &[u8]) {
        let wanted: Vec<_> = self.canaries.iter().copied().chain([SEEN]).collect();
        for text in canary::found(bytes, &wanted) {
            if text == SEEN {
                self.seen.insert(kind);
            } else {
                self.found.push(format!("{text} in {place}"));
            }
        }
    }

    fn look_at_files(&mut self, directory: &Path) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = path.as_os_str().as_encoded_bytes();
            self.look("the name of a file", "the name of a file", name);
            if kind.is_dir() {
                self.look_at_files(&path);
            } else if kind.is_file() && !path.ends_with(STORE) {
                let text = std::fs::read(&path).unwrap_or_default();
                let is_log = path.extension().is_some_and(|extension| extension == "log");
                let kind = if is_log { RUNS } else { "a file" };
                self.look(kind, &path.display().to_string(), &text);
            }
        }
    }

    /// Every object of the namespace, without what Secrets are there to hold and without what the user wrote.
    async fn look_at_objects(&mut self, world: &World) {
        for (group, version, kind) in [
            ("", "v1", "Event"),
            ("", "v1", "ConfigMap"),
            ("", "v1", "Secret"),
            ("coordination.k8s.io", "v1", "Lease"),
            ("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"),
            ("infra.sluice.dev", "v1alpha1", "TerraformRun"),
        ] {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), NAMESPACE, &resource);
            for object in api.list(&ListParams::default()).await.unwrap().items {
                let place = format!("{kind} {}", object.name_any());
                let mut whole = serde_json::to_value(&object).unwrap();
                if let Some(data) = whole["data"].as_object_mut().filter(|_| kind == "Secret") {
                    // Values are what a Secret is there for; its keys are not.
                    data.values_mut().for_each(|value| *value = Value::Null);
                }
                if kind == "Terraform" {
                    whole["spec"] = Value::Null;
                }
                self.look(kind, &place, whole.to_string().as_bytes());
            }
        }
    }

    /// The plan's JSON lies in a Secret, compressed, and is for people to read.
    async fn look_at_readable_plans(&mut self, world: &World) {
        let secrets: Api<Secret> = world.api();
        let params = ListParams::default().labels("infra.contrib.fluxcd.io/plan-name");
        for secret in secrets.list(&params).await.unwrap().items {
            let name = secret.labels().get("infra.contrib.fluxcd.io/plan-name");
            let extension = name.and_then(|name| Path::new(name).extension());
            if extension.is_some_and(|extension| extension == "json") {
                for (key, value) in secret.data.clone().unwrap_or_default() {
                    self.look(READABLE, &format!("the readable plan's {key}"), &value.0);
                }
            }
        }
    }
}

/// Fails where a canary is found, and where the search found nothing of what may be seen in `ALWAYS` or in `also`.
pub(super) async fn nothing_found(
    world: &World,
    shipped: &Shipped,
    canaries: Canaries<'_>,
    also: &[&'static str],
    when: &str,
) {
    let mut search = Search {
        canaries: [canaries.hidden, canaries.in_specs].concat(),
        found: Vec::new(),
        seen: BTreeSet::new(),
    };
    world.event_of(SEEN).await;
    world.at_rest().await;
    search.look_at_objects(world).await;
    search.look_at_readable_plans(world).await;
    search.look_at_files(world.dir.path());
    search.look(LOG, LOG, shipped.log().as_bytes());
    search.look(METRICS, METRICS, shipped.metrics().as_bytes());
    assert!(search.found.is_empty(), "{when}: {:#?}", search.found);
    let blind: Vec<_> = ALWAYS
        .iter()
        .chain(also)
        .filter(|kind| !search.seen.contains(*kind))
        .collect();
    assert!(
        blind.is_empty(),
        "{when}: {SEEN} was not found in {blind:?}, so the search looked at nothing there"
    );
}
