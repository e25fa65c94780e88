//! Stored plans: written completely before a status names them, loaded completely or not at all, deleted after newer ones are
//! stored.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams, PartialObjectMeta, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_api::run::TerraformRun;
use sluice_tf_core::bundle::{PlanKey, Stack};
use sluice_tf_core::plan::store::{self, PlanName, StoredPlan};

use crate::run::lifecycle::api_retry::{CLEANUP_TIMEOUT, Creation, RetryRule, remove, retry};
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;

/// Creates the Secrets of a plan, and returns their digest.
pub(crate) async fn save(
    context: &Context,
    plan: &StoredPlan,
    name: &PlanName,
    key: Option<&PlanKey>,
) -> Result<String, RunError> {
    let chunks = store::encode(plan, name, key).map_err(RunError::StorePlan)?;
    for chunk in &chunks {
        let created = context.create_if_absent(chunk, RetryRule::Transient).await;
        created.map_err(RunError::api("store the plan"))?;
    }
    Ok(store::digest_of(&chunks))
}

/// Loads the plan of a run, and verifies the digest that the run recorded. Chunks of other plans are not fetched.
pub(crate) async fn load(
    context: &Context,
    name: &PlanName,
    recorded: &str,
    keys: &[PlanKey],
) -> Result<StoredPlan, RunError> {
    let api = context.api();
    let failed = RunError::api("load the stored plan");
    let params = ListParams::default().labels(&store::selector(&name.stack.name, &name.workspace));
    let list = context.retry(|| api.list_metadata(&params)).await;
    let mut chunks = Vec::new();
    for found in list.map_err(failed)?.items {
        if store::is_of_plan(&found.metadata, &name.id, &name.run) {
            let chunk = found.metadata.name.unwrap_or_default();
            chunks.push(context.retry(|| api.get(&chunk)).await.map_err(failed)?);
        }
    }
    store::verify(&chunks, name, recorded).map_err(RunError::LoadPlan)?;
    store::decode(&chunks, name, keys).map_err(RunError::LoadPlan)
}

/// Decides which stored objects of a stack's plans are older than those of a run.
struct OlderPlans<'a> {
    run: &'a TerraformRun,
    name: String,
}

impl<'a> OlderPlans<'a> {
    fn than(run: &'a TerraformRun) -> Self {
        Self {
            name: run.name_any(),
            run,
        }
    }

    /// Whether the run is the first of its stack. Existing objects then belong to another controller or to deleted runs.
    fn is_first(&self) -> bool {
        number(&self.name) == Some(1)
    }

    /// Whether the object is older, by the numbers of the runs: a following run may have stored its plan already.
    fn contains(&self, object: &ObjectMeta) -> bool {
        let stored_by = object.annotations.as_ref().and_then(|all| all.get(store::RUN));
        let stored_by = stored_by.map_or("", String::as_str);
        let is_of_earlier = number(stored_by).is_none_or(|stored_by| Some(stored_by) < number(&self.name));
        let predates_run = object.creation_timestamp < self.run.metadata.creation_timestamp;
        stored_by != self.name && (is_of_earlier || self.is_first() && predates_run)
    }
}

/// The number at the end of a run's name.
fn number(run: &str) -> Option<u64> {
    run.rsplit('-').next()?.parse().ok()
}

/// Deletes the plans of earlier runs of the stack in all workspaces, and their readable forms. With `keeps_json` the JSON
/// stays, because there is no new one. Failures are only logged: the next plan tries again.
pub(crate) async fn delete_older(context: &Context, run: &TerraformRun, name: &PlanName, keeps_json: bool) {
    let (older, stack) = (OlderPlans::than(run), &name.stack);
    let (secrets, json) = (context.api::<Secret>(), format!("{}.json", stack.name));
    let maps = context.api::<ConfigMap>();
    delete_unless(
        &maps,
        &store::selector_of_all_workspaces(&stack.name),
        stack,
        |map| !older.contains(map),
    )
    .await;
    let selector = store::selector_of_names(&[&stack.name, &json]);
    delete_unless(&secrets, &selector, stack, |secret| {
        let is_json = store::has_plan_name(secret, &json);
        !older.contains(secret) || is_json && keeps_json
    })
    .await;
    if older.is_first() {
        delete_unlabelled(&secrets, stack, &name.workspace).await;
    }
}

/// Deletes the plan that an old tofu-controller stored under the fixed name, without labels.
async fn delete_unlabelled(api: &Api<Secret>, stack: &Stack, workspace: &str) {
    let name = store::object_name("tfplan", workspace, &stack.name);
    let Ok(Some(found)) = api.get_metadata_opt(&name).await else {
        return;
    };
    if is_owned(&found.metadata, stack)
        && let Err(error) = remove(api, &name).await
    {
        tracing::warn!(
            name,
            error = &error as &dyn std::error::Error,
            "an old plan cannot be deleted"
        );
    }
}

fn is_owned(metadata: &ObjectMeta, stack: &Stack) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == stack.uid)
}

/// Stores the readable plan.
pub(crate) async fn store_readable(
    context: &Context,
    maps: &[ConfigMap],
    json: &[Secret],
) -> Result<(), RunError> {
    for map in maps {
        create_or_replace(context, map).await?;
    }
    for secret in json {
        create_or_replace(context, secret).await?;
    }
    Ok(())
}

/// Creates or replaces an object under a fixed name.
async fn create_or_replace<K>(context: &Context, object: &K) -> Result<(), RunError>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let (api, params) = (context.api(), PostParams::default());
    let name = object.meta().name.clone().unwrap_or_default();
    let failed = RunError::api("store the readable plan");
    if context
        .create_if_absent(object, RetryRule::Transient)
        .await
        .map_err(failed)?
        == Creation::Created
    {
        return Ok(());
    }
    // Without a resourceVersion: only runs write these objects, and the newest plan wins.
    context
        .retry(|| api.replace(&name, &params, object))
        .await
        .map(drop)
        .map_err(failed)
}

/// Deletes selected objects that the stack owns. The plans of a stack `x.json` and the JSON of the plans of `x` have the same
/// labels.
async fn delete_unless<K>(
    api: &Api<K>,
    selector: &str,
    stack: &Stack,
    is_needed: impl Fn(&ObjectMeta) -> bool,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let params = ListParams::default().labels(selector);
    let list = match retry(CLEANUP_TIMEOUT, || api.list_metadata(&params)).await {
        Ok(list) => list,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "old plans cannot be deleted"
            );
            return;
        }
    };
    let superfluous =
        |object: &&PartialObjectMeta<K>| is_owned(&object.metadata, stack) && !is_needed(&object.metadata);
    for object in list.items.iter().filter(superfluous) {
        let name = object.metadata.name.clone().unwrap_or_default();
        if let Err(error) = remove(api, &name).await {
            tracing::warn!(
                name,
                error = &error as &dyn std::error::Error,
                "an old plan cannot be deleted"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(number: u32) -> TerraformRun {
        let spec = json!({ "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
            "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
            "terraform": { "name": "net", "uid": "u", "generation": 1 } });
        let metadata =
            json!({ "name": format!("net-u-{number}"), "creationTimestamp": "2026-01-02T00:00:00Z" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn is_deleted(of: &str, day: u8, run: &TerraformRun) -> bool {
        let annotations = if of.is_empty() {
            json!({})
        } else {
            json!({ store::RUN: of })
        };
        let created = format!("2026-01-{day:02}T00:00:00Z");
        let object = json!({ "annotations": annotations, "creationTimestamp": created });
        OlderPlans::than(run).contains(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn data_of_earlier_runs_is_deleted_and_of_later_ones_retained() {
        let third = run(3);
        assert!(
            is_deleted("net-u-2", 1, &third)
                && is_deleted("", 1, &third)
                && is_deleted("another-program", 1, &third)
        );
        assert!(
            !is_deleted("net-u-3", 3, &third)
                && !is_deleted("net-u-4", 3, &third)
                && !is_deleted("net-u-10", 3, &third)
        );
    }

    #[test]
    fn the_oldest_known_run_deletes_all_earlier_data() {
        let first = run(1);
        assert!(is_deleted("net-u-7", 1, &first), "somebody deleted that run");
        assert!(!is_deleted("net-u-1", 3, &first) && !is_deleted("net-u-2", 3, &first));
    }
}
