//! The node of the trials, with the controllers and a Git server.

use sluice_harness::git::{GitServer, Repository};
use sluice_harness::node::Node;
use tokio::sync::{Mutex, OnceCell};

use crate::install::Installation;
use crate::tenant::account_with_role;

/// The namespace of all trials.
pub(super) const NAMESPACE: &str = "faults";

/// A node of its own: other tests expect the controllers to live.
pub(super) struct Stage {
    pub(super) installation: Installation,
    pub(super) node: &'static Node,
    server: GitServer,
    /// The address of the Git server for pods.
    address: String,
    /// Held while a fault lasts: two of them at once could be one that nobody asked for.
    pub(super) fault: Mutex<()>,
}

impl Stage {
    pub(super) async fn start() -> Self {
        static NODE: OnceCell<Node> = OnceCell::const_new();
        let node = NODE.get_or_try_init(Node::start).await.unwrap();
        let installation = Installation::standalone(node).await;
        let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}");
        node.apply(&namespace).await.unwrap();
        for manifest in account_with_role(NAMESPACE, "tf-runner") {
            node.apply(&manifest.to_string()).await.unwrap();
        }
        let server = GitServer::start().await.unwrap();
        let url = server.serve("none", &Repository::create().unwrap());
        let (address, _) = url.trim_start_matches("http://").split_once('/').unwrap();
        let address = node.expose(address.parse().unwrap()).unwrap();
        Self {
            installation,
            node,
            server,
            address,
            fault: Mutex::default(),
        }
    }

    /// Serves a repository. Returns its URL for pods.
    pub(super) fn serve(&self, name: &str, repository: &Repository) -> String {
        let url = self.server.serve(name, repository);
        let (_, path) = url.trim_start_matches("http://").split_once('/').unwrap();
        format!("http://{}/{path}", self.address)
    }
}
