//! `kubectl apply -k` and `kubectl delete -k` of each overlay on a real API server, and of overlays of users with components.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use sluice_harness::cluster::ControlPlane;
use sluice_tests::wait_for_definitions;

use crate::environment::{config, kubectl, user_overlay};
use crate::{with_timeout, without_cluster};

/// Each overlay with its namespace.
const OVERLAYS: [(&str, &str); 6] = [
    ("standalone", "sluice-system"),
    ("single-namespace", "sluice-system"),
    ("multi-tenant", "sluice-system"),
    ("ha", "sluice-system"),
    ("with-flux", "flux-system"),
    ("replace-flux", "flux-system"),
];

/// An overlay with components that add objects.
struct Combination {
    overlay: &'static str,
    namespace: &'static str,
    components: &'static [&'static str],
    /// Objects that it adds.
    added: &'static [&'static str],
}

/// Not with `source-storage`: without a controller of Kubernetes no claim can be deleted. The overlays contain the other components.
const COMBINATIONS: [Combination; 3] = [
    Combination {
        overlay: "standalone",
        namespace: "sluice-system",
        components: &[
            "process-executor",
            "repo-controller",
            "run-admission",
            "workload-identity",
        ],
        added: &[
            "Deployment sluice-system repo-controller",
            "ClusterRole <none> sluice-source-controller-tokens",
        ],
    },
    Combination {
        overlay: "single-namespace",
        namespace: "sluice-system",
        components: &["repo-controller-single-namespace"],
        added: &[
            "Deployment sluice-system repo-controller",
            "Role sluice-system sluice-repo-controller",
        ],
    },
    Combination {
        overlay: "with-flux",
        namespace: "flux-system",
        components: &["flux-network-policy"],
        added: &["NetworkPolicy flux-system source-controller-runs"],
    },
];
/// The kinds of the overlays, of their setups and of users.
const KINDS: &str = "customresourcedefinitions,namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,\
                     validatingadmissionpolicybindings,serviceaccounts,roles,rolebindings,services,deployments,configmaps,secrets,\
                     networkpolicies,resourcequotas,poddisruptionbudgets,persistentvolumes,persistentvolumeclaims,leases,jobs,pods,\
                     terraforms,terraformruns,planapprovals,gitrepositories,repos";

/// Returns the kind, namespace and name of every object.
async fn all_objects(folder: &Path) -> BTreeSet<String> {
    let columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name";
    let list = kubectl(folder, &["get", KINDS, "-A", "--no-headers", "-o", columns]).await;
    list.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        // The API server creates its own in the background.
        .filter(|object| !object.contains(" kube-"))
        .collect()
}

/// Installs the setups of all overlays, stacks with the accounts of their runs, a `Repo`, and objects of another owner.
async fn set_up(folder: &Path, plane: &ControlPlane) {
    kubectl(folder, &["create", "namespace", "flux-system"]).await;
    for (overlay, _) in OVERLAYS {
        let setup = config(&format!("overlays/{overlay}/setup"));
        kubectl(folder, &["apply", "-k", &setup]).await;
    }
    let repos = config("components/repo-controller/crd");
    kubectl(folder, &["apply", "--server-side", "-k", &repos]).await;
    wait_for_definitions(plane.admin().client().await.unwrap())
        .await
        .unwrap();
    kubectl(folder, &["apply", "-k", &config("samples")]).await;
    let repo = json!({ "apiVersion": "terraform.gitops.k8s.io/v1alpha1", "kind": "Repo",
        "metadata": { "name": "app", "namespace": "default" }, "spec": { "url": "https://example.com/app" } });
    plane.apply(&repo.to_string()).await.unwrap();
    for namespace in ["flux-system", "sluice-system"] {
        let other = ["-n", namespace, "create", "configmap", "notes"];
        kubectl(folder, &other).await;
    }
}

/// Applies and deletes an overlay. Then the objects are those of before.
async fn check_deletion(folder: &Path, overlay: &str, expected: &[String], before: &BTreeSet<String>) {
    kubectl(folder, &["apply", "-k", overlay]).await;
    let installed = all_objects(folder).await;
    for object in expected {
        assert!(installed.contains(object), "{overlay}: {object}: {installed:#?}");
    }
    kubectl(folder, &["delete", "-k", overlay]).await;
    let after = all_objects(folder).await;
    let difference: Vec<_> = before.symmetric_difference(&after).collect();
    assert!(difference.is_empty(), "{overlay}: {difference:?}");
}

#[test]
fn the_deletion_of_an_overlay_leaves_exactly_what_was_there_before() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        // Without Kubernetes' own controllers, which would create and delete objects meanwhile.
        let plane = ControlPlane::start().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::write(folder.join("admin"), plane.admin().kubeconfig()).unwrap();
        set_up(folder, &plane).await;
        let before = all_objects(folder).await;
        for object in ["Terraform default app", "Repo default app"] {
            assert!(before.contains(object), "{before:#?}");
        }
        for (overlay, namespace) in OVERLAYS {
            let path = config(&format!("overlays/{overlay}"));
            let expected = [format!("Deployment {namespace} tf-controller")];
            check_deletion(folder, &path, &expected, &before).await;
        }
        for combination in &COMBINATIONS {
            let paths = combination.components.iter();
            let paths: Vec<_> = paths.map(|name| format!("config/components/{name}")).collect();
            let overlay = format!("config/overlays/{}", combination.overlay);
            let kustomization =
                json!({ "namespace": combination.namespace, "resources": [overlay], "components": paths });
            let parent = folder.join(combination.overlay);
            std::fs::create_dir(&parent).unwrap();
            let path = user_overlay(&parent, &kustomization);
            let expected: Vec<_> = combination.added.iter().map(|name| (*name).to_owned()).collect();
            check_deletion(folder, &path, &expected, &before).await;
        }
    });
}
