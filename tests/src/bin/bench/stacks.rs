//! Stacks on the API, and waiting for them. Times are taken from the watch, not from a poll.

use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use sluice_harness::git::Repository;
use sluice_tests::Failed;
use std::{ops::Range, time::Duration};

/// Longest wait for one stack.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest wait for all of them.
const LONG: Duration = Duration::from_secs(60 * 60);
/// Objects that are created at once.
const AT_ONCE: usize = 16;

/// Twenty resources and two outputs.
pub(crate) const TWENTY: &str = "resource \"terraform_data\" \"it\" {\n  count = 20\n  input = count.index\n}\n\
    output \"ids\" {\n  value = terraform_data.it[*].id\n}\noutput \"count\" {\n  value = length(terraform_data.it)\n}\n";

/// The same number of resources, each of which takes a second to make, as those of a service do at least.
pub(crate) const SLOW: &str = "resource \"terraform_data\" \"it\" {\n  count = 20\n  input = count.index\n  provisioner \"local-exec\" {\n    \
    command = \"sleep 1\"\n  }\n}\n";

/// The modules of the stacks that are measured one by one: the folder, and what is in it.
pub(crate) const SINGLE: [(&str, &str); 2] = [("single", TWENTY), ("slow", SLOW)];

/// The repository: the modules of the single stacks, and `count` small ones for the many.
pub(crate) fn write(repository: &Repository, count: usize) -> Result<(), Failed> {
    for (folder, module) in SINGLE {
        repository.write(&format!("{folder}/main.tf"), module)?;
    }
    for number in 0..count {
        let text = format!("resource \"terraform_data\" \"it\" {{\n  input = {number}\n}}\n");
        repository.write(&format!("many/{number}/main.tf"), text)?;
    }
    repository.commit("Stacks")?;
    Ok(())
}

/// The source of all stacks.
pub(crate) fn source(url: &str) -> Value {
    json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "bench", "namespace": "default" },
        "spec": { "url": url, "interval": "2s", "ref": { "branch": "main" } } })
}

/// The stacks of the benchmark.
pub(crate) struct Stacks {
    stacks: Api<DynamicObject>,
    runs: Api<DynamicObject>,
}

impl Stacks {
    pub(crate) fn new(client: &Client) -> Self {
        let api = |group: &str, version: &str, kind: &str| {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            Api::namespaced_with(client.clone(), "default", &resource)
        };
        Self {
            stacks: api("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"),
            runs: api("infra.sluice.dev", "v1alpha1", "TerraformRun"),
        }
    }

    pub(crate) async fn create(&self, name: &str, path: &str) -> Result<(), Failed> {
        let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": name },
            "spec": { "interval": "24h", "path": path, "approvePlan": "auto",
                "sourceRef": { "kind": "GitRepository", "name": "bench" } } });
        self.stacks
            .create(&PostParams::default(), &serde_json::from_value(stack)?)
            .await?;
        Ok(())
    }

    /// Waits until a stack is ready.
    pub(crate) async fn ready(&self, name: &str) -> Result<(), Failed> {
        self.until(name, is_ready).await
    }

    /// Asks for a look, and waits until it was taken.
    pub(crate) async fn request(&self, name: &str) -> Result<(), Failed> {
        let body = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": name } } });
        self.stacks
            .patch(name, &PatchParams::default(), &Patch::Merge(body))
            .await?;
        self.until(name, |stack| {
            stack.data["status"]["lastHandledReconcileAt"] == stack.name_any()
        })
        .await
    }

    async fn until(&self, name: &str, holds: impl Fn(&DynamicObject) -> bool) -> Result<(), Failed> {
        let met = await_condition(self.stacks.clone(), name, |stack: Option<&DynamicObject>| {
            stack.is_some_and(&holds)
        });
        let met = tokio::time::timeout(PATIENCE, met).await;
        met.map_err(|_| format!("{name} never came to it"))??;
        Ok(())
    }

    /// Creates stacks of the small modules, of which there are so many, and waits until all are applied.
    pub(crate) async fn create_many(&self, numbers: Range<usize>, modules: usize) -> Result<(), Failed> {
        let folder = |number: usize| format!("many/{}", number % modules);
        let all = numbers
            .clone()
            .map(|number| async move { self.create(&many(number), &folder(number)).await });
        stream::iter(all)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        let names: Vec<_> = numbers.map(many).collect();
        self.all(|stack| is_ready(stack) || !names.contains(&stack.name_any()))
            .await
    }

    /// Waits until all stacks have tried this commit.
    pub(crate) async fn all_tried(&self, commit: &str) -> Result<(), Failed> {
        let tried = |stack: &DynamicObject| {
            let revision = stack.data["status"]["lastAttemptedRevision"].as_str();
            revision.is_some_and(|revision| revision.ends_with(commit))
        };
        self.all(tried).await
    }

    async fn all(&self, holds: impl Fn(&DynamicObject) -> bool) -> Result<(), Failed> {
        let waiting = async {
            while !self
                .stacks
                .list(&ListParams::default())
                .await?
                .items
                .iter()
                .all(&holds)
            {
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            Ok::<_, kube::Error>(())
        };
        Ok(tokio::time::timeout(LONG, waiting).await??)
    }

    /// How many runs there are.
    pub(crate) async fn runs(&self) -> Result<usize, Failed> {
        Ok(self.runs.list(&ListParams::default()).await?.items.len())
    }
}

fn many(number: usize) -> String {
    format!("many{number}x")
}

fn is_ready(stack: &DynamicObject) -> bool {
    let conditions = stack.data["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}
