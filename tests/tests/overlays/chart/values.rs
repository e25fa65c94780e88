//! What single values of the chart change.

use serde_json::{Value, json};
use sluice_harness::skip::without_cluster;

use super::{refusal, render};
use crate::{find, list, name, text};

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

/// What a private authority or a policy of the cluster needs.
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

/// Its image is that of tf-controller, and so are its nodes: those of a selector may have taints.
#[test]
fn the_repo_controller_runs_on_the_nodes_of_the_tf_controller() {
    if without_cluster().unwrap() {
        return;
    }
    let nodes = json!({
        "nodeSelector": { "team": "platform" },
        "tolerations": [{ "key": "platform", "operator": "Exists", "effect": "NoSchedule" }],
    });
    let value = format!("tfController={nodes}");
    let rendered = render(
        "sluice-system",
        &["--set", "repoController.enabled=true", "--set-json", &value],
    );
    for controller in ["tf-controller", "repo-controller"] {
        let pod = &template_of(&rendered, controller)["spec"];
        assert_eq!(pod["nodeSelector"]["team"], "platform", "{controller}");
        assert_eq!(pod["tolerations"], nodes["tolerations"], "{controller}");
    }
}

/// `helm upgrade --reuse-values` brings the boolean of an earlier chart back.
#[test]
fn a_boolean_of_an_earlier_chart_is_no_repo_controller_or_names_the_new_value() {
    if without_cluster().unwrap() {
        return;
    }
    let rendered = render("sluice-system", &["--set", "repoController=false"]);
    assert_eq!(rendered, render("sluice-system", &[]));
    let text = refusal(&["--set", "repoController=true"]);
    assert!(
        text.contains("repoController: true is now repoController: {enabled: true}"),
        "{text}"
    );
}

#[test]
fn values_of_the_repo_controller_are_its_own() {
    if without_cluster().unwrap() {
        return;
    }
    let own = json!({
        "enabled": true,
        "replicas": 2,
        "extraArgs": ["--concurrent=8"],
        "extraEnv": [{ "name": "HTTPS_PROXY", "value": "http://proxy" }],
        "serviceAccountAnnotations": { "team": "platform" },
        "extraVolumes": [{ "name": "ca", "configMap": { "name": "ca" } }],
        "extraVolumeMounts": [{ "name": "ca", "mountPath": "/etc/ca" }],
        "podLabels": { "team": "platform", "app": "other" },
        "podAnnotations": { "prometheus.io/scrape": "false" },
        "podSecurityContext": { "fsGroup": 1000 },
        "priorityClassName": "high",
        "resources": { "limits": { "memory": "1Gi" } },
        "nodeSelector": { "team": "platform" },
        "tolerations": [{ "key": "platform", "operator": "Exists" }],
        "affinity": { "nodeAffinity": {} },
    });
    let value = format!("repoController={own}");
    let rendered = render("sluice-system", &["--set-json", &value]);
    let deployment = find(&rendered, "Deployment repo-controller");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let template = template_of(&rendered, "repo-controller");
    let metadata = &template["metadata"];
    assert_eq!(metadata["labels"]["team"], "platform");
    assert_eq!(
        metadata["labels"]["app"], "repo-controller",
        "the Deployment selects by it"
    );
    assert_eq!(metadata["annotations"]["prometheus.io/scrape"], "false");
    let pod = &template["spec"];
    for (field, value) in [
        ("securityContext", "podSecurityContext"),
        ("priorityClassName", "priorityClassName"),
        ("nodeSelector", "nodeSelector"),
        ("tolerations", "tolerations"),
        ("affinity", "affinity"),
    ] {
        assert_eq!(pod[field], own[value], "{field}");
    }
    let container = &pod["containers"][0];
    assert_eq!(container["args"][5], own["extraArgs"][0]);
    assert_eq!(container["env"][1], own["extraEnv"][0]);
    assert_eq!(container["volumeMounts"][1], own["extraVolumeMounts"][0]);
    assert_eq!(pod["volumes"][1], own["extraVolumes"][0]);
    assert_eq!(container["resources"]["limits"]["memory"], "1Gi");
    let account = find(&rendered, "ServiceAccount repo-controller");
    assert_eq!(
        account["metadata"]["annotations"],
        own["serviceAccountAnnotations"]
    );
    let other = find(&rendered, "Deployment tf-controller");
    assert_eq!(
        other["spec"]["replicas"], 1,
        "they are not those of tf-controller"
    );
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
    let text = refusal(&["--set-json", "imagePullSecrets=[{\"key\":\"two\"}]"]);
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
