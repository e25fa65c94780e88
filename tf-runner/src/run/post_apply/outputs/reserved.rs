//! Secrets that outputs are never written to: the states of stacks, and what Sluice itself stores (pure).

use k8s_openapi::api::core::v1::Secret;
use sluice_api::annotation::{PLAN_NAME, TERRAFORM_LABEL};

use sluice_tf_core::errored_state;
use sluice_tf_core::last_applied;

/// Labels of the Secrets that are never written to, whoever owns them: states, and what Sluice stores.
const RESERVED_LABELS: [&str; 6] = [
    "tfstate",
    PLAN_NAME,
    TERRAFORM_LABEL,
    last_applied::LABEL,
    last_applied::shared::FILES_LABEL,
    errored_state::LABEL,
];
/// What the names of such Secrets begin with.
const RESERVED_NAMES: [&str; 5] = ["tfstate-", "tfplan-", "tfapplied-", "tffiles-", "tferrored-"];

/// Whether a Secret that is there holds a state or something of Sluice's. A bundle has no label, and is owned by a run.
pub(super) fn is_reserved(secret: &Secret) -> bool {
    let labels = secret.metadata.labels.as_ref();
    let mut owners = secret.metadata.owner_references.iter().flatten();
    labels.is_some_and(|labels| RESERVED_LABELS.iter().any(|label| labels.contains_key(*label)))
        || owners.any(|owner| owner.kind == "TerraformRun")
}

/// Whether a Secret of this name, which is not there, would stand where a state or something of Sluice's comes to stand.
pub(super) fn is_reserved_name(name: &str) -> bool {
    RESERVED_NAMES.iter().any(|front| name.starts_with(front)) || name.ends_with("-sluice-key")
}
