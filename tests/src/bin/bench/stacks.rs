//! Creates stacks and waits for them, by watches rather than polling, so that durations are exact.

use std::ops::Range;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use sluice_harness::git::Repository;
use sluice_tests::BoxError;

/// Timeout for one stack.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Timeout for all stacks.
const TOTAL_TIMEOUT: Duration = Duration::from_hours(1);
/// Number of concurrent creations.
const CONCURRENT_CREATIONS: usize = 16;

/// Twenty resources and two outputs.
pub(crate) const TWENTY_RESOURCES: &str = "resource \"terraform_data\" \"it\" {\n  count = 20\n  input = count.index\n}\n\
    output \"ids\" {\n  value = terraform_data.it[*].id\n}\noutput \"count\" {\n  value = length(terraform_data.it)\n}\n";

/// Twenty resources that take a second each to create, as real ones do at least.
pub(crate) const SLOW: &str = "resource \"terraform_data\" \"it\" {\n  count = 20\n  input = count.index\n  provisioner \"local-exec\" {\n    \
    command = \"sleep 1\"\n  }\n}\n";

/// The modules of the single stacks: folder and content.
pub(crate) const SINGLE_STACKS: [(&str, &str); 2] = [("single", TWENTY_RESOURCES), ("slow", SLOW)];

/// Writes the repository: the modules of the single stacks, and `count` small ones.
pub(crate) fn write(repository: &Repository, count: usize) -> Result<(), BoxError> {
    for (folder, module) in SINGLE_STACKS {
        repository.write(&format!("{folder}/main.tf"), module)?;
    }
    for number in 0..count {
        let text = format!("resource \"terraform_data\" \"it\" {{\n  input = {number}\n}}\n");
        repository.write(&format!("many/{number}/main.tf"), text)?;
    }
    repository.commit("Stacks")?;
    Ok(())
}

/// Returns the source of all stacks.
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

    pub(crate) async fn create(&self, name: &str, path: &str) -> Result<(), BoxError> {
        self.create_with_environment(name, path, &[]).await
    }

    /// Creates a stack whose runs have these variables in their environment.
    pub(crate) async fn create_with_environment(
        &self,
        name: &str,
        path: &str,
        environment: &[(&str, String)],
    ) -> Result<(), BoxError> {
        let mut stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": name },
            "spec": { "interval": "24h", "path": path, "approvePlan": "auto",
                "sourceRef": { "kind": "GitRepository", "name": "bench" } } });
        if !environment.is_empty() {
            let variables = environment.iter();
            let variables = variables.map(|(name, value)| json!({ "name": name, "value": value }));
            stack["spec"]["runnerPodTemplate"] = json!({ "spec": { "env": variables.collect::<Vec<_>>() } });
        }
        self.stacks
            .create(&PostParams::default(), &serde_json::from_value(stack)?)
            .await?;
        Ok(())
    }

    /// Waits until a stack is Ready.
    pub(crate) async fn wait_until_ready(&self, name: &str) -> Result<(), BoxError> {
        self.wait_for(name, is_ready).await
    }

    /// Requests the first reconciliation and waits until it is handled.
    pub(crate) async fn request(&self, name: &str) -> Result<(), BoxError> {
        self.request_with(name, name).await
    }

    /// Requests a reconciliation with this token and waits until it is handled.
    pub(crate) async fn request_with(&self, name: &str, token: &str) -> Result<(), BoxError> {
        let body = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": token } } });
        self.stacks
            .patch(name, &PatchParams::default(), &Patch::Merge(body))
            .await?;
        self.wait_for(name, |stack| {
            stack.data["status"]["lastHandledReconcileAt"] == token
        })
        .await
    }

    /// Returns the time from the first step to the plan of a stack's newest run.
    pub(crate) async fn start_of_last_run(&self, name: &str) -> Result<Duration, BoxError> {
        let params = ListParams::default().labels(&format!("infra.sluice.dev/terraform={name}"));
        let runs = self.runs.list(&params).await?.items;
        let number = |run: &DynamicObject| {
            let name = run.name_any();
            let number = name.rsplit('-').next().map(str::parse::<u64>);
            number.and_then(Result::ok)
        };
        let newest = runs.iter().max_by_key(|run| number(run));
        let newest = newest.ok_or_else(|| format!("{name} has no run"))?;
        let steps = newest.data["status"]["steps"].as_array();
        let steps = steps.map(Vec::as_slice).unwrap_or_default();
        let since = |step: Option<&Value>| -> Result<MicroTime, BoxError> {
            let step = step.ok_or_else(|| format!("a step of {name} is missing"))?;
            Ok(serde_json::from_value(step["since"].clone())?)
        };
        let began = since(steps.first())?;
        let planned = since(steps.iter().find(|step| step["phase"] == "Planning"))?;
        Ok(planned.0.duration_since(began.0).unsigned_abs())
    }

    async fn wait_for(&self, name: &str, condition: impl Fn(&DynamicObject) -> bool) -> Result<(), BoxError> {
        let result = await_condition(self.stacks.clone(), name, |stack: Option<&DynamicObject>| {
            stack.is_some_and(&condition)
        });
        let result = tokio::time::timeout(TIMEOUT, result).await;
        result.map_err(|_| format!("timeout: {name}"))??;
        Ok(())
    }

    /// Creates stacks from `modules` small modules and waits until all are applied.
    pub(crate) async fn create_many(&self, numbers: Range<usize>, modules: usize) -> Result<(), BoxError> {
        let folder = |number: usize| format!("many/{}", number % modules);
        let all = numbers
            .clone()
            .map(|number| async move { self.create(&stack_name(number), &folder(number)).await });
        stream::iter(all)
            .buffer_unordered(CONCURRENT_CREATIONS)
            .try_collect::<()>()
            .await?;
        let names: Vec<_> = numbers.map(stack_name).collect();
        self.wait_for_all(|stack| is_ready(stack) || !names.contains(&stack.name_any()))
            .await
    }

    /// Waits until all stacks have attempted this commit.
    pub(crate) async fn wait_until_all_attempted(&self, commit: &str) -> Result<(), BoxError> {
        let attempted = |stack: &DynamicObject| {
            let revision = stack.data["status"]["lastAttemptedRevision"].as_str();
            revision.is_some_and(|revision| revision.ends_with(commit))
        };
        self.wait_for_all(attempted).await
    }

    async fn wait_for_all(&self, condition: impl Fn(&DynamicObject) -> bool) -> Result<(), BoxError> {
        let waiting = async {
            while !self
                .stacks
                .list(&ListParams::default())
                .await?
                .items
                .iter()
                .all(&condition)
            {
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            Ok::<_, kube::Error>(())
        };
        Ok(tokio::time::timeout(TOTAL_TIMEOUT, waiting).await??)
    }

    /// How many runs there are.
    pub(crate) async fn runs(&self) -> Result<usize, BoxError> {
        Ok(self.runs.list(&ListParams::default()).await?.items.len())
    }
}

/// Returns the name of one of the many stacks.
pub(crate) fn stack_name(number: usize) -> String {
    format!("many{number}x")
}

fn is_ready(stack: &DynamicObject) -> bool {
    let conditions = stack.data["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}
