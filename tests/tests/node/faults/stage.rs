//! The node of the trials, with the controllers and a Git server.

use std::sync::Mutex;

use serde_json::json;
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::node::Node;
use sluice_runtime::sync::lock;

use super::Trial;
use super::artifacts::ArtifactGateway;
use super::stack::failure;
use crate::install::{Installation, WAIT_UNTIL_AVAILABLE};
use crate::tenant::account_with_role;

/// The account of the runs.
pub(super) const ACCOUNT: &str = "tf-runner";

/// The images of the controller and of its runs, and their names as those of another version.
pub(super) const VERSIONS: [(&str, &str); 2] = [
    (
        "sluice.invalid/tf-controller:0.1.0",
        "sluice.invalid/tf-controller:next",
    ),
    ("sluice.invalid/tf-runner:0.1.0", "sluice.invalid/tf-runner:next"),
];

/// A node of its own: other tests expect the controllers to live.
pub(super) struct Stage<'n> {
    pub(super) installation: Installation<'n>,
    pub(super) node: &'n Node,
    pub(super) server: GitServer,
    /// The gateway of artifacts for pods.
    pub(super) artifacts: ArtifactGateway,
    /// The address of the Git server for pods.
    address: String,
    /// A trial holds it to read from its beginning to its end, and to write if it takes minutes.
    pub(super) trials: tokio::sync::RwLock<()>,
    /// A trial holds it from the creation of its stack until its fault is over, or until its end if the fault may add no run. Otherwise the
    /// fault of another trial could end the run that this fault must hit, or add one.
    pub(super) fault: tokio::sync::Mutex<()>,
    /// The trials whose fault was caused, in this order.
    caused: Mutex<Vec<Trial>>,
}

impl<'n> Stage<'n> {
    pub(super) async fn start(node: &'n Node) -> Self {
        let artifacts = ArtifactGateway::start(node).await.unwrap();
        let variable = json!([{ "op": "add", "path": "/spec/template/spec/containers/0/env/-",
            "value": { "name": "SOURCE_CONTROLLER_LOCALHOST", "value": artifacts.address } }]);
        let target = json!({ "kind": "Deployment", "name": "tf-controller" });
        let patch = json!({ "target": target, "patch": variable.to_string() });
        let installation = Installation::standalone_with(node, &[patch]).await;
        let server = GitServer::start().await.unwrap();
        let url = server.serve("none", &Repository::create().unwrap());
        let (address, _) = url.trim_start_matches("http://").split_once('/').unwrap();
        let address = node.expose(address.parse().unwrap()).unwrap();
        for (image, next) in VERSIONS {
            node.tag_image(image, next).await.unwrap();
        }
        Self {
            installation,
            node,
            server,
            artifacts,
            address,
            trials: tokio::sync::RwLock::default(),
            fault: tokio::sync::Mutex::default(),
            caused: Mutex::default(),
        }
    }

    /// Serves a repository. Returns its URL for pods.
    pub(super) fn serve(&self, name: &str, repository: &Repository) -> String {
        let url = self.server.serve(name, repository);
        let (_, path) = url.trim_start_matches("http://").split_once('/').unwrap();
        format!("http://{}/{path}", self.address)
    }

    /// Creates the namespace of a trial: a fault of its account or of itself disturbs no other one.
    pub(super) async fn create_namespace(&self, name: &str) -> Result<(), String> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let mut documents = vec![namespace.to_string()];
        documents.extend(account_with_role(name, ACCOUNT).map(|manifest| manifest.to_string()));
        let applied = self.node.apply(&documents.join("\n---\n")).await;
        applied.map_err(failure("create the namespace"))
    }

    /// Waits until the controllers are available: the fault of an earlier trial may still keep them away.
    pub(super) async fn wait_until_available(&self) -> Result<(), String> {
        let waited = self.installation.try_kubectl(&WAIT_UNTIL_AVAILABLE).await;
        waited.map(drop)
    }

    /// Records that the fault of a trial is caused now.
    pub(super) fn record(&self, trial: Trial) {
        lock(&self.caused).push(trial);
    }

    /// Returns the faults that were caused after that of a trial: they disturb it too.
    pub(super) fn faults_after(&self, trial: Trial) -> Vec<String> {
        let caused = lock(&self.caused);
        let own = caused.iter().position(|other| other.number == trial.number);
        let later = own.map_or(&[][..], |own| &caused[own + 1..]);
        later
            .iter()
            .map(|other| format!("{} {:?}", other.number, other.fault))
            .collect()
    }
}
