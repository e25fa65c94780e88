//! The objects of a test: the source with its artifact, stacks, Secrets and ConfigMaps, and the state.

use std::collections::BTreeMap;
use std::io::Write;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;

use super::{NAMESPACE, SOURCE, TestEnvironment};
use crate::artifacts::{digest, pack};

impl TestEnvironment {
    /// Publishes these files as the source's artifact of the revision `main@sha1:<mark repeated>`.
    pub(crate) async fn commit(&self, mark: &str, files: &[(&str, &str)]) -> String {
        let bytes = pack(files);
        let digest = digest(&bytes);
        self.publish(mark, bytes, &digest).await
    }

    /// Publishes these bytes with this digest.
    pub(crate) async fn publish(&self, mark: &str, bytes: Vec<u8>, digest: &str) -> String {
        let api: Api<GitRepository> = self.api();
        if api.get_opt(SOURCE).await.unwrap().is_none() {
            let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
                "metadata": { "name": SOURCE }, "spec": { "interval": "1h", "url": "https://example.invalid/code" } });
            api.create(&PostParams::default(), &serde_json::from_value(source).unwrap())
                .await
                .unwrap();
        }
        let file = format!("{mark}.tar.gz");
        let size = bytes.len();
        self.artifacts.put(&file, bytes);
        let revision = format!("main@sha1:{}", mark.repeat(40));
        let host = match self.artifact_host {
            Some(_) => "http://artifacts.invalid",
            None => &self.artifacts.url,
        };
        let status = json!({ "status": { "artifact": { "digest": digest, "lastUpdateTime": "2026-01-01T00:00:00Z",
            "path": file, "revision": revision, "size": size, "url": format!("{host}/{file}") } } });
        api.patch_status(SOURCE, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
        revision
    }

    /// Creates a stack on the source; members of `spec` override the defaults.
    pub(crate) async fn stack(&self, name: &str, spec: Value) {
        let mut full_spec = json!({ "interval": "1h", "retryInterval": "1s", "approvePlan": "auto",
            "sourceRef": { "kind": "GitRepository", "name": SOURCE } });
        for (key, value) in spec.as_object().unwrap() {
            full_spec[key] = value.clone();
        }
        let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": name }, "spec": full_spec });
        // Untyped: some tests need values that our types refuse.
        let resource = kube::api::ApiResource::erase::<Terraform>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &resource);
        api.create(&PostParams::default(), &serde_json::from_value(stack).unwrap())
            .await
            .unwrap();
    }

    /// Changes the spec; `null` removes a field.
    pub(crate) async fn edit(&self, name: &str, spec: Value) {
        self.patch(name, json!({ "spec": spec })).await;
    }

    /// Requests a reconciliation, as `flux reconcile` does.
    pub(crate) async fn request(&self, name: &str, token: &str) {
        let annotations = json!({ "reconcile.fluxcd.io/requestedAt": token });
        self.patch(name, json!({ "metadata": { "annotations": annotations } }))
            .await;
    }

    /// Sets annotations; `null` removes one.
    pub(crate) async fn annotate(&self, name: &str, annotations: Value) {
        self.patch(name, json!({ "metadata": { "annotations": annotations } }))
            .await;
    }

    pub(crate) async fn patch(&self, name: &str, body: Value) {
        let api: Api<Terraform> = self.api();
        api.patch(name, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap();
    }

    /// Deletes the stack without waiting.
    pub(crate) async fn delete(&self, name: &str) {
        let api: Api<Terraform> = self.api();
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Replaces values of a Secret; without pairs it only changes its metadata.
    pub(crate) async fn change_secret(&self, name: &str, pairs: &[(&str, &str)], touch: &str) {
        let data: BTreeMap<_, _> = pairs.iter().copied().collect();
        let body = json!({ "metadata": { "annotations": { "touched": touch } }, "stringData": data });
        let api: Api<Secret> = self.api();
        api.patch(name, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap();
    }

    /// Creates a Secret with these values.
    pub(crate) async fn secret(&self, name: &str, pairs: &[(&str, &str)]) {
        let data: BTreeMap<_, _> = pairs.iter().copied().collect();
        let secret = json!({ "metadata": { "name": name }, "stringData": data });
        let api: Api<Secret> = self.api();
        api.create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
            .await
            .unwrap();
    }

    /// Creates a ConfigMap with this data.
    pub(crate) async fn config_map(&self, name: &str, data: Value) {
        let map = json!({ "metadata": { "name": name }, "data": data });
        let api: Api<ConfigMap> = self.api();
        api.create(&PostParams::default(), &serde_json::from_value(map).unwrap())
            .await
            .unwrap();
    }

    /// Writes the state as a foreign apply without changes: stored plans become stale.
    pub(crate) async fn raise_serial(&self, name: &str) {
        self.edit_state(name, |_| ()).await;
    }

    /// Writes the state as a foreign apply.
    pub(crate) async fn edit_state(&self, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut state: Value = serde_json::from_str(&self.state(name).await).unwrap();
        state["serial"] = json!(state["serial"].as_u64().unwrap() + 1);
        edit(&mut state);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(state.to_string().as_bytes()).unwrap();
        let data = json!({ "data": { "tfstate": k8s_openapi::ByteString(gzip.finish().unwrap()) } });
        let api: Api<Secret> = self.api();
        api.patch(
            &format!("tfstate-default-{name}"),
            &PatchParams::default(),
            &Patch::Merge(data),
        )
        .await
        .unwrap();
    }
}
