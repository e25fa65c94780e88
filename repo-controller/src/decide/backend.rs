//! Where the state of a `Repo` is: two of them in a namespace must not share one.
//!
//! The CLI names the Secret `tfstate-<workspace>-<suffix>`, and the suffix is the name of the stack. With a hyphen in the workspace,
//! that is ambiguous: `app` with the workspace `prod-eu`, and `eu-app` with `prod`. Then the suffix is the name with its digest.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_api::repo::Repo;
use sluice_api::terraform::{BackendConfig, Terraform, name_with_digest};

/// Returns `backendConfig` of the Terraform object. `None`: the present value stays, for it is the default or a user's.
pub(super) fn field(repo: &Repo, stack: Option<&Terraform>) -> Option<Value> {
    // But for the suffix, as without `backendConfig`.
    let own = BackendConfig {
        secret_suffix: name_with_digest(&repo.name_any()),
        in_cluster_config: true,
        ..BackendConfig::default()
    };
    let spec = stack.map(|stack| &stack.spec);
    let current = spec.and_then(|spec| spec.backend_config.as_ref());
    let has_cloud = spec.is_some_and(|spec| spec.cloud.is_some());
    match (repo.spec.workspace.contains('-'), current) {
        (true, None) if !has_cloud => Some(json!(own)),
        // Of an earlier workspace. The same `Repo` must find the same state, whatever it was before.
        (false, Some(current)) if *current == own => Some(Value::Null),
        _ => None,
    }
}
