//! Each overlay takes the changes of Flux's users: another namespace, other images, and the patches of Flux's documentation by position
//! and by label (<https://fluxcd.io/flux/installation/configuration/>).

use serde_json::{Value, json};

use super::installation::{arguments, assert_namespace};
use super::pods::pod;
use super::{OVERLAYS, Overlay, list, name, of_kind, text, user_overlay};

/// Returns the JSON patches of all controllers.
fn by_position() -> Value {
    let container = "/spec/template/spec/containers/0";
    json!([
        { "op": "add", "path": format!("{container}/args/-"), "value": "--concurrent=8" },
        { "op": "add", "path": format!("{container}/env/-"), "value": { "name": "HTTPS_PROXY", "value": "http://proxy" } },
        { "op": "replace", "path": format!("{container}/resources/limits/memory"), "value": "2Gi" },
        { "op": "add", "path": format!("{container}/volumeMounts/-"), "value": { "name": "ca", "mountPath": "/etc/ca" } },
        { "op": "add", "path": "/spec/template/spec/volumes/-", "value": { "name": "ca", "configMap": { "name": "ca" } } },
        // As for OpenShift, which sets the group of volumes itself.
        { "op": "remove", "path": "/spec/template/spec/securityContext/fsGroup" },
    ])
}

/// Returns the strategic merge patch of all controllers.
fn by_name_of_the_container() -> Value {
    let security = json!({ "runAsUser": 65534, "seccompProfile": { "$patch": "delete" } });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "all" }, "spec": { "template": { "spec": {
        "nodeSelector": { "team": "platform" },
        "containers": [{ "name": "manager", "securityContext": security }],
    } } } })
}

/// Builds an overlay with the repo-controller and with these changes.
fn changed(overlay: &Overlay) -> Vec<Value> {
    let repos = if overlay.name == "single-namespace" {
        "repo-controller-single-namespace"
    } else {
        "repo-controller"
    };
    let all = json!({ "kind": "Deployment", "labelSelector": "app.kubernetes.io/part-of=flux" });
    let image = |name: &str| json!({ "name": format!("sluice.invalid/{name}"), "newName": format!("registry.example.com/{name}"), "newTag": "1" });
    let runner = json!([{ "op": "replace", "path": "/spec/template/spec/containers/0/env/1/value",
        "value": "registry.example.com/tf-runner:1" }]);
    user_overlay(&json!({
        "namespace": "other",
        "resources": [format!("../config/overlays/{}", overlay.name)],
        "components": [format!("../config/components/{repos}")],
        "images": [image("source-controller"), image("tf-controller")],
        "patches": [
            { "target": all, "patch": by_position().to_string() },
            { "target": all, "patch": by_name_of_the_container().to_string() },
            { "target": { "kind": "Deployment", "name": "tf-controller" }, "patch": runner.to_string() },
        ],
    }))
}

#[test]
fn each_overlay_takes_another_namespace_other_images_and_the_patches_of_flux() {
    for overlay in OVERLAYS {
        let objects = changed(&overlay);
        assert_namespace(&objects, "other", overlay.name);
        let deployments: Vec<_> = of_kind(&objects, "Deployment").collect();
        let expected = if overlay.has_sources { 3 } else { 2 };
        assert_eq!(deployments.len(), expected, "{}", overlay.name);
        for deployment in deployments {
            assert_changed(deployment, &format!("{}: {}", overlay.name, name(deployment)));
        }
    }
}

/// Asserts that all changes are in a Deployment, and that the first arguments are where Flux has them.
fn assert_changed(deployment: &Value, case: &str) {
    let arguments = arguments(deployment);
    assert!(arguments[4].starts_with("--enable-leader-election"), "{case}");
    assert_eq!(arguments.last(), Some(&"--concurrent=8"), "{case}");
    let pod = pod(deployment);
    let container = &pod["containers"][0];
    let last = |list: &Value| list.as_array().unwrap().last().unwrap()["name"].clone();
    assert_eq!(last(&container["env"]), "HTTPS_PROXY", "{case}");
    assert_eq!(last(&container["volumeMounts"]), "ca", "{case}");
    assert_eq!(last(&pod["volumes"]), "ca", "{case}");
    assert_eq!(container["resources"]["limits"]["memory"], "2Gi", "{case}");
    assert!(pod["securityContext"]["fsGroup"].is_null(), "{case}");
    let security = &container["securityContext"];
    assert_eq!(security["runAsUser"], 65534, "{case}");
    assert!(security["seccompProfile"].is_null(), "{case}");
    assert_eq!(pod["nodeSelector"]["team"], "platform", "{case}");
    let runner = list(container, "/env").filter(|variable| variable["name"] == "RUNNER_POD_IMAGE");
    let images = runner.map(|variable| text(variable, "/value"));
    for image in images.chain([text(container, "/image")]) {
        assert!(
            image.starts_with("registry.example.com/") && image.ends_with(":1"),
            "{case}: {image}"
        );
    }
}
