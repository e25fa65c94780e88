//! What an object shows, as text for snapshots.

use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use sluice_api::source::{Artifact, GitRepository};

use super::{NAMESPACE, World};

impl World {
    /// Names in an artifact.
    pub(in crate::reconcile::tests) fn names(&self, artifact: &Artifact) -> Vec<String> {
        self.contents(artifact)
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    /// Names in an artifact, each with its content.
    pub(in crate::reconcile::tests) fn contents(&self, artifact: &Artifact) -> Vec<(String, String)> {
        let gzip = std::fs::File::open(self.file(artifact)).unwrap();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(gzip));
        let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            (name, std::io::read_to_string(&mut entry).unwrap())
        };
        tar.entries().unwrap().map(read).collect()
    }

    /// What the object shows, and what was told since the last table.
    pub(in crate::reconcile::tests) async fn table(&self, name: &str) -> String {
        let shown = self.shown(name).await;
        let lines = [vec![shown], self.told().await].concat();
        self.masked(&lines.join("\n"))
    }

    /// What the object shows.
    pub(in crate::reconcile::tests) async fn shown(&self, name: &str) -> String {
        let object = self.get(name).await;
        let mut lines = conditions(&object);
        lines.push(summary(&object));
        self.masked(&lines.join("\n"))
    }

    /// Every form that the status took in the last pass.
    pub(in crate::reconcile::tests) fn writes(&self) -> String {
        let writes = self.written.lock().unwrap();
        let reported = writes.iter().filter(|object| !conditions(object).is_empty());
        let shown: Vec<_> = reported
            .map(|object| format!("{}\n{}", summary(object), conditions(object).join("\n")))
            .collect();
        self.masked(&shown.join("\n\n"))
    }

    /// Events since the last call, oldest first.
    pub(in crate::reconcile::tests) async fn told(&self) -> Vec<String> {
        self.recorder.flush().await;
        let events: Api<CoreEvent> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut found = events.list(&ListParams::default()).await.unwrap().items;
        found.sort_by_key(|event| event.metadata.name.clone());
        let mut lines = Vec::new();
        for event in found {
            let annotations = event.metadata.annotations.unwrap_or_default();
            let about: Vec<_> = annotations
                .keys()
                .filter_map(|key| key.rsplit('/').next())
                .collect();
            lines.push(format!(
                "event {} {} {}{}",
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default(),
                if about.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", about.join(", "))
                },
            ));
            let name = event.metadata.name.unwrap_or_default();
            events.delete(&name, &DeleteParams::default()).await.unwrap();
        }
        lines
    }

    /// Commits and addresses by their labels.
    pub(in crate::reconcile::tests) fn masked(&self, text: &str) -> String {
        self.known
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

/// A line for each condition.
fn conditions(object: &GitRepository) -> Vec<String> {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    let line = |c: &Condition| {
        let generation = c.observed_generation.unwrap_or_default();
        format!(
            "{}={}/{} @{generation} {}",
            c.type_, c.status, c.reason, c.message
        )
    };
    conditions.map(line).collect()
}

/// A line for the rest.
fn summary(object: &GitRepository) -> String {
    let status = object.status.clone().unwrap_or_default();
    let revision = status
        .artifact
        .map_or_else(|| "none".to_owned(), |held| held.revision);
    format!(
        "generation {} observed {} artifact {revision}",
        object.metadata.generation.unwrap_or_default(),
        status.observed_generation.unwrap_or_default(),
    )
}
