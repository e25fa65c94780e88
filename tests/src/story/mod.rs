//! The story that Sluice is for, as a program: a commit becomes an artifact, the artifact a plan, the plan, once
//! approved, an apply with outputs, a deletion a destroy. `make demo` shows it, the suites judge by it, on either API.

mod stack;
mod wait;

pub use stack::{Commit, NAME, NAMESPACE, impatient_manifests, manifests};
pub use wait::{StoryError, persist, until, until_gone};

use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
};
use serde_json::{Value, json};
use sluice_harness::git::Repository;
use std::{collections::BTreeMap, time::Duration};

/// How long any one step may take. Far more than it does: a step that takes this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// One telling of the story, against one API.
pub struct Story {
    client: Client,
}

/// A run as the story looks at it.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// `Plan`, `Apply`, …
    pub action: String,
    /// What caused it.
    pub trigger: String,
    /// Its last phase.
    pub phase: String,
    /// The stored plan that it applied or was to apply.
    pub plan: String,
    /// Whether the CLI's apply was started.
    pub attempted_apply: bool,
}

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

impl Story {
    /// A story on the API behind this client.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), NAMESPACE, resource)
    }

    /// The Terraform objects.
    #[must_use]
    pub fn stacks(&self) -> Api<DynamicObject> {
        self.api(&resource("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"))
    }

    /// The GitRepository objects.
    #[must_use]
    pub fn sources(&self) -> Api<DynamicObject> {
        self.api(&resource("source.toolkit.fluxcd.io", "v1", "GitRepository"))
    }

    /// The TerraformRun objects.
    #[must_use]
    pub fn runs_api(&self) -> Api<DynamicObject> {
        self.api(&resource("infra.sluice.dev", "v1alpha1", "TerraformRun"))
    }

    /// Makes the story's objects, as `kubectl create` does.
    ///
    /// # Errors
    /// When the API refuses, or a manifest is no object.
    pub async fn make(&self, [source, stack]: &[Value; 2]) -> Result<(), StoryError> {
        for (api, manifest) in [(self.sources(), source), (self.stacks(), stack)] {
            let object: DynamicObject = serde_json::from_value(manifest.clone())
                .map_err(|error| StoryError::Unreadable(error.to_string()))?;
            api.create(&PostParams::default(), &object).await?;
        }
        Ok(())
    }

    /// Commits and waits until the source shows the new revision.
    ///
    /// # Errors
    /// When git fails, or the source does not show it in time.
    pub async fn push(&self, repository: &Repository, commit: Commit) -> Result<String, StoryError> {
        let hash = commit.make(repository)?;
        let wanted = format!("main@sha1:{hash}");
        until(
            &self.sources(),
            NAME,
            "the new revision in status.artifact",
            |object| object.pointer("/status/artifact/revision") == Some(&json!(wanted)),
        )
        .await?;
        Ok(wanted)
    }

    /// Waits until a plan waits for approval that differs from `before`, and returns its id.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn pending_plan(&self, before: Option<&str>) -> Result<String, StoryError> {
        let pending = |object: &Value| {
            let id = object
                .pointer("/status/plan/pending")
                .and_then(Value::as_str)
                .unwrap_or_default();
            (!id.is_empty() && Some(id) != before).then(|| id.to_owned())
        };
        let object = until(&self.stacks(), NAME, "a plan that waits for approval", |o| {
            pending(o).is_some()
        })
        .await?;
        Ok(pending(&object).unwrap_or_default())
    }

    /// Writes the approval into the spec, as `kubectl patch` does.
    ///
    /// # Errors
    /// When the API refuses.
    pub async fn approve(&self, plan_id: &str) -> Result<(), StoryError> {
        let patch: Patch<Value> = Patch::Merge(json!({ "spec": { "approvePlan": plan_id } }));
        let (stacks, params) = (self.stacks(), PatchParams::default());
        persist(|| stacks.patch(NAME, &params, &patch)).await.map(drop)
    }

    /// Waits until this revision is applied and the stack is Ready.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn applied(&self, revision: &str) -> Result<(), StoryError> {
        until(
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

    /// Waits until this revision is applied, approving whatever plan asks for it on the way: after a fault there may be
    /// one more than without.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn see_through(&self, revision: &str) -> Result<(), StoryError> {
        let applied = |object: &Value| {
            object.pointer("/status/lastAppliedRevision") == Some(&json!(revision)) && is_ready(object)
        };
        let asking = |object: &Value| {
            let pending = object.pointer("/status/plan/pending").and_then(Value::as_str);
            let given = object.pointer("/spec/approvePlan").and_then(Value::as_str);
            pending
                .filter(|id| !id.is_empty() && Some(*id) != given)
                .map(str::to_owned)
        };
        loop {
            let what = "the revision applied, or a plan that waits for approval";
            let object = until(&self.stacks(), NAME, what, |o| applied(o) || asking(o).is_some()).await?;
            match asking(&object) {
                Some(plan) => self.approve(&plan).await?,
                None => return Ok(()),
            }
        }
    }

    /// The Terraform state, as the kubernetes backend keeps it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn state(&self) -> Result<Value, StoryError> {
        let api: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = persist(|| api.get("tfstate-default-app")).await?;
        let packed = secret.data.and_then(|mut data| data.remove("tfstate"));
        let packed = packed.map(|bytes| bytes.0).unwrap_or_default();
        serde_json::from_reader(flate2::read::GzDecoder::new(packed.as_slice()))
            .map_err(|error| StoryError::Unreadable(format!("the Terraform state: {error}")))
    }

    /// The names of all Secrets.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn secrets(&self) -> Result<Vec<String>, StoryError> {
        let api: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let everything = ListParams::default();
        let list = persist(|| api.list(&everything)).await?;
        Ok(list
            .items
            .into_iter()
            .filter_map(|secret| secret.metadata.name)
            .collect())
    }

    /// Waits until the stack has looked at this revision.
    ///
    /// # Errors
    /// When it has not in time.
    pub async fn attempted(&self, revision: &str) -> Result<(), StoryError> {
        until(&self.stacks(), NAME, "the revision attempted", |object| {
            object.pointer("/status/lastAttemptedRevision") == Some(&json!(revision))
        })
        .await?;
        Ok(())
    }

    /// The data of the outputs Secret, as text.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn outputs(&self) -> Result<BTreeMap<String, String>, StoryError> {
        let api: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = persist(|| api.get("app-outputs")).await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(secret
            .data
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key, text(value.0)))
            .collect())
    }

    /// All runs so far, oldest first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn runs(&self) -> Result<Vec<Run>, StoryError> {
        let (api, everything) = (self.runs_api(), ListParams::default());
        let list = persist(|| api.list(&everything)).await?;
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

    /// Deletes the stack and waits until it is gone: with `destroyResourcesOnDeletion`, a destroy has run by then.
    ///
    /// # Errors
    /// When it is not gone in time.
    pub async fn delete_stack(&self) -> Result<(), StoryError> {
        delete(&self.stacks()).await
    }

    /// Deletes the source and waits until it is gone.
    ///
    /// # Errors
    /// When it is not gone in time.
    pub async fn delete_source(&self) -> Result<(), StoryError> {
        delete(&self.sources()).await
    }
}

/// Deletes and waits. A deletion that is sent twice finds nothing the second time.
async fn delete(api: &Api<DynamicObject>) -> Result<(), StoryError> {
    let params = DeleteParams::default();
    match persist(|| api.delete(NAME, &params)).await {
        Err(StoryError::Api(kube::Error::Api(status))) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => until_gone(api, NAME).await,
    }
}

fn is_ready(object: &Value) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}
