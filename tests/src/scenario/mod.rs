//! The main scenario of Sluice: a commit becomes an artifact, the artifact a plan, the approved plan an apply with outputs, and a
//! deletion a destroy. `make demo` shows it and the suites check it, on either API.

mod stack;
mod wait;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_harness::git::Repository;
pub use stack::{Commit, NAME, NAMESPACE, manifests, manifests_with_fast_retry};
pub use wait::{ScenarioError, retry, wait_for, wait_until_gone};

/// Timeout of a step, far above its normal duration.
pub const TIMEOUT: Duration = Duration::from_mins(4);

/// The scenario on one API.
pub struct Scenario {
    client: Client,
}

/// A TerraformRun.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// `Plan`, `Apply`, …
    pub action: String,
    /// Its trigger.
    pub trigger: String,
    /// Its phase.
    pub phase: String,
    /// The id of the stored plan to apply.
    pub plan: String,
    /// Whether the CLI's apply was started.
    pub attempted_apply: bool,
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

impl Scenario {
    /// Creates a scenario on the API of this client.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, resource)
    }

    /// Returns the API of Terraform objects.
    #[must_use]
    pub fn stacks(&self) -> Api<DynamicObject> {
        self.api(&resource("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"))
    }

    /// Returns the API of GitRepository objects.
    #[must_use]
    pub fn sources(&self) -> Api<DynamicObject> {
        self.api(&resource("source.toolkit.fluxcd.io", "v1", "GitRepository"))
    }

    /// Returns the API of TerraformRun objects.
    #[must_use]
    pub fn runs_api(&self) -> Api<DynamicObject> {
        self.api(&resource("infra.sluice.dev", "v1alpha1", "TerraformRun"))
    }

    /// Creates source and stack, as `kubectl create` does.
    ///
    /// # Errors
    /// When the API refuses, or a manifest is invalid.
    pub async fn create(&self, [source, stack]: &[Value; 2]) -> Result<(), ScenarioError> {
        for (api, manifest) in [(self.sources(), source), (self.stacks(), stack)] {
            let object: DynamicObject = serde_json::from_value(manifest.clone())
                .map_err(|error| ScenarioError::Invalid(error.to_string()))?;
            api.create(&PostParams::default(), &object).await?;
        }
        Ok(())
    }

    /// Commits and waits until the source has the new revision.
    ///
    /// # Errors
    /// When git fails, or the source does not have it in time.
    pub async fn push(&self, repository: &Repository, commit: Commit) -> Result<String, ScenarioError> {
        let hash = commit.create(repository)?;
        let revision = format!("main@sha1:{hash}");
        wait_for(
            &self.sources(),
            NAME,
            "the new revision in status.artifact",
            |object| object.pointer("/status/artifact/revision") == Some(&json!(revision)),
        )
        .await?;
        Ok(revision)
    }

    /// Waits for a pending plan other than `before`; returns its id.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn wait_for_plan(&self, before: Option<&str>) -> Result<String, ScenarioError> {
        let pending = |object: &Value| {
            let id = object
                .pointer("/status/plan/pending")
                .and_then(Value::as_str)
                .unwrap_or_default();
            (!id.is_empty() && Some(id) != before).then(|| id.to_owned())
        };
        let object = wait_for(&self.stacks(), NAME, "a plan that waits for approval", |o| {
            pending(o).is_some()
        })
        .await?;
        Ok(pending(&object).unwrap_or_default())
    }

    /// Writes the approval into the spec, as `kubectl patch` does.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn approve(&self, plan_id: &str) -> Result<(), ScenarioError> {
        let patch: Patch<Value> = Patch::Merge(json!({ "spec": { "approvePlan": plan_id } }));
        let (stacks, params) = (self.stacks(), PatchParams::default());
        retry(|| stacks.patch(NAME, &params, &patch)).await.map(drop)
    }

    /// Waits until this revision is applied and the stack is Ready.
    ///
    /// # Errors
    /// When it is not applied in time.
    pub async fn wait_until_applied(&self, revision: &str) -> Result<(), ScenarioError> {
        wait_for(
            &self.stacks(),
            NAME,
            "the revision applied and Ready=True",
            |object| {
                object.pointer("/status/lastAppliedRevision") == Some(&json!(revision)) && is_ready(object)
            },
        )
        .await?;
        Ok(())
    }

    /// Waits until this revision is applied and approves every pending plan: faults may cause an additional plan.
    ///
    /// # Errors
    /// When it is not applied in time.
    pub async fn approve_until_applied(&self, revision: &str) -> Result<(), ScenarioError> {
        let applied = |object: &Value| {
            object.pointer("/status/lastAppliedRevision") == Some(&json!(revision)) && is_ready(object)
        };
        let pending_plan = |object: &Value| {
            let pending = object.pointer("/status/plan/pending").and_then(Value::as_str);
            let approved = object.pointer("/spec/approvePlan").and_then(Value::as_str);
            pending
                .filter(|id| !id.is_empty() && Some(*id) != approved)
                .map(str::to_owned)
        };
        loop {
            let what = "the revision applied, or a plan that waits for approval";
            let object = wait_for(&self.stacks(), NAME, what, |o| {
                applied(o) || pending_plan(o).is_some()
            })
            .await?;
            match pending_plan(&object) {
                Some(plan) => self.approve(&plan).await?,
                None => return Ok(()),
            }
        }
    }

    /// Returns the Terraform state of the kubernetes backend.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn state(&self) -> Result<Value, ScenarioError> {
        let api: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = retry(|| api.get("tfstate-default-app")).await?;
        let packed = secret.data.and_then(|mut data| data.remove("tfstate"));
        let packed = packed.map(|bytes| bytes.0).unwrap_or_default();
        serde_json::from_reader(flate2::read::GzDecoder::new(packed.as_slice()))
            .map_err(|error| ScenarioError::Invalid(format!("the Terraform state: {error}")))
    }

    /// Returns the names of all Secrets.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn secrets(&self) -> Result<Vec<String>, ScenarioError> {
        let api: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let all = ListParams::default();
        let list = retry(|| api.list(&all)).await?;
        Ok(list
            .items
            .into_iter()
            .filter_map(|secret| secret.metadata.name)
            .collect())
    }

    /// Waits until the stack has attempted this revision.
    ///
    /// # Errors
    /// When it has not in time.
    pub async fn wait_until_attempted(&self, revision: &str) -> Result<(), ScenarioError> {
        wait_for(&self.stacks(), NAME, "the revision attempted", |object| {
            object.pointer("/status/lastAttemptedRevision") == Some(&json!(revision))
        })
        .await?;
        Ok(())
    }

    /// Returns the data of the outputs Secret as text.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn outputs(&self) -> Result<BTreeMap<String, String>, ScenarioError> {
        let api: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = retry(|| api.get("app-outputs")).await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(secret
            .data
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key, text(value.0)))
            .collect())
    }

    /// Returns all runs, oldest first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn runs(&self) -> Result<Vec<Run>, ScenarioError> {
        let (api, all) = (self.runs_api(), ListParams::default());
        let list = retry(|| api.list(&all)).await?;
        let text = |o: &DynamicObject, at: &str| {
            o.data
                .pointer(at)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let mut runs: Vec<_> = list
            .items
            .iter()
            .map(|o| Run {
                name: o.metadata.name.clone().unwrap_or_default(),
                action: text(o, "/spec/action"),
                trigger: text(o, "/spec/trigger"),
                phase: text(o, "/status/phase"),
                plan: text(o, "/spec/plan/id"),
                attempted_apply: o.data.pointer("/status/attemptedApply") == Some(&Value::Bool(true)),
            })
            .collect();
        let sequence = |run: &Run| run.name.rsplit('-').next().and_then(|n| n.parse::<u64>().ok());
        runs.sort_by_key(sequence);
        Ok(runs)
    }

    /// Deletes the stack and waits until it is gone; with `destroyResourcesOnDeletion`, after a destroy.
    ///
    /// # Errors
    /// When it is not gone in time.
    pub async fn delete_stack(&self) -> Result<(), ScenarioError> {
        delete(&self.stacks()).await
    }

    /// Deletes the source and waits until it is gone.
    ///
    /// # Errors
    /// When it is not gone in time.
    pub async fn delete_source(&self) -> Result<(), ScenarioError> {
        delete(&self.sources()).await
    }
}

/// Deletes an object and waits. A repeated deletion may find nothing.
async fn delete(api: &Api<DynamicObject>) -> Result<(), ScenarioError> {
    let params = DeleteParams::default();
    match retry(|| api.delete(NAME, &params)).await {
        Err(ScenarioError::Api(kube::Error::Api(status))) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => wait_until_gone(api, NAME).await,
    }
}

fn is_ready(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}
