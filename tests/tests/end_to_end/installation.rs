//! `kubectl apply -k` and `kubectl delete -k` of each overlay on a real API server.

use std::collections::BTreeSet;
use std::path::Path;

use sluice_harness::cluster::ControlPlane;
use sluice_tests::wait_for_definitions;

use crate::environment::{config, kubectl};
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
/// The kinds of the overlays, of their setups and of users.
const KINDS: &str = "customresourcedefinitions,namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,\
                     validatingadmissionpolicybindings,serviceaccounts,roles,rolebindings,services,deployments,configmaps,secrets,\
                     networkpolicies,resourcequotas,poddisruptionbudgets,terraforms,terraformruns,gitrepositories";

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
        kubectl(folder, &["create", "namespace", "flux-system"]).await;
        for (overlay, _) in OVERLAYS {
            let setup = config(&format!("overlays/{overlay}/setup"));
            kubectl(folder, &["apply", "-k", &setup]).await;
        }
        wait_for_definitions(plane.admin().client().await.unwrap())
            .await
            .unwrap();
        // Stacks, the accounts of runs, and an object of somebody else.
        kubectl(folder, &["apply", "-k", &config("samples")]).await;
        for namespace in ["flux-system", "sluice-system"] {
            let other = ["-n", namespace, "create", "configmap", "notes"];
            kubectl(folder, &other).await;
        }
        let before = all_objects(folder).await;
        assert!(before.contains("Terraform default app"), "{before:#?}");
        for (overlay, namespace) in OVERLAYS {
            let path = config(&format!("overlays/{overlay}"));
            kubectl(folder, &["apply", "-k", &path]).await;
            let installed = all_objects(folder).await;
            let deployment = format!("Deployment {namespace} tf-controller");
            assert!(installed.contains(&deployment), "{overlay}: {installed:#?}");
            kubectl(folder, &["delete", "-k", &path]).await;
            let after = all_objects(folder).await;
            let difference: Vec<_> = before.symmetric_difference(&after).collect();
            assert!(difference.is_empty(), "{overlay}: {difference:?}");
        }
    });
}
