//! Sources of the benchmark: creates them, requests reconciliations, and waits by watches, so that durations are exact.

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use sluice_harness::git::{GitServer, Step};
use sluice_tests::BoxError;

/// Timeout for an artifact.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Creates a source of branch `main` and waits for its artifact of this commit. Returns how long it took.
pub(crate) async fn create(
    sources: &Api<DynamicObject>,
    name: &str,
    url: &str,
    interval: &str,
    commit: &str,
) -> Result<Duration, BoxError> {
    let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": name },
        "spec": { "url": url, "interval": interval, "timeout": "5m", "ref": { "branch": "main" } } });
    let (source, began) = (serde_json::from_value(source)?, Instant::now());
    sources.create(&PostParams::default(), &source).await?;
    wait_for_artifact(sources, name, commit).await?;
    Ok(began.elapsed())
}

/// Requests a reconciliation and waits for the artifact of this commit. Returns how long it took.
pub(crate) async fn request(
    sources: &Api<DynamicObject>,
    name: &str,
    commit: &str,
) -> Result<Duration, BoxError> {
    let body = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": commit } } });
    let began = Instant::now();
    let (params, body) = (PatchParams::default(), Patch::Merge(body));
    sources.patch(name, &params, &body).await?;
    wait_for_artifact(sources, name, commit).await?;
    Ok(began.elapsed())
}

async fn wait_for_artifact(sources: &Api<DynamicObject>, name: &str, commit: &str) -> Result<(), BoxError> {
    let shown = await_condition(sources.clone(), name, |source: Option<&DynamicObject>| {
        let revision = source.and_then(|source| source.data["status"]["artifact"]["revision"].as_str());
        revision.is_some_and(|revision| revision.ends_with(commit))
    });
    let shown = tokio::time::timeout(TIMEOUT, shown).await;
    shown.map_err(|_| format!("{name} never had an artifact of {commit}"))??;
    Ok(())
}

/// Returns the bytes of all responses of these steps for a repository.
pub(crate) fn bytes_of(server: &GitServer, name: &str, steps: &[Step]) -> u64 {
    let requests = server.requests();
    let counted = requests
        .iter()
        .filter(|request| request.repository == name && steps.contains(&request.step));
    counted.map(|request| request.response_bytes).sum()
}
