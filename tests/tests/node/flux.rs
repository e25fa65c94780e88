//! Flux's own source-controller on a node, with its storage on a volume.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_harness::gobuild::{self, Tool};
use sluice_harness::node::Node;
use sluice_images::archive::{self, ImageConfig, Reference};
use sluice_images::layer::Layer;

use crate::install::Installation;

/// The namespace of Flux.
pub(crate) const NAMESPACE: &str = "flux-system";
/// Name and tag of the image.
pub(crate) const IMAGE: (&str, &str) = ("sluice.invalid/flux-source-controller", "1.9.4");

/// Imports Flux's source-controller and installs it, with its storage in this folder. As with `flux install`, it has an account of its own; the
/// roles are those of its module.
pub(crate) async fn install(installation: &Installation<'_>, storage: &Path) {
    import(installation.node).await;
    installation.kubectl(&["create", "namespace", NAMESPACE]).await;
    let account = format!("--serviceaccount={NAMESPACE}:source-controller");
    let role = "--role=source-leader-election-role";
    for arguments in [
        ["create", "serviceaccount", "source-controller"].as_slice(),
        &["create", "rolebinding", "flux-leader-election", role, &account],
        &[
            "create",
            "clusterrolebinding",
            "flux",
            "--clusterrole=source-manager-role",
            &account,
        ],
    ] {
        let all = [&["-n", NAMESPACE], arguments].concat();
        installation.kubectl(&all).await;
    }
    let manifests = gobuild::package_folder(Tool::FluxSourceController)
        .unwrap()
        .join("config");
    let resources = ["crd", "rbac", "manager"].map(|folder| installation.relative(&manifests.join(folder)));
    let account = json!({ "op": "add", "path": "/spec/template/spec/serviceAccountName", "value": "source-controller" });
    let patch = json!([volume_patch(storage), account]);
    let kustomization = json!({
        "namespace": NAMESPACE,
        "resources": resources,
        "images": [{ "name": "fluxcd/source-controller", "newName": IMAGE.0, "newTag": IMAGE.1 }],
        "patches": [{ "target": { "kind": "Deployment" }, "patch": patch.to_string() }],
    });
    installation.apply_kustomization("flux", &kustomization).await;
}

/// Returns the patch with which a user keeps the storage of source-controller on a volume.
pub(crate) fn volume_patch(storage: &Path) -> Value {
    json!({ "op": "replace", "path": "/spec/template/spec/volumes/0",
        "value": { "name": "data", "hostPath": { "path": storage } } })
}

/// Imports an image of Flux's source-controller.
async fn import(node: &Node) {
    let program = gobuild::build(Tool::FluxSourceController, &mut |line| eprintln!("{line}")).unwrap();
    let folder = node.folder();
    let mut layer = Layer::default();
    layer.file("/source-controller", &program).unwrap();
    let layer = layer.write(&folder.join("flux-layer.tar")).unwrap();
    let image = ImageConfig {
        user: 65534,
        entrypoint: "/source-controller".to_owned(),
        environment: BTreeMap::new(),
        labels: BTreeMap::new(),
    };
    let name = Reference::new(IMAGE.0, IMAGE.1).unwrap();
    let file = folder.join("flux.tar");
    archive::write(&name, &image, &[&layer], Timestamp::UNIX_EPOCH, &file).unwrap();
    node.import(&file).await.unwrap();
}
