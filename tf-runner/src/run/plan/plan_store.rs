//! Stored plans on the API: written whole before a status names them, loaded whole or not at all, old ones removed after.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams, PartialObjectMeta, PostParams};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_api::run::TerraformRun;
use std::fmt::Debug;

use crate::run::lifecycle::api_retry::{TIDYING, patiently, remove};
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use sluice_tf_core::bundle::{PlanKey, Stack};
use sluice_tf_core::plan::store::{self, PlanName, StoredPlan};

fn secrets(context: &Context, stack: &Stack) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &stack.namespace)
}

/// Creates a plan's Secrets, and gives the digest that counts for them. Their names come from their content: one that is there
/// is right, or no plan is loaded from it.
pub(crate) async fn save(
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
pub(crate) async fn load(
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
        if store::is_of_plan(&found.metadata, &name.id, &name.run) {
            let chunk = found.metadata.name.unwrap_or_default();
            chunks.push(
                patiently(context.settings.patience, || api.get(&chunk))
                    .await
                    .map_err(failed)?,
            );
        }
    }
    store::verify(&chunks, name, recorded).map_err(RunError::Load)?;
    store::decode(&chunks, name, keys).map_err(RunError::Load)
}

/// Which of the objects that are stored of a stack's plans are older than those of a run.
struct Older<'a> {
    run: &'a TerraformRun,
    name: String,
}

impl<'a> Older<'a> {
    fn than(run: &'a TerraformRun) -> Self {
        Self {
            name: run.name_any(),
            run,
        }
    }

    /// Whether the run is the first that is known of its stack. What is there may be another program's, or of runs that somebody
    /// deleted.
    fn is_first(&self) -> bool {
        number(&self.name) == Some(1)
    }

    /// Whether an object goes. By the numbers of the runs: should the API have been away for so long that another run follows already,
    /// what that one stores stays.
    fn holds(&self, object: &ObjectMeta) -> bool {
        let made_by = object.annotations.as_ref().and_then(|all| all.get(store::RUN));
        let made_by = made_by.map_or("", String::as_str);
        let is_of_earlier = number(made_by).is_none_or(|made_by| Some(made_by) < number(&self.name));
        let is_from_before = object.creation_timestamp < self.run.metadata.creation_timestamp;
        made_by != self.name && (is_of_earlier || self.is_first() && is_from_before)
    }
}

/// The number at the end of a run's name.
fn number(run: &str) -> Option<u64> {
    run.rsplit('-').next()?.parse().ok()
}

/// Removes what earlier runs stored of plans of the stack, of whatever workspace, and their readable forms. `json_stays`: no new JSON
/// takes the place of the one that is there. Failures are only logged: the next plan tries again.
pub(crate) async fn forget(context: &Context, run: &TerraformRun, name: &PlanName, json_stays: bool) {
    let (older, stack) = (Older::than(run), &name.stack);
    let (secrets, json) = (secrets(context, stack), format!("{}.json", stack.name));
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &stack.namespace);
    sweep(
        &maps,
        &store::selector_of_all_workspaces(&stack.name),
        stack,
        |map| !older.holds(map),
    )
    .await;
    let selector = store::selector_of_names(&[&stack.name, &json]);
    sweep(&secrets, &selector, stack, |secret| {
        let is_json = store::has_plan_name(secret, &json);
        !older.holds(secret) || is_json && json_stays
    })
    .await;
    if older.is_first() {
        forget_unlabelled(&secrets, stack, &name.workspace).await;
    }
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

/// Writes the readable form that is asked for.
pub(crate) async fn show(
    context: &Context,
    maps: &[ConfigMap],
    json: &[Secret],
    name: &PlanName,
) -> Result<(), RunError> {
    let map_api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &name.stack.namespace);
    let secret_api = secrets(context, &name.stack);
    for map in maps {
        put(context, &map_api, map).await?;
    }
    for secret in json {
        put(context, &secret_api, secret).await?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(number: u32) -> TerraformRun {
        let spec = json!({ "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
            "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
            "terraform": { "name": "net", "uid": "u", "generation": 1 } });
        let metadata =
            json!({ "name": format!("net-u-{number}"), "creationTimestamp": "2026-01-02T00:00:00Z" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    fn goes(of: &str, day: u8, run: &TerraformRun) -> bool {
        let annotations = if of.is_empty() {
            json!({})
        } else {
            json!({ store::RUN: of })
        };
        let created = format!("2026-01-{day:02}T00:00:00Z");
        let object = json!({ "annotations": annotations, "creationTimestamp": created });
        Older::than(run).holds(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn what_earlier_runs_stored_goes_and_what_a_later_one_stores_stays() {
        let third = run(3);
        assert!(goes("net-u-2", 1, &third) && goes("", 1, &third) && goes("another-program", 1, &third));
        assert!(!goes("net-u-3", 3, &third) && !goes("net-u-4", 3, &third) && !goes("net-u-10", 3, &third));
    }

    #[test]
    fn of_the_first_run_that_is_known_all_that_was_there_before_goes() {
        let first = run(1);
        assert!(goes("net-u-7", 1, &first), "somebody deleted that run");
        assert!(!goes("net-u-1", 3, &first) && !goes("net-u-2", 3, &first));
    }
}
