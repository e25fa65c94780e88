//! The Helm chart has the same objects as the overlays.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use sluice_harness::cli;
use sluice_harness::skip::without_cluster;

use super::{OVERLAYS, config, documents, find, list, name, objects, text, user_overlay};

fn chart() -> PathBuf {
    config().join("../charts/sluice")
}

/// Runs `helm template` with further arguments.
fn template(namespace: &str, arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(cli::helm().unwrap())
        .arg("template")
        .arg("sluice")
        .arg(chart())
        .args(["--namespace", namespace])
        .args(arguments)
        .env("HOME", home.path())
        .output()
        .unwrap()
}

/// Returns the objects that the chart renders.
fn render(namespace: &str, arguments: &[&str]) -> Vec<Value> {
    let output = template(namespace, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    documents(&output.stdout)
}

/// Returns why the chart renders nothing.
fn refusal(arguments: &[&str]) -> String {
    let output = template("sluice-system", arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that both have the same objects, in any order.
fn assert_same(chart: &[Value], overlay: &[Value], case: &str) {
    let by_name = |objects: &[Value]| -> BTreeMap<String, Value> {
        let entry = |object: &Value| {
            let mut object = object.clone();
            // Kustomize does not know that these have no namespace; the API server ignores it.
            if text(&object, "/kind").starts_with("ValidatingAdmissionPolicy") {
                object["metadata"].as_object_mut().unwrap().remove("namespace");
            }
            let key = format!("{} {}", name(&object), text(&object, "/metadata/namespace"));
            (key, object)
        };
        let map: BTreeMap<_, _> = objects.iter().map(entry).collect();
        assert_eq!(map.len(), objects.len(), "{case}: two objects have one name");
        map
    };
    let (chart, overlay) = (by_name(chart), by_name(overlay));
    let keys = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&chart), keys(&overlay), "{case}");
    for (key, object) in &chart {
        assert_eq!(object, &overlay[key], "{case}: {key}");
    }
}

#[test]
fn the_chart_has_the_objects_of_each_overlay() {
    if without_cluster().unwrap() {
        return;
    }
    for overlay in OVERLAYS {
        let values = chart().join("overlays").join(format!("{}.yaml", overlay.name));
        let values = values.display().to_string();
        let rendered = render(overlay.namespace, &["--values", &values]);
        assert_same(&rendered, &overlay.objects(), overlay.name);
    }
    let default = render("sluice-system", &[]);
    assert_same(&default, &objects("overlays/standalone"), "default values");
    let other =
        user_overlay(&json!({ "namespace": "other", "resources": ["../config/overlays/standalone"] }));
    assert_same(&render("other", &[]), &other, "another namespace");
}

#[test]
fn the_values_of_components_have_their_objects() {
    if without_cluster().unwrap() {
        return;
    }
    for (component, value) in [
        ("process-executor", "executor=process"),
        ("workload-identity", "sourceController.workloadIdentity=true"),
        ("repo-controller", "repoController=true"),
        ("source-storage", "sourceController.persistence.enabled=true"),
    ] {
        let overlay = user_overlay(&json!({ "namespace": "sluice-system",
            "resources": ["../config/overlays/standalone"], "components": [format!("../config/components/{component}")] }));
        assert_same(&render("sluice-system", &["--set", value]), &overlay, component);
    }
    let beside_flux = user_overlay(
        &json!({ "namespace": "flux-system", "resources": ["../config/overlays/with-flux"],
        "components": ["../config/components/flux-network-policy"] }),
    );
    let values = chart().join("overlays/with-flux.yaml").display().to_string();
    let open = [
        "--values",
        &values,
        "--set",
        "networkPolicy.fluxSourceController=true",
    ];
    assert_same(&render("flux-system", &open), &beside_flux, "flux-network-policy");
}

#[test]
fn the_objects_of_a_tenant_are_those_of_the_sample() {
    if without_cluster().unwrap() {
        return;
    }
    let values = chart().join("overlays/multi-tenant.yaml").display().to_string();
    let namespaces = "runner.serviceAccount.allowedNamespaces={team-a}";
    let of_tenant = |objects: Vec<Value>| -> Vec<Value> {
        let is_of_tenant = |object: &Value| text(object, "/metadata/namespace") == "team-a";
        objects.into_iter().filter(is_of_tenant).collect()
    };
    let rendered = of_tenant(render(
        "sluice-system",
        &["--values", &values, "--set", namespaces],
    ));
    assert_eq!(rendered.len(), 4, "{rendered:#?}");
    assert_same(&rendered, &of_tenant(objects("samples/tenant")), "tenant");
}

#[test]
fn values_set_images_and_their_digests() {
    if without_cluster().unwrap() {
        return;
    }
    let digest = format!("sha256:{}", "0".repeat(64));
    let sets = [
        "sourceController.image.repository=registry.example.com/source-controller".to_owned(),
        "tfController.image.repository=registry.example.com/tf-controller".to_owned(),
        "tfController.image.tag=7".to_owned(),
        "runner.image.repository=registry.example.com/tf-runner".to_owned(),
        format!("runner.image.digest={digest}"),
    ];
    let arguments: Vec<&str> = sets.iter().flat_map(|set| ["--set-string", set]).collect();
    let rendered = render("sluice-system", &arguments);
    let deployments = rendered
        .iter()
        .filter(|object| text(object, "/kind") == "Deployment");
    let images: Vec<&str> = deployments
        .flat_map(|deployment| {
            let variables = list(deployment, "/spec/template/spec/containers/0/env");
            let runner = variables.filter(|variable| variable["name"] == "RUNNER_POD_IMAGE");
            [text(deployment, "/spec/template/spec/containers/0/image")]
                .into_iter()
                .chain(runner.map(|variable| text(variable, "/value")))
        })
        .collect();
    let runner = format!("registry.example.com/tf-runner@{digest}");
    for image in [
        "registry.example.com/source-controller:0.1.0",
        "registry.example.com/tf-controller:7",
        &runner,
    ] {
        assert!(images.contains(&image), "{images:?}");
    }
    assert_eq!(images.len(), 3);
}

#[test]
fn values_select_the_volume_of_sources() {
    if without_cluster().unwrap() {
        return;
    }
    let volume = |rendered: &[Value]| {
        let is_controller = |object: &&Value| name(object) == "Deployment source-controller";
        let deployment = rendered.iter().find(is_controller).unwrap();
        deployment["spec"]["template"]["spec"]["volumes"][0].clone()
    };
    let own = "sourceController.storage.persistentVolumeClaim.claimName=mine";
    let rendered = render("sluice-system", &["--set", own]);
    let expected = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "mine" } });
    assert_eq!(volume(&rendered), expected);

    let persistence = "sourceController.persistence.enabled=true,sourceController.persistence.size=50Gi,\
                       sourceController.persistence.storageClassName=fast";
    let rendered = render("sluice-system", &["--set", persistence]);
    let is_claim = |object: &&Value| name(object) == "PersistentVolumeClaim source-controller";
    let claim = rendered.iter().find(is_claim).unwrap();
    assert_eq!(claim["spec"]["storageClassName"], "fast");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "50Gi");
    let text = refusal(&["--set", &format!("{persistence},{own}")]);
    assert!(text.contains("sourceController.storage: has no effect"), "{text}");
}

/// Returns the pod of a controller, with the metadata of its template.
fn template_of<'a>(rendered: &'a [Value], controller: &str) -> &'a Value {
    let deployment = find(rendered, &format!("Deployment {controller}"));
    &deployment["spec"]["template"]
}

/// What a private authority, a policy of the cluster or OpenShift needs.
#[test]
fn values_extend_the_pods() {
    if without_cluster().unwrap() {
        return;
    }
    let of_both = json!({
        "extraVolumes": [{ "name": "ca", "configMap": { "name": "ca" } }],
        "extraVolumeMounts": [{ "name": "ca", "mountPath": "/etc/ca" }],
        "podLabels": { "team": "platform", "app": "other" },
        "podAnnotations": { "prometheus.io/scrape": "false" },
        "podSecurityContext": { "fsGroup": null },
        "nodeSelector": { "kubernetes.io/arch": "arm64" },
    });
    let values = ["sourceController", "tfController"].map(|controller| format!("{controller}={of_both}"));
    let sets = values.iter().flat_map(|value| ["--set-json", value]);
    let rendered = render("sluice-system", &sets.collect::<Vec<_>>());
    for controller in ["source-controller", "tf-controller"] {
        let template = template_of(&rendered, controller);
        let pod = &template["spec"];
        assert_eq!(pod["volumes"][2], of_both["extraVolumes"][0], "{controller}");
        let mounts = &pod["containers"][0]["volumeMounts"];
        assert_eq!(mounts[2], of_both["extraVolumeMounts"][0], "{controller}");
        let labels = &template["metadata"]["labels"];
        assert_eq!(labels["team"], "platform", "{controller}");
        assert_eq!(labels["app"], controller, "the Deployment selects by it");
        let annotations = &template["metadata"]["annotations"];
        assert_eq!(annotations["prometheus.io/scrape"], "false", "{controller}");
        assert_eq!(pod["securityContext"], json!({}), "{controller}");
        let nodes = json!({ "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64" });
        assert_eq!(pod["nodeSelector"], nodes, "{controller}");
    }
}

/// By their names, and as in a pod.
#[test]
fn pull_secrets_have_two_forms() {
    if without_cluster().unwrap() {
        return;
    }
    let rendered = render(
        "sluice-system",
        &[
            "--set-json",
            "imagePullSecrets=[\"one\",{\"name\":\"two\"}]",
            "--set-json",
            "runner.serviceAccount={\"allowedNamespaces\":[\"team-a\"],\"imagePullSecrets\":[{\"name\":\"three\"}]}",
        ],
    );
    let expected = json!([{ "name": "one" }, { "name": "two" }]);
    for controller in ["source-controller", "tf-controller"] {
        let pod = &template_of(&rendered, controller)["spec"];
        assert_eq!(pod["imagePullSecrets"], expected, "{controller}");
    }
    let account = find(&rendered, "ServiceAccount tf-runner");
    assert_eq!(account["imagePullSecrets"], json!([{ "name": "three" }]));
    let text = refusal(&["--set-json", "imagePullSecrets=[{\"nam\":\"two\"}]"]);
    assert!(text.contains("imagePullSecrets"), "{text}");
}

/// The name is that of `sluice_runtime::leader::tests::each_shard_has_its_own_lease`.
#[test]
fn the_role_of_leader_election_names_the_lease_of_a_selector() {
    if without_cluster().unwrap() {
        return;
    }
    let lease = |argument: &str| {
        let value = format!("sourceController.extraArgs=[\"{argument}\"]");
        let rendered = render("sluice-system", &["--set-json", &value]);
        let role = find(&rendered, "Role sluice-source-controller-leader-election");
        role["rules"][0]["resourceNames"].clone()
    };
    let name = "source-controller-leader-election";
    let of_shard = json!([format!("{name}-73fdc1be")]);
    assert_eq!(
        lease("--watch-label-selector=sharding.fluxcd.io/key=shard1"),
        of_shard
    );
    assert_eq!(lease("--watch-label-selector="), json!([name]));
    assert_eq!(lease("--concurrent=4"), json!([name]));
    let separate = "tfController.extraArgs={--watch-label-selector,team}";
    let text = refusal(&["--set", separate]);
    assert!(text.contains("write --watch-label-selector=SELECTOR"), "{text}");
}

#[test]
fn limits_of_labels_become_flags() {
    if without_cluster().unwrap() {
        return;
    }
    let limits = "tfController.concurrentPerLabel={\"account\":3,\"example.org/team\":1}";
    let rendered = render("sluice-system", &["--set-json", limits]);
    let is_controller = |object: &&Value| name(object) == "Deployment tf-controller";
    let deployment = rendered.iter().find(is_controller).unwrap();
    let arguments = list(deployment, "/spec/template/spec/containers/0/args");
    let arguments: Vec<_> = arguments.filter_map(Value::as_str).collect();
    for flag in [
        "--concurrent-per-label=account=3",
        "--concurrent-per-label=example.org/team=1",
    ] {
        assert!(arguments.contains(&flag), "{arguments:?}");
    }
    let text = refusal(&["--set", "tfController.concurrentPerLabel.account=many"]);
    assert!(text.contains("concurrentPerLabel"), "{text}");
}

#[test]
fn values_without_effect_or_sense_are_refused() {
    if without_cluster().unwrap() {
        return;
    }
    for (value, word) in [
        ("nonsense=1", "nonsense"),
        ("tfController.replica=2", "replica"),
        ("executor=thread", "executor"),
        ("runner.image.digest=latest", "digest"),
    ] {
        let text = refusal(&["--set", value]);
        assert!(text.contains(word), "{value}: {text}");
    }
    for (values, reason) in [
        ("executor=process,tfController.replicas=2", "needs executor: job"),
        (
            "executor=process,multiTenant=true",
            "multiTenant: needs executor: job",
        ),
        (
            "watchAllNamespaces=false,repoController=true",
            "needs watchAllNamespaces: true",
        ),
        (
            "watchAllNamespaces=false,multiTenant=true",
            "multiTenant: needs watchAllNamespaces: true",
        ),
        (
            "watchAllNamespaces=false,runner.serviceAccount.allowedNamespaces={team-a}",
            "team-a is not watched",
        ),
        (
            "sourceController.enabled=false,sourceController.workloadIdentity=true",
            "workloadIdentity: has no effect",
        ),
        (
            "sourceController.enabled=false,sourceController.persistence.enabled=true",
            "have no effect",
        ),
        (
            "sourceController.enabled=false,sourceController.storage.emptyDir.sizeLimit=1Gi",
            "have no effect",
        ),
        (
            "networkPolicy.fluxSourceController=true",
            "fluxSourceController: has no effect",
        ),
    ] {
        let text = refusal(&["--set", values]);
        assert!(text.contains(reason), "{values}: {text}");
    }
}

#[test]
fn old_clusters_are_refused() {
    if without_cluster().unwrap() {
        return;
    }
    let text = refusal(&["--kube-version", "1.28.9"]);
    assert!(text.contains("kubeVersion"), "{text}");
    let tenants = ["--set", "multiTenant=true", "--kube-version"];
    let text = refusal(&[&tenants[..], &["1.29.14"]].concat());
    assert!(text.contains("needs Kubernetes 1.30"), "{text}");
    assert!(!render("sluice-system", &[&tenants[..], &["1.30.0"]].concat()).is_empty());
    assert!(!render("sluice-system", &["--kube-version", "1.29.0"]).is_empty());
}

/// Helm installs definitions from the chart's own folder.
#[test]
fn the_definitions_of_the_chart_are_those_of_config() {
    let files = |folder: PathBuf| -> BTreeMap<_, _> {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name(), std::fs::read_to_string(entry.path()).unwrap()))
            .collect()
    };
    let generated = files(config().join("crd/bases"));
    assert_eq!(generated.len(), 3);
    assert!(files(chart().join("crds")) == generated, "run make manifests");
}
