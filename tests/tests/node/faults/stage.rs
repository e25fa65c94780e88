//! The node of the trials, with the controllers and a Git server.

use serde_json::json;
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::node::Node;
use tokio::sync::{Mutex, OnceCell};

use crate::install::Installation;
use crate::tenant::account_with_role;

/// The account of the runs.
pub(super) const ACCOUNT: &str = "tf-runner";

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

    /// Creates the namespace of a trial: a fault of its account or of itself disturbs no other one.
    pub(super) async fn create_namespace(&self, name: &str) -> Result<(), String> {
        // The API server may be away for the fault of the other trial.
        let _no_fault = self.fault.lock().await;
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let mut documents = vec![namespace.to_string()];
        documents.extend(account_with_role(name, ACCOUNT).map(|manifest| manifest.to_string()));
        let applied = self.node.apply(&documents.join("\n---\n")).await;
        applied.map_err(|error| error.to_string())
    }
}
