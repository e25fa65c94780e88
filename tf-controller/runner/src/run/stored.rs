//! Stored plans on the API: written whole before a status names them, loaded whole or not at all, old ones removed after.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{Api, ListParams, PartialObjectMeta, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

use super::context::Context;
use super::error::RunError;
use super::patience::{TIDYING, patiently, remove};
use crate::bundle::{PlanKey, ReadablePlan, Stack};
use crate::plan::store::{self, PlanName, StoredPlan};

fn secrets(context: &Context, stack: &Stack) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &stack.namespace)
}

/// Creates a plan's Secrets, and gives the digest that counts for them. Their names come from their content: one that is there
/// is right, or no plan is loaded from it.
pub(super) async fn save(
    context: &Context,
    plan: &StoredPlan,
    name: &PlanName,
    key: Option<&PlanKey>,
) -> Result<String, RunError> {
    let chunks = store::encode(plan, name, key).map_err(RunError::Save)?;
    let api = secrets(context, &name.stack);
    let params = PostParams::default();
    for chunk in &chunks {
        let created = patiently(context.settings.patience, || api.create(&params, chunk)).await;
        match created {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.map_err(|source| RunError::Api {
                doing: "store the plan",
                source,
            })?),
        }
    }
    Ok(store::digest_of(&chunks))
}

/// Loads the plan that a run made and whose digest it recorded. Chunks of other plans, which may be as large, are not fetched.
pub(super) async fn load(
    context: &Context,
    name: &PlanName,
    recorded: &str,
    keys: &[PlanKey],
) -> Result<StoredPlan, RunError> {
    let api = secrets(context, &name.stack);
    let failed = |source| RunError::Api {
        doing: "load the stored plan",
        source,
    };
    let params = ListParams::default().labels(&store::selector(&name.stack.name, &name.workspace));
    let list = patiently(context.settings.patience, || api.list_metadata(&params)).await;
    let mut chunks = Vec::new();
    for found in list.map_err(failed)?.items {
        if store::is_of(&found.metadata, &name.id, &name.run) {
            let chunk = found.metadata.name.unwrap_or_default();
            chunks.push(
                patiently(context.settings.patience, || api.get(&chunk))
                    .await
                    .map_err(failed)?,
            );
        }
    }
    store::prove(&chunks, name, recorded).map_err(RunError::Load)?;
    store::decode(&chunks, name, keys).map_err(RunError::Load)
}

/// Removes all stored plans of a stack, of whatever workspace, but the one that `keep` made. Failures are only logged: the next plan tries again.
pub(super) async fn forget(context: &Context, stack: &Stack, workspace: &str, keep: Option<&str>) {
    let selector = store::selector_of_all(&stack.name);
    sweep(&secrets(context, stack), &selector, stack, |metadata| {
        let annotations = metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(store::RUN))
            .map(String::as_str)
            == keep
            && keep.is_some()
    })
    .await;
    forget_unlabelled(&secrets(context, stack), stack, workspace).await;
}

/// Removes the plan that an old tofu-controller stored under the fixed name, without labels.
async fn forget_unlabelled(api: &Api<Secret>, stack: &Stack, workspace: &str) {
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
            "an old plan stays for now"
        );
    }
}

fn is_owned(metadata: &ObjectMeta, stack: &Stack) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.uid == stack.uid)
}

/// Writes the readable form that is asked for and removes the others.
pub(super) async fn show(
    context: &Context,
    form: ReadablePlan,
    maps: &[ConfigMap],
    json: &[Secret],
    name: &PlanName,
) -> Result<(), RunError> {
    let namespace = &name.stack.namespace;
    let map_api: Api<ConfigMap> = Api::namespaced(context.client.clone(), namespace);
    let secret_api = secrets(context, &name.stack);
    for map in maps {
        put(context, &map_api, map).await?;
    }
    for secret in json {
        put(context, &secret_api, secret).await?;
    }
    let (map_names, json_names) = (names(maps), names(json));
    let kept =
        |held: &[String], object: Option<&str>| object.is_some_and(|name| held.iter().any(|own| own == name));
    let selector = store::selector_of_all(&name.stack.name);
    if form != ReadablePlan::Human || !maps.is_empty() {
        sweep(&map_api, &selector, &name.stack, |map| {
            kept(&map_names, map.name.as_deref())
        })
        .await;
    }
    let selector = store::selector_of_all(&format!("{}.json", name.stack.name));
    if form != ReadablePlan::Json || !json.is_empty() {
        sweep(&secret_api, &selector, &name.stack, |secret| {
            kept(&json_names, secret.name.as_deref())
        })
        .await;
    }
    Ok(())
}

fn names<K: Resource>(objects: &[K]) -> Vec<String> {
    objects
        .iter()
        .filter_map(|object| object.meta().name.clone())
        .collect()
}

/// Creates or replaces an object under a fixed name.
async fn put<K>(context: &Context, api: &Api<K>, object: &K) -> Result<(), RunError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let (patience, params) = (context.settings.patience, PostParams::default());
    let name = object.meta().name.clone().unwrap_or_default();
    let failed = |source| RunError::Api {
        doing: "store the readable plan",
        source,
    };
    match patiently(patience, || api.create(&params, object)).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        created => return created.map(drop).map_err(failed),
    }
    // Without a resourceVersion: nobody else writes these, and the newest plan wins.
    patiently(patience, || api.replace(&name, &params, object))
        .await
        .map(drop)
        .map_err(failed)
}

/// Removes what the stack owns of the selected. The labels of the plans of a stack `x.json` are those of the JSON of `x`'s.
async fn sweep<K>(api: &Api<K>, selector: &str, stack: &Stack, keep: impl Fn(&ObjectMeta) -> bool)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let params = ListParams::default().labels(selector);
    let list = match patiently(TIDYING, || api.list_metadata(&params)).await {
        Ok(list) => list,
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "old plans stay for now");
            return;
        }
    };
    let superfluous =
        |object: &&PartialObjectMeta<K>| is_owned(&object.metadata, stack) && !keep(&object.metadata);
    for object in list.items.iter().filter(superfluous) {
        let name = object.metadata.name.clone().unwrap_or_default();
        if let Err(error) = remove(api, &name).await {
            tracing::warn!(
                name,
                error = &error as &dyn std::error::Error,
                "an old plan stays for now"
            );
        }
    }
}
