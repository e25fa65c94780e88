//! Searches logs, metrics, objects and files for secret values.

use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use sluice_harness::leaks::LeakSearch;

use super::programs::Programs;
use crate::environment::{NAMESPACE, TestEnvironment};

/// A public part of the names of the stacks, which each search must find.
pub(super) const MARKER: &str = "seen-by-anybody-4e19";
/// The file of the API's objects, with the Secrets.
const STORE: &str = "store";
const LOG: &str = "the controller's log";
const RUNS: &str = "a runner's log";
const METRICS: &str = "the metrics";
pub(super) const READABLE: &str = "a readable plan";
/// Where the marker must be found in each search.
const REQUIRED: [&str; 6] = [LOG, RUNS, METRICS, "Event", "Terraform", "TerraformRun"];

/// The values to search for.
#[derive(Clone, Copy)]
pub(super) struct SecretValues<'a> {
    /// Values in Secrets.
    pub(super) hidden: &'a [&'a str],
    /// Values that the user wrote into a spec in clear text, and that must not be copied anywhere else.
    pub(super) in_specs: &'a [&'a str],
}

/// Searches the plan's JSON, which is stored compressed in a Secret and readable by users.
async fn search_readable_plans(env: &TestEnvironment, search: &mut LeakSearch<'_>) {
    let secrets: Api<Secret> = env.api();
    let params = ListParams::default().labels("infra.contrib.fluxcd.io/plan-name");
    for secret in secrets.list(&params).await.unwrap().items {
        let name = secret.labels().get("infra.contrib.fluxcd.io/plan-name");
        let extension = name.and_then(|name| Path::new(name).extension());
        if extension.is_some_and(|extension| extension == "json") {
            for (key, value) in secret.data.clone().unwrap_or_default() {
                search.search(READABLE, &format!("the readable plan's {key}"), &value.0);
            }
        }
    }
}

/// Returns the kind of a file; `None` for the store of the objects with the Secrets.
fn file_kind(path: &Path) -> Option<&'static str> {
    let is_log = path.extension().is_some_and(|extension| extension == "log");
    (!path.ends_with(STORE)).then_some(if is_log { RUNS } else { "a file" })
}

/// Fails if a canary is found, or if the search does not find the marker in `REQUIRED` and `also`.
pub(super) async fn assert_no_leak(
    env: &TestEnvironment,
    programs: &Programs,
    canaries: SecretValues<'_>,
    also: &[&'static str],
    step: &str,
) {
    let mut search = LeakSearch::new([canaries.hidden, canaries.in_specs].concat(), MARKER);
    env.wait_for_event_about(MARKER).await;
    env.wait_until_idle().await;
    let kinds = [
        ("", "v1", "Event"),
        ("", "v1", "ConfigMap"),
        ("", "v1", "Secret"),
        ("coordination.k8s.io", "v1", "Lease"),
        ("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"),
        ("infra.sluice.dev", "v1alpha1", "TerraformRun"),
    ];
    search
        .search_objects(&env.client, NAMESPACE, &kinds)
        .await
        .unwrap();
    search_readable_plans(env, &mut search).await;
    search.search_files(env.dir.path(), &file_kind).unwrap();
    search.search(LOG, LOG, programs.log().as_bytes());
    search.search(METRICS, METRICS, programs.metrics().as_bytes());
    search.assert_clean(step, &[&REQUIRED, also].concat());
}
