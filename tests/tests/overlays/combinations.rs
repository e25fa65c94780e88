//! What a user's overlay may combine: components, namespaces and installations.

use std::collections::BTreeSet;

use serde_json::json;

use super::installation::{arguments, assert_namespace, is_cluster_wide};
use super::{find, names, objects, refusal_of_user_overlay, user_overlay};

#[test]
fn kustomize_refuses_components_that_an_overlay_excludes() {
    let refused = |overlay: &str, components: &[&str]| {
        let components: Vec<_> = components
            .iter()
            .map(|component| format!("../config/components/{component}"))
            .collect();
        let kustomization = json!({ "namespace": "sluice-system", "resources": [format!("../config/overlays/{overlay}")],
            "components": components });
        refusal_of_user_overlay(&kustomization)
    };
    let (executor, stacks) = ("/args/5", "sluice-tf-controller-stacks");
    let sources = "Deployment.v1.apps/source-controller";
    let cases: [(&str, &[&str], &str); 15] = [
        ("single-namespace", &["process-executor"], "/kind"),
        ("single-namespace", &["workload-identity"], "/kind"),
        ("single-namespace", &["repo-controller"], "/kind"),
        ("standalone", &["repo-controller-single-namespace"], "/kind"),
        ("single-namespace", &["edit-aggregation"], "/kind"),
        ("single-namespace", &["multi-tenant"], "/kind"),
        ("ha", &["process-executor"], "/spec/replicas"),
        ("multi-tenant", &["process-executor"], stacks),
        // In the other order of components too.
        ("standalone", &["process-executor", "ha"], executor),
        ("standalone", &["process-executor", "multi-tenant"], executor),
        ("standalone", &["multi-tenant", "process-executor"], stacks),
        ("with-flux", &["workload-identity"], sources),
        ("with-flux", &["source-storage"], sources),
        ("with-flux", &["object-storage"], sources),
        ("standalone", &["source-storage", "object-storage"], "/volumes/0"),
    ];
    for (overlay, components, reason) in cases {
        let error = refused(overlay, components);
        assert!(error.contains(reason), "{overlay}, {components:?}: {error:?}");
    }
    for (overlay, components) in [
        ("standalone", ["process-executor"].as_slice()),
        ("with-flux", &["process-executor"]),
        ("replace-flux", &["workload-identity", "source-storage"]),
        ("single-namespace", &["ha", "source-storage"]),
        ("single-namespace", &["repo-controller-single-namespace", "ha"]),
        ("standalone", &["repo-controller", "ha"]),
        ("ha", &["object-storage"]),
        ("ha", &["multi-tenant"]),
        ("multi-tenant", &["ha", "edit-aggregation"]),
    ] {
        assert_eq!(refused(overlay, components), "", "{overlay}, {components:?}");
    }
}

/// As the page about operations describes it: nothing cluster-wide is shared, and what stacks, flags and policies name stays.
#[test]
fn a_second_installation_has_cluster_wide_roles_of_its_own() {
    let suffix = "{apiVersion: builtin, kind: SuffixTransformer, metadata: {name: second}, suffix: -two, fieldSpecs: [\
                  {kind: ClusterRole, path: metadata/name}, {kind: ClusterRoleBinding, path: metadata/name}]}";
    let first = objects("overlays/standalone");
    let second = user_overlay(
        &json!({ "namespace": "other", "resources": ["../config/overlays/standalone"], "transformers": [suffix] }),
    );
    assert_namespace(&second, "other", "second");
    let [first, second] = [first, second].map(|objects| -> (BTreeSet<_>, BTreeSet<_>) {
        let (wide, narrow): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_cluster_wide);
        (names(&wide), names(&narrow))
    });
    assert!(second.0.is_disjoint(&first.0), "{second:?}");
    assert_eq!(second.0.len(), first.0.len());
    assert_eq!(second.1, first.1);
}

/// As the page about buckets describes it: the pods read the generated ConfigMap, whose name has a suffix.
#[test]
fn the_replicas_of_a_bucket_read_its_name_from_a_generated_config_map() {
    let objects = user_overlay(&json!({ "namespace": "sluice-system",
        "resources": ["../config/overlays/standalone"], "components": ["../config/components/object-storage"],
        "configMapGenerator": [{ "name": "source-controller-bucket", "literals": ["STORAGE_BACKEND=s3"] }] }));
    let names = names(&objects);
    let container =
        &find(&objects, "Deployment source-controller")["spec"]["template"]["spec"]["containers"][0];
    let name = container["envFrom"][0]["configMapRef"]["name"].as_str().unwrap();
    assert!(name.starts_with("source-controller-bucket-"), "{name}");
    assert!(names.iter().any(|known| known.contains(name)), "{names:?}");
}

/// As the page about Flux describes it: events and artifacts are in the namespace of Flux.
#[test]
fn tf_controller_beside_flux_may_have_a_namespace_of_its_own() {
    let address = "--events-addr=http://notification-controller.flux-system.svc.cluster.local./";
    let patch =
        json!([{ "op": "replace", "path": "/spec/template/spec/containers/0/args/0", "value": address }]);
    let target = json!({ "kind": "Deployment", "name": "tf-controller" });
    let objects = user_overlay(
        &json!({ "namespace": "other", "resources": ["../config/overlays/with-flux"],
        "patches": [{ "target": target, "patch": patch.to_string() }] }),
    );
    assert_namespace(&objects, "other", "with-flux");
    assert_eq!(arguments(find(&objects, "Deployment tf-controller"))[0], address);
    let component = user_overlay(
        &json!({ "namespace": "flux-system", "components": ["../config/components/flux-network-policy"] }),
    );
    let policy = find(&component, "NetworkPolicy source-controller-runs");
    assert_eq!(policy["metadata"]["namespace"], "flux-system");
    assert_eq!(component.len(), 1);
}
