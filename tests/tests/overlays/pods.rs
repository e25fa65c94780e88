//! The pods of the controllers: their security, their network, their replicas.

use serde_json::{Value, json};

use super::{OVERLAYS, find, list, name, objects, of_kind, text, user_overlay};

pub(super) fn pod(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]
}

/// The rules of the profile `restricted` of the Pod Security Standards; the API server enforces it in the namespace.
#[test]
fn pods_satisfy_the_restricted_profile_of_their_namespace() {
    let component = user_overlay(&json!({ "components": ["../config/components/repo-controller"] }));
    let storage = user_overlay(&json!({ "resources": ["../config/overlays/standalone"],
        "components": ["../config/components/source-storage"] }));
    let bucket = user_overlay(&json!({ "resources": ["../config/overlays/standalone"],
        "components": ["../config/components/object-storage"] }));
    let overlays = OVERLAYS.iter().map(|overlay| (overlay.name, overlay.objects()));
    let components = [
        ("repo-controller", component),
        ("source-storage", storage),
        ("object-storage", bucket),
    ];
    for (overlay, objects) in overlays.chain(components) {
        for deployment in of_kind(&objects, "Deployment") {
            let pod = pod(deployment);
            for forbidden in ["hostNetwork", "hostPID", "hostIPC", "hostUsers"] {
                assert!(pod[forbidden].is_null(), "{overlay}: {forbidden}");
            }
            let is_permitted = |volume: &Value| {
                volume["emptyDir"].is_object() || volume["persistentVolumeClaim"].is_object()
            };
            assert!(list(pod, "/volumes").all(is_permitted), "{overlay}");
            for container in list(pod, "/containers") {
                let expected = json!({
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
                    "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" },
                });
                assert_eq!(container["securityContext"], expected, "{overlay}");
                for resource in ["cpu", "memory"] {
                    for bound in ["requests", "limits"] {
                        assert!(container["resources"][bound][resource].is_string(), "{overlay}");
                    }
                }
                for probe in ["livenessProbe", "readinessProbe"] {
                    assert!(container[probe]["httpGet"].is_object(), "{overlay}");
                }
            }
        }
    }
    for namespace in ["overlays/standalone/setup", "overlays/multi-tenant/setup"] {
        let namespace = objects(namespace);
        let labels = &find(&namespace, "Namespace sluice-system")["metadata"]["labels"];
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    }
}

/// Flux's priority for source-controller, with the quota that some clusters require for it.
#[test]
fn controllers_have_the_priority_of_flux() {
    let has_priority = |objects: &[Value], overlay: &str| {
        for deployment in of_kind(objects, "Deployment") {
            let class = &pod(deployment)["priorityClassName"];
            assert_eq!(
                class,
                "system-cluster-critical",
                "{overlay}: {}",
                name(deployment)
            );
        }
    };
    let component = user_overlay(&json!({ "components": ["../config/components/repo-controller"] }));
    has_priority(&component, "repo-controller");
    for overlay in OVERLAYS {
        let objects = overlay.objects();
        has_priority(&objects, overlay.name);
        if overlay.namespace == "flux-system" {
            continue; // Flux has its own quota.
        }
        let quota = find(&objects, "ResourceQuota critical-pods-sluice");
        let classes = &quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"];
        assert!(
            classes
                .as_array()
                .unwrap()
                .contains(&json!("system-cluster-critical"))
        );
    }
}

/// Clusters may have nodes with Windows too.
#[test]
fn controllers_run_on_linux() {
    let component = user_overlay(&json!({ "resources": ["../config/overlays/standalone"],
        "components": ["../config/components/repo-controller"] }));
    let overlays = OVERLAYS.iter().map(|overlay| (overlay.name, overlay.objects()));
    for (overlay, objects) in overlays.chain([("repo-controller", component)]) {
        let deployments: Vec<_> = of_kind(&objects, "Deployment").collect();
        assert!(!deployments.is_empty(), "{overlay}");
        for deployment in deployments {
            let linux = json!({ "kubernetes.io/os": "linux" });
            assert_eq!(
                pod(deployment)["nodeSelector"],
                linux,
                "{overlay}: {}",
                name(deployment)
            );
        }
    }
}

#[test]
fn highly_available_stacks_have_two_replicas_of_which_a_drain_leaves_one() {
    let standalone = objects("overlays/standalone");
    let deployment = find(&standalone, "Deployment tf-controller");
    assert_eq!(deployment["spec"]["strategy"], json!({ "type": "RollingUpdate" }));

    let objects = objects("overlays/ha");
    let deployment = find(&objects, "Deployment tf-controller");
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert!(list(pod(deployment), "/containers/0/args").any(|flag| flag == "--enable-leader-election"));
    let budget = find(&objects, "PodDisruptionBudget tf-controller");
    assert_eq!(budget["spec"]["minAvailable"], 1);
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let preferred = pod(deployment).pointer(
        "/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm",
    );
    for selector in [&budget["spec"]["selector"], &preferred.unwrap()["labelSelector"]] {
        assert_eq!(selector["matchLabels"]["app"], labels["app"]);
    }
    for deployment in of_kind(&objects, "Deployment") {
        let keys: Vec<&str> = list(pod(deployment), "/tolerations")
            .map(|toleration| text(toleration, "/key"))
            .collect();
        assert_eq!(
            keys,
            ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"],
            "{}",
            name(deployment)
        );
    }
    // A budget of one replica would block every drain.
    assert_eq!(
        find(&objects, "Deployment source-controller")["spec"]["replicas"],
        1
    );
    assert_eq!(of_kind(&objects, "PodDisruptionBudget").count(), 1);
}

/// Returns the selector of the pods of runs in all namespaces, with the labels that the Job executor sets.
fn runs() -> Value {
    json!({ "namespaceSelector": {}, "podSelector": { "matchLabels": { "app.kubernetes.io/name": "tf-runner" } } })
}

/// Each pod has a policy, and a policy opens only ports of its pod.
#[test]
fn network_policies_open_artifacts_to_the_namespace_and_to_runs_and_metrics_to_all() {
    for overlay in OVERLAYS {
        let objects = overlay.objects();
        for deployment in of_kind(&objects, "Deployment") {
            let app = text(deployment, "/metadata/name");
            let policy = find(&objects, &format!("NetworkPolicy {app}"));
            assert_eq!(
                policy["spec"]["podSelector"]["matchLabels"],
                json!({ "app": app }),
                "{}",
                overlay.name
            );
            assert_eq!(
                policy["spec"]["policyTypes"],
                json!(["Ingress"]),
                "{}",
                overlay.name
            );
            let mut opened = Vec::new();
            for rule in list(policy, "/spec/ingress") {
                for port in list(rule, "/ports") {
                    let mut declared = list(pod(deployment), "/containers/0/ports");
                    assert!(
                        declared.any(|declared| declared["name"] == port["port"]),
                        "{port}"
                    );
                    opened.push((text(port, "/port").to_owned(), rule["from"].clone()));
                }
            }
            let metrics = ("http-prom".to_owned(), json!([{ "namespaceSelector": {} }]));
            let artifacts = ("http".to_owned(), json!([{ "podSelector": {} }, runs()]));
            let expected = if app == "source-controller" {
                vec![artifacts, metrics]
            } else {
                vec![metrics]
            };
            assert_eq!(opened, expected, "{}: {app}", overlay.name);
        }
    }
}

#[test]
fn the_artifacts_of_flux_are_opened_only_by_a_component() {
    let with_flux = objects("overlays/with-flux");
    let policies: Vec<String> = of_kind(&with_flux, "NetworkPolicy").map(name).collect();
    assert_eq!(policies, ["NetworkPolicy tf-controller"]);
    let opened = user_overlay(
        &json!({ "namespace": "flux-system", "resources": ["../config/overlays/with-flux"],
        "components": ["../config/components/flux-network-policy"] }),
    );
    let policy = find(&opened, "NetworkPolicy source-controller-runs");
    assert_eq!(policy["metadata"]["namespace"], "flux-system");
    assert_eq!(
        policy["spec"]["podSelector"]["matchLabels"],
        json!({ "app": "source-controller" })
    );
    // It may be in another namespace than Flux.
    let controller =
        json!({ "namespaceSelector": {}, "podSelector": { "matchLabels": { "app": "tf-controller" } } });
    assert_eq!(
        policy["spec"]["ingress"],
        json!([{ "from": [runs(), controller], "ports": [{ "port": "http", "protocol": "TCP" }] }])
    );
}

/// Policies of tenants name port and pods of source-controller.
#[test]
fn the_runs_of_a_tenant_reach_artifacts_and_nobody_reaches_them() {
    let tenant = objects("samples/tenant");
    let policy = find(&tenant, "NetworkPolicy tf-runner");
    assert_eq!(policy["spec"]["podSelector"], runs()["podSelector"]);
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert!(policy["spec"]["ingress"].is_null(), "none is permitted");
    let sources = json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "sluice-system" } },
        "podSelector": { "matchLabels": { "app": "source-controller" } } });
    assert!(list(policy, "/spec/egress").any(|rule| rule["to"] == json!([sources])));
    let metadata_service = "169.254.169.254/32";
    assert!(policy["spec"]["egress"].to_string().contains(metadata_service));
}
