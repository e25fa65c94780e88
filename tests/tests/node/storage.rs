//! The volume of source-controller that outlives its pods: the claim of the component `source-storage`, bound to a folder of the node.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use sluice_harness::git::Step;
use sluice_harness::node::Node;

use crate::faults::pods::is_ready;
use crate::install::{Installation, NAMESPACE};
use crate::overlays::{kubectl, wait_until};
use crate::tenant::Tenant;

/// The name of the `PersistentVolume`.
pub(crate) const VOLUME: &str = "sources";
/// The group that `fsGroup` of the pod names.
const GROUP: u32 = 1337;
/// Read, write and enter for the group, and its id for new files.
const GROUP_MODE: u32 = 0o2070;
/// The Deployment that mounts the volume.
const DEPLOYMENT: &str = "deployment/source-controller";

/// A folder of the node as a volume. No provisioner is on the node, so the test creates the volume, as an administrator does.
pub(crate) struct Volume {
    folder: PathBuf,
}

/// An artifact in the status of its source, and its file on the volume.
#[derive(PartialEq)]
struct Stored {
    artifact: Value,
    content: Vec<u8>,
    /// The inode of the file. A file that is written again has another one.
    inode: u64,
}

impl Volume {
    /// Creates an empty folder that belongs to root, and the volume for the claim of source-controller.
    pub(crate) async fn create(node: &Node) -> Self {
        let folder = node.folder().join("sources");
        fs::create_dir(&folder).unwrap();
        let here = json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "Exists" }] });
        let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": VOLUME },
            "spec": { "capacity": { "storage": "10Gi" }, "accessModes": ["ReadWriteOnce"], "local": { "path": folder },
                "claimRef": { "namespace": NAMESPACE, "name": "source-controller" },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [here] } } } });
        node.apply(&volume.to_string()).await.unwrap();
        Self { folder }
    }

    /// The next pod serves what the last one stored, and fetches nothing, after a deletion and after a start that found the volume in use.
    pub(crate) async fn check_restarts(&self, installation: &Installation<'_>, tenant: &Tenant<'_>) {
        let server = tenant.server();
        assert!(server.count(Step::Fetch) > 0, "the first pod fetches the pack");
        let pods = Pods::new(installation).await;
        let first = pods.wait_until_ready("").await;
        let before = self.stored(poll(installation, tenant, "first").await);
        self.check_owner(&before);

        server.clear_requests();
        kubectl(installation, NAMESPACE, &["delete", "pod", &first]).await;
        let second = pods.wait_until_ready(&first).await;
        let after = self.stored(poll(installation, tenant, "deleted").await);
        assert_eq!(after.artifact, before.artifact);
        assert!(after == before, "the file on the volume was written again");

        self.check_use_by_another(&pods).await;
        pods.wait_until_ready(&second).await;
        let last = self.stored(poll(installation, tenant, "in use").await);
        assert_eq!(last.artifact, before.artifact);
        assert!(last == before, "the file on the volume was written again");
        assert!(
            server.count(Step::InfoRefs) >= 2,
            "each pod asks for the commit of the branch"
        );
        assert_eq!(server.count(Step::Fetch), 0, "no pod fetches the pack again");
    }

    /// A pod that finds the volume in use waits, ends with an error and releases its Lease. The next start waits again, until the volume is
    /// free. The test holds the lock, as a pod that has not ended yet.
    async fn check_use_by_another(&self, pods: &Pods<'_>) {
        let installation = pods.installation;
        let scale = async |replicas: &str| {
            let replicas = format!("--replicas={replicas}");
            kubectl(installation, NAMESPACE, &["scale", DEPLOYMENT, &replicas]).await;
        };
        scale("0").await;
        let is_gone = async || pods.list().await.is_empty().then_some(());
        wait_until(installation, "the end of source-controller", is_gone).await;
        let lock = self.folder.join(".mirrors/lock");
        let lock = File::options().write(true).open(lock).unwrap();
        lock.try_lock().unwrap();
        scale("1").await;
        let restarted = async || {
            let pods = pods.list().await;
            pods.iter().find(|pod| restarts(pod) > 0).map(Pod::name_any)
        };
        let pod = wait_until(installation, "a restart of source-controller", restarted).await;
        let log = kubectl(installation, NAMESPACE, &["logs", &pod, "--previous"]).await;
        assert!(log.contains("is in use by another process"), "{log}");
        assert!(log.contains("leader lease released"), "{log}");
        drop(lock);
    }

    /// Returns an artifact of a status with its file.
    fn stored(&self, artifact: Value) -> Stored {
        let file = self.file(&artifact);
        Stored {
            content: fs::read(&file).unwrap(),
            inode: fs::metadata(&file).unwrap().ino(),
            artifact,
        }
    }

    fn file(&self, artifact: &Value) -> PathBuf {
        self.folder.join(artifact["path"].as_str().unwrap())
    }

    /// The kubelet has given the volume to the group of the pod, and the pod, which is not root, has written to it.
    fn check_owner(&self, stored: &Stored) {
        let root = fs::metadata(&self.folder).unwrap();
        assert_eq!((root.uid(), root.gid()), (0, GROUP));
        assert_eq!(root.mode() & GROUP_MODE, GROUP_MODE, "{:o}", root.mode());
        let check = |path: &Path| {
            let file = fs::metadata(path).unwrap();
            assert!(
                file.uid() != 0 && file.gid() == GROUP,
                "{}: {} {}",
                path.display(),
                file.uid(),
                file.gid()
            );
        };
        check(&self.file(&stored.artifact));
        check(&self.folder.join(".mirrors"));
    }
}

/// Requests a reconciliation. Returns the artifact.
async fn poll(installation: &Installation<'_>, tenant: &Tenant<'_>, token: &str) -> Value {
    match tenant.poll_source(token).await {
        Ok(artifact) => artifact,
        Err(error) => panic!("{error}\n{}", installation.describe_pods().await),
    }
}

/// The pods of source-controller.
struct Pods<'i> {
    installation: &'i Installation<'i>,
    api: Api<Pod>,
}

impl<'i> Pods<'i> {
    async fn new(installation: &'i Installation<'i>) -> Self {
        let client = installation.node.client().await.unwrap();
        Self {
            installation,
            api: Api::namespaced(client, NAMESPACE),
        }
    }

    async fn list(&self) -> Vec<Pod> {
        let selected = ListParams::default().labels("app=source-controller");
        self.api.list(&selected).await.unwrap().items
    }

    /// Waits until another pod than `before` is ready. Returns its name.
    async fn wait_until_ready(&self, before: &str) -> String {
        let ready = async || {
            let pods = self.list().await;
            let mut others = pods.iter().filter(|pod| pod.name_any() != before);
            others.find(|pod| is_ready(pod)).map(Pod::name_any)
        };
        wait_until(self.installation, "a pod of source-controller", ready).await
    }
}

/// Returns how often the containers of the pod have started again.
fn restarts(pod: &Pod) -> i32 {
    let containers = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    let containers = containers.into_iter().flatten();
    containers.map(|container| container.restart_count).sum()
}
