//! What an overlay installs and where, with a user's changes too, and what its deletion leaves.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{OVERLAYS, Overlay, find, list, name, names, objects, of_kind, text, user_overlay};

/// Cluster-scoped kinds.
const CLUSTER_WIDE: [&str; 6] = [
    "Namespace",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

pub(super) fn is_cluster_wide(object: &Value) -> bool {
    CLUSTER_WIDE.contains(&text(object, "/kind"))
}

/// Asserts that all objects, and the subjects of bindings, are in this namespace.
pub(super) fn assert_namespace(objects: &[Value], namespace: &str, overlay: &str) {
    let accounts: Vec<&str> = of_kind(objects, "ServiceAccount")
        .map(|object| text(object, "/metadata/name"))
        .collect();
    let roles = names(objects);
    let mut subjects = 0;
    for object in objects {
        // Kustomize does not know that these have no namespace; the API server ignores it.
        if text(object, "/kind").starts_with("ValidatingAdmissionPolicy") {
            continue;
        }
        let expected = if is_cluster_wide(object) { "" } else { namespace };
        assert_eq!(
            text(object, "/metadata/namespace"),
            expected,
            "{overlay}: {}",
            name(object)
        );
        for subject in list(object, "/subjects") {
            assert_eq!(text(subject, "/namespace"), namespace, "{overlay}: {object}");
            assert!(accounts.contains(&text(subject, "/name")), "{overlay}: {subject}");
            let role = format!(
                "{} {}",
                text(object, "/roleRef/kind"),
                text(object, "/roleRef/name")
            );
            assert!(roles.contains(&role), "{overlay}: {object}");
            subjects += 1;
        }
    }
    assert!(subjects >= 2, "{overlay}");
}

#[test]
fn an_overlay_with_another_namespace_also_changes_the_subjects_of_bindings() {
    for overlay in OVERLAYS {
        let (name, base) = (overlay.name, format!("../config/overlays/{}", overlay.name));
        assert_namespace(&overlay.objects(), overlay.namespace, name);
        let mut kustomization = json!({ "namespace": "other", "namePrefix": "my-", "resources": [base] });
        assert_namespace(&user_overlay(&kustomization), "other", name);
        // Kustomize refuses the component there.
        if matches!(overlay.name, "single-namespace" | "multi-tenant" | "ha") {
            continue;
        }
        kustomization["components"] = json!(["../config/components/process-executor"]);
        assert_namespace(&user_overlay(&kustomization), "other", name);
    }
}

/// `kubectl delete -k` of an overlay must keep the namespace, which may contain other objects, and the definitions, whose deletion
/// would delete all objects.
#[test]
fn namespace_and_definitions_are_separate_from_the_controllers() {
    let terraform = [
        "CustomResourceDefinition planapprovals.infra.sluice.dev",
        "CustomResourceDefinition terraformruns.infra.sluice.dev",
        "CustomResourceDefinition terraforms.infra.contrib.fluxcd.io",
    ];
    let source = "CustomResourceDefinition gitrepositories.source.toolkit.fluxcd.io";
    for overlay in OVERLAYS {
        let objects = overlay.objects();
        let is_setup =
            |object: &Value| matches!(text(object, "/kind"), "Namespace" | "CustomResourceDefinition");
        assert!(!objects.iter().any(is_setup), "{}", overlay.name);
        let own_namespace = format!("Namespace {}", overlay.namespace);
        // The namespace of Flux is Flux's.
        let namespace = (overlay.namespace == "sluice-system").then_some(&*own_namespace);
        let expected: BTreeSet<String> = terraform
            .into_iter()
            .chain(overlay.has_sources.then_some(source))
            .chain(namespace)
            .map(str::to_owned)
            .collect();
        assert_eq!(names(&overlay.setup()), expected, "{}", overlay.name);
    }
}

#[test]
fn a_single_namespace_has_no_cluster_wide_object_and_its_controllers_watch_no_other() {
    let objects = user_overlay(&json!({ "namespace": "sluice-system",
        "resources": ["../config/overlays/single-namespace"],
        "components": ["../config/components/repo-controller-single-namespace"] }));
    assert_eq!(of_kind(&objects, "Deployment").count(), 3);
    let cluster_wide: Vec<String> = objects
        .iter()
        .filter(|object| is_cluster_wide(object))
        .map(name)
        .collect();
    assert!(cluster_wide.is_empty(), "{cluster_wide:?}");
    for deployment in of_kind(&objects, "Deployment") {
        let arguments = arguments(deployment);
        assert_eq!(arguments[1], "--watch-all-namespaces=false");
    }
    // Otherwise it watches the sources and inputs of all namespaces.
    let stacks = arguments(find(&objects, "Deployment tf-controller"));
    assert!(stacks.contains(&"--no-cross-namespace-refs=true"), "{stacks:?}");
}

#[test]
fn tenants_refer_to_no_other_namespace_and_their_runs_are_bound_to_pods() {
    let objects = objects("overlays/multi-tenant");
    let arguments = arguments(find(&objects, "Deployment tf-controller"));
    for flag in [
        "--no-cross-namespace-refs=true",
        "--concurrent-per-namespace=2",
        "--default-service-account=tf-runner",
    ] {
        assert!(arguments.contains(&flag), "{arguments:?}");
    }
    for name in ["sluice-run-status", "sluice-run-tokens", "sluice-plan-approval"] {
        let binding = find(&objects, &format!("ValidatingAdmissionPolicyBinding {name}"));
        assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
        let policy = format!("ValidatingAdmissionPolicy {}", text(binding, "/spec/policyName"));
        assert_eq!(find(&objects, &policy)["spec"]["failurePolicy"], "Fail");
    }
}

pub(super) fn arguments(deployment: &Value) -> Vec<&str> {
    list(deployment, "/spec/template/spec/containers/0/args")
        .filter_map(Value::as_str)
        .collect()
}

/// Flux's installation patches these positions of source-controller.
#[test]
fn arguments_have_the_order_of_flux() {
    for overlay in OVERLAYS {
        for deployment in of_kind(&overlay.objects(), "Deployment") {
            let arguments = arguments(deployment);
            let flags = arguments
                .iter()
                .map(|argument| argument.split('=').next().unwrap())
                .take(5)
                .collect::<Vec<_>>();
            let expected = [
                "--events-addr",
                "--watch-all-namespaces",
                "--log-level",
                "--log-encoding",
                "--enable-leader-election",
            ];
            assert_eq!(flags, expected, "{}: {}", overlay.name, name(deployment));
            let sixth = if text(deployment, "/metadata/name") == "source-controller" {
                "--storage-adv-addr=source-controller.$(RUNTIME_NAMESPACE).svc.cluster.local."
            } else {
                "--work-root=/data"
            };
            assert_eq!(arguments[6], sixth, "{}", overlay.name);
        }
    }
}

/// Flux's Deployment of source-controller selects its pods by `app` only.
#[test]
fn only_replace_flux_replaces_the_source_controller_of_flux() {
    let with_flux = names(&objects("overlays/with-flux"));
    assert!(
        !with_flux.iter().any(|name| name.contains("source-controller")),
        "{with_flux:?}"
    );
    let flux = json!({ "app": "source-controller" });
    for Overlay { name, .. } in OVERLAYS.iter().filter(|overlay| overlay.has_sources) {
        let objects = objects(&format!("overlays/{name}"));
        let deployment = find(&objects, "Deployment source-controller");
        let labels = deployment["spec"]["template"]["metadata"]["labels"]
            .as_object()
            .unwrap();
        let selector = &deployment["spec"]["selector"]["matchLabels"];
        let is_label = |(key, value): (&String, &Value)| labels.get(key) == Some(value);
        assert!(selector.as_object().unwrap().iter().all(is_label), "{name}");
        // Selectors are immutable: the API server refuses the Deployment if Flux's exists.
        assert_eq!(*selector == flux, *name == "replace-flux", "{name}");
    }
}

#[test]
fn images_have_an_unresolvable_registry() {
    for overlay in OVERLAYS {
        for deployment in of_kind(&overlay.objects(), "Deployment") {
            let variables = list(deployment, "/spec/template/spec/containers/0/env");
            let runner = variables.filter(|variable| variable["name"] == "RUNNER_POD_IMAGE");
            let images: Vec<&str> = runner
                .map(|variable| text(variable, "/value"))
                .chain([text(deployment, "/spec/template/spec/containers/0/image")])
                .collect();
            let stacks = text(deployment, "/metadata/name") == "tf-controller";
            assert_eq!(images.len(), if stacks { 2 } else { 1 }, "{}", overlay.name);
            for image in images {
                // RFC 6761, section 6.4: no resolver finds a host in this domain.
                let host = image.split('/').next().unwrap();
                assert!(host.ends_with(".invalid"), "{}: {image}", overlay.name);
            }
        }
    }
}

/// As the page about clusters describes it.
#[test]
fn a_users_overlay_sets_all_images() {
    let image = |name: &str| json!({ "name": format!("sluice.invalid/{name}"), "newName": format!("registry.example.com/{name}"), "newTag": "1" });
    let patch = json!([{ "op": "replace", "path": "/spec/template/spec/containers/0/env/1/value", "value": "registry.example.com/tf-runner:1" }]);
    let target = json!({ "kind": "Deployment", "name": "tf-controller" });
    let objects = user_overlay(&json!({
        "resources": ["../config/overlays/standalone"],
        "images": [image("source-controller"), image("tf-controller")],
        "patches": [{ "target": target, "patch": patch.to_string() }],
    }));
    let deployments = of_kind(&objects, "Deployment")
        .map(Value::to_string)
        .collect::<String>();
    assert!(!deployments.contains(".invalid/"), "{deployments}");
    for name in ["source-controller", "tf-controller", "tf-runner"] {
        assert!(
            deployments.contains(&format!("registry.example.com/{name}:1")),
            "{deployments}"
        );
    }
}

#[test]
fn the_process_executor_starts_the_controller_in_the_image_of_runs() {
    let objects = user_overlay(&json!({ "namespace": "sluice-system",
        "resources": ["../config/overlays/standalone"], "components": ["../config/components/process-executor"] }));
    let deployment = find(&objects, "Deployment tf-controller");
    assert_eq!(arguments(deployment)[5], "--executor=process");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], json!(["tf-controller"]));
    assert_eq!(deployment["spec"]["strategy"]["type"], "Recreate");
    let variables: Vec<&str> = list(deployment, "/spec/template/spec/containers/0/env")
        .map(|variable| text(variable, "/name"))
        .collect();
    assert_eq!(variables, ["RUNTIME_NAMESPACE", "POD_NAME", "POD_UID"]);
}

/// As the page about operations describes it: a claim that one pod at a time mounts, with the group of the pod.
#[test]
fn a_users_overlay_sets_class_and_size_of_the_volume_of_sources() {
    let patch = json!([
        { "op": "add", "path": "/spec/storageClassName", "value": "fast" },
        { "op": "replace", "path": "/spec/resources/requests/storage", "value": "50Gi" },
    ]);
    let target = json!({ "kind": "PersistentVolumeClaim", "name": "source-controller" });
    for Overlay { name: overlay, .. } in OVERLAYS.iter().filter(|overlay| overlay.has_sources) {
        let objects = user_overlay(&json!({ "namespace": "other", "namePrefix": "my-",
            "resources": [format!("../config/overlays/{overlay}")], "components": ["../config/components/source-storage"],
            "patches": [{ "target": target, "patch": patch.to_string() }] }));
        let claim = find(&objects, "PersistentVolumeClaim my-source-controller");
        assert_eq!(claim["metadata"]["namespace"], "other", "{overlay}");
        assert_eq!(
            claim["spec"]["accessModes"],
            json!(["ReadWriteOnce"]),
            "{overlay}"
        );
        assert_eq!(claim["spec"]["storageClassName"], "fast", "{overlay}");
        assert_eq!(
            claim["spec"]["resources"]["requests"]["storage"], "50Gi",
            "{overlay}"
        );
        let deployment = find(&objects, "Deployment my-source-controller");
        assert_eq!(
            deployment["spec"]["strategy"],
            json!({ "type": "Recreate" }),
            "{overlay}"
        );
        let pod = &deployment["spec"]["template"]["spec"];
        let volume =
            json!({ "name": "data", "persistentVolumeClaim": { "claimName": "my-source-controller" } });
        assert_eq!(pod["volumes"][0], volume, "{overlay}");
        assert_eq!(pod["securityContext"]["fsGroup"], 1337, "{overlay}");
    }
}

#[test]
fn the_repo_controller_is_optional_and_its_definition_separate() {
    let definition = "CustomResourceDefinition repos.terraform.gitops.k8s.io";
    for overlay in OVERLAYS {
        let objects = names(&overlay.objects());
        let has_repos = |name: &String| name.contains("repo-controller") || name == definition;
        assert!(!objects.iter().any(has_repos), "{}", overlay.name);
        assert!(!names(&overlay.setup()).contains(definition), "{}", overlay.name);
    }
    let objects = user_overlay(
        &json!({ "namespace": "other", "resources": ["../config/overlays/standalone"],
        "components": ["../config/components/repo-controller"],
        "images": [{ "name": "sluice.invalid/tf-controller", "newName": "registry.example.com/tf-controller" }] }),
    );
    assert_namespace(&objects, "other", "repo-controller");
    assert!(!names(&objects).contains(definition));
    let deployment = find(&objects, "Deployment repo-controller");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example.com/tf-controller:0.1.0");
    assert_eq!(container["command"], json!(["repo-controller"]));
    assert!(arguments(deployment).contains(&"--enable-leader-election"));
    assert_eq!(
        names(&super::objects("components/repo-controller/crd")),
        [definition.to_owned()].into()
    );
}
