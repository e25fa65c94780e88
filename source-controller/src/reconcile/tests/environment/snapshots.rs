//! Text representations of objects for snapshots.

use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use sluice_api::source::{Artifact, GitRepository};

use super::{NAMESPACE, TestEnvironment};

impl TestEnvironment {
    /// Returns the names in an artifact.
    pub(in crate::reconcile::tests) fn names(&self, artifact: &Artifact) -> Vec<String> {
        self.contents(artifact)
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    /// Returns the names in an artifact with their contents.
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

    /// Returns the conditions, and the events since the last call.
    pub(in crate::reconcile::tests) async fn table(&self, name: &str) -> String {
        let texts = self.summary(name).await;
        let lines = [vec![texts], self.events().await].concat();
        self.masked(&lines.join("\n"))
    }

    /// Returns the conditions.
    pub(in crate::reconcile::tests) async fn summary(&self, name: &str) -> String {
        let object = self.get(name).await;
        let mut lines = conditions(&object);
        lines.push(summary(&object));
        self.masked(&lines.join("\n"))
    }

    /// Returns every status written by the last reconciliation.
    pub(in crate::reconcile::tests) fn writes(&self) -> String {
        let writes = self.versions.lock().unwrap();
        let reported = writes.iter().filter(|object| !conditions(object).is_empty());
        let texts: Vec<_> = reported
            .map(|object| format!("{}\n{}", summary(object), conditions(object).join("\n")))
            .collect();
        self.masked(&texts.join("\n\n"))
    }

    /// Returns the events since the last call, oldest first.
    pub(in crate::reconcile::tests) async fn events(&self) -> Vec<String> {
        self.recorder.flush().await;
        let events: Api<CoreEvent> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut found = events.list(&ListParams::default()).await.unwrap().items;
        found.sort_by_key(|event| event.metadata.name.clone());
        let mut lines = Vec::new();
        for event in found {
            let annotations = event.metadata.annotations.unwrap_or_default();
            let names: Vec<_> = annotations
                .keys()
                .filter_map(|key| key.rsplit('/').next())
                .collect();
            lines.push(format!(
                "event {} {} {}{}",
                event.type_.unwrap_or_default(),
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default(),
                if names.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", names.join(", "))
                },
            ));
            let name = event.metadata.name.unwrap_or_default();
            events.delete(&name, &DeleteParams::default()).await.unwrap();
        }
        lines
    }

    /// Replaces commits and addresses by their labels.
    pub(in crate::reconcile::tests) fn masked(&self, text: &str) -> String {
        self.labels
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

/// Returns a line for each condition.
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

/// Returns a line for generations and artifact.
fn summary(object: &GitRepository) -> String {
    let status = object.status.clone().unwrap_or_default();
    let revision = status
        .artifact
        .map_or_else(|| "none".to_owned(), |artifact| artifact.revision);
    format!(
        "generation {} observed {} artifact {revision}",
        object.metadata.generation.unwrap_or_default(),
        status.observed_generation.unwrap_or_default(),
    )
}
