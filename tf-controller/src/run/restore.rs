//! The start: takes a slot for each active run, and removes what is stored for runs and stacks that do not exist.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::core::DeserializeGuard;
use kube::{Api, Client, ResourceExt as _};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;
use sluice_runtime::paging;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::Scope;

use super::api_in;
use crate::executor::RunRef;
use crate::memory::MeasuredMemory;
use crate::reconcile::{Context, forget_stack, occupies_slot, stack_of};

/// Time between attempts to reach the API at the start.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Takes a slot for each active run before the first reconciliation may start another; nothing starts while the API
/// is away. Also removes what the executor stores for deleted runs.
pub(super) async fn restore_active_runs(
    context: &Arc<Context>,
    scope: &Scope,
    client: &Client,
    stop: &Token,
) {
    while let Err(error) = occupy_active_runs(context, scope, client).await {
        tracing::warn!(%error, "cannot list the active runs yet");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
        }
    }
}

async fn occupy_active_runs(
    context: &Arc<Context>,
    scope: &Scope,
    client: &Client,
) -> Result<(), kube::Error> {
    let api = api_in::<DeserializeGuard<TerraformRun>>(client, scope.namespace.as_deref());
    // Before the list: a run has its object before anything is stored for it.
    let stored = context.executor.list_runs().await.unwrap_or_else(|error| {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot list the files of old runs"
        );
        Vec::new()
    });
    let is_watched = |run: &RunRef| is_watched(scope, &run.namespace);
    let mut deleted: HashSet<RunRef> = stored.into_iter().filter(is_watched).collect();
    let (mut active, mut measured) = (Vec::new(), HashMap::<ObjectKey, MeasuredMemory>::new());
    paging::for_each(&api, |run: DeserializeGuard<TerraformRun>| {
        deleted.remove(&run_ref(&run));
        let Ok(run) = run.0 else { return };
        if let Some(status) = &run.status {
            measured.entry(stack_of(&run)).or_default().add(status);
        }
        active.extend(occupies_slot(&run).then(|| stack_of(&run)));
    })
    .await?;
    for stack in active {
        let labels = if context.run_slots.has_label_limits() {
            stack_labels(&stack, client).await?
        } else {
            BTreeMap::new()
        };
        let memory = measured.get(&stack).copied().unwrap_or_default();
        let usage = context.run_slots.usage(&labels, memory.estimate());
        context.run_slots.occupy(&stack, usage);
    }
    forget_runs(context, deleted).await;
    forget_stacks(context, scope, client).await;
    Ok(())
}

/// Returns the labels of a stack; none if it is gone.
async fn stack_labels(stack: &ObjectKey, client: &Client) -> Result<BTreeMap<String, String>, kube::Error> {
    let api: Api<Terraform> = Api::namespaced(client.clone(), &stack.namespace);
    let found = api.get_metadata_opt(&stack.name).await?;
    Ok(found.and_then(|found| found.metadata.labels).unwrap_or_default())
}

fn run_ref(run: &DeserializeGuard<TerraformRun>) -> RunRef {
    RunRef {
        namespace: run.namespace().unwrap_or_default(),
        name: run.name_any(),
    }
}

/// Removes what is stored for watched runs that do not exist.
async fn forget_runs(context: &Context, deleted: HashSet<RunRef>) {
    for run in deleted {
        tracing::info!(run = run.name, "removing the files of a deleted run");
        if let Err(error) = context.executor.forget(run).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot remove the files of an old run"
            );
        }
    }
}

/// Removes what is stored for stacks that do not exist under any labels: another controller may select them. If the
/// API does not answer, the next start does it.
async fn forget_stacks(context: &Arc<Context>, scope: &Scope, client: &Client) {
    let stored = context.executor.list_stacks().await.unwrap_or_else(|error| {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot list the files of old stacks"
        );
        Vec::new()
    });
    let is_watched = |stack: &ObjectKey| is_watched(scope, &stack.namespace);
    let mut deleted: HashSet<ObjectKey> = stored.into_iter().filter(is_watched).collect();
    if deleted.is_empty() {
        return;
    }
    let api = api_in::<DeserializeGuard<Terraform>>(client, scope.namespace.as_deref());
    let listed = paging::for_each(&api, |stack: DeserializeGuard<Terraform>| {
        deleted.remove(&ObjectKey::of(&stack));
    });
    if let Err(error) = listed.await {
        tracing::warn!(%error, "cannot list the stacks to find deleted ones");
        return;
    }
    for stack in deleted {
        tracing::info!(%stack, "removing the files of a deleted stack");
        forget_stack(context, stack);
    }
}

fn is_watched(scope: &Scope, namespace: &str) -> bool {
    scope.namespace.as_ref().is_none_or(|only| only == namespace)
}
