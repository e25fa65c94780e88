//! The objects of the load test: repositories, sources, stacks, and the accounts of runs.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::PostParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_harness::cluster::ControlPlane;
use sluice_harness::git::{GitServer, RepositorySet};
use sluice_tests::BoxError;

/// The number of namespaces of sources and stacks.
const NAMESPACES: usize = 10;
/// Their names begin with this.
pub(super) const NAMESPACE_PREFIX: &str = "team-";
/// Number of concurrent creations.
const CONCURRENT_CREATIONS: usize = 16;
/// The account of runs.
const RUNNER: &str = "tf-runner";

/// How many objects there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) stacks: usize,
    pub(super) sources: usize,
    /// The interval of the sources. Stacks have a longer one than the test lasts: a run of drift detection is a new run.
    pub(super) interval: Duration,
}

impl Size {
    fn namespace(self, source: usize) -> String {
        format!("{NAMESPACE_PREFIX}{}", source % self.namespaces())
    }

    fn namespaces(self) -> usize {
        NAMESPACES.min(self.sources)
    }

    fn source(self, number: usize, url: &str) -> Value {
        json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": source_name(number), "namespace": self.namespace(number) },
            "spec": { "url": url, "interval": format!("{}s", self.interval.as_secs()), "ref": { "branch": "main" } } })
    }

    /// Returns a stack. Each second one applies its plans; the others wait for an approval.
    fn stack(self, number: usize) -> Value {
        let source = number % self.sources;
        let approval = if number.is_multiple_of(2) { "auto" } else { "" };
        json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": format!("stack-{number}"), "namespace": self.namespace(source) },
            "spec": { "interval": "24h", "path": "./", "approvePlan": approval,
                "sourceRef": { "kind": "GitRepository", "name": source_name(source) } } })
    }
}

fn source_name(number: usize) -> String {
    format!("source-{number}")
}

/// Creates the repositories. Each has a module of its own, so that no two artifacts are equal.
pub(super) fn repositories(count: usize) -> Result<RepositorySet, BoxError> {
    let module = |number: usize| format!("resource \"terraform_data\" \"it\" {{\n  input = {number}\n}}\n");
    Ok(RepositorySet::create(count, "main.tf", module)?)
}

/// Creates namespaces with an account of runs each, bound to the role of `config`. Returns clients of these accounts.
pub(super) async fn runners(plane: &ControlPlane, size: Size) -> Result<BTreeMap<String, Client>, BoxError> {
    let mut clients = BTreeMap::new();
    for number in 0..size.namespaces() {
        let namespace = size.namespace(number);
        let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": RUNNER, "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "sluice-tf-runner" },
            "subjects": [{ "kind": "ServiceAccount", "name": RUNNER, "namespace": namespace }] });
        let access = plane
            .service_account(&namespace, RUNNER, &binding.to_string())
            .await?;
        clients.insert(namespace, access.client().await?);
    }
    Ok(clients)
}

/// Creates all sources and stacks.
pub(super) async fn create(
    client: &Client,
    size: Size,
    repositories: &RepositorySet,
    server: &GitServer,
) -> Result<(), BoxError> {
    let numbered = repositories.git_dirs().enumerate();
    let sources = numbered.map(|(number, git_dir)| {
        let url = server.serve_git_dir(&source_name(number), &git_dir);
        size.source(number, &url)
    });
    create_all::<GitRepository>(client, sources).await?;
    create_all::<Terraform>(client, (0..size.stacks).map(|number| size.stack(number))).await
}

async fn create_all<K>(client: &Client, objects: impl Iterator<Item = Value>) -> Result<(), BoxError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let creations = objects.map(|object| async move {
        let object: K = serde_json::from_value(object)?;
        let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
        api.create(&PostParams::default(), &object).await?;
        Ok::<_, BoxError>(())
    });
    stream::iter(creations)
        .buffer_unordered(CONCURRENT_CREATIONS)
        .try_collect()
        .await
}
