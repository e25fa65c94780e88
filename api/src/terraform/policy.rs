//! Guard rails: fields that Sluice adds to the kind. An older installed definition prunes them, so the controller checks at
//! start that the installed definition declares them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TerraformSpec;
use crate::serialization::api_enum;

/// What `approvePlan: auto` may apply without an approval. If any part of a plan is held, the whole plan needs an approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoApply {
    /// Kinds of change that are applied; others need an approval. Empty: all that are not held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<ChangeKind>,
    /// Kinds of change that need an approval, regardless of allow. delete also holds replacements, which destroy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hold: Vec<ChangeKind>,
    /// Resource types whose changes need an approval; * matches any number of characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hold_resource_types: Vec<String>,
    /// A plan with more changes than this needs an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_changes: Option<i32>,
}

/// A kind of change of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ChangeKind {
    /// Creates the resource.
    Create,
    /// Changes the resource in place.
    Update,
    /// Destroys the resource and creates it again, in either order.
    Replace,
    /// Destroys the resource.
    Delete,
}

api_enum! {
    /// What happens to resources and state when the object is deleted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(inline)]
    DeletionPolicy {
        /// The resources are destroyed first, as with destroyResourcesOnDeletion.
        Destroy = "Destroy",
        /// The resources stay; the state that Sluice's backend keeps is deleted.
        Orphan = "Orphan",
        /// The resources and the state stay.
        Retain = "Retain",
    }
}

/// `deletionPolicy` contradicts `destroyResourcesOnDeletion`. The CRD rejects such objects, but an older definition may have
/// accepted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "spec.deletionPolicy is {policy} and spec.destroyResourcesOnDeletion is true: these contradict each other; remove one \
     of the two",
    policy = .0.as_str()
)]
pub struct DeletionPolicyConflict(pub DeletionPolicy);

impl TerraformSpec {
    /// Returns `deletionPolicy`, or without it the policy of `destroyResourcesOnDeletion`, whose default `false` contradicts
    /// nothing.
    ///
    /// # Errors
    /// `destroyResourcesOnDeletion: true` with a policy that keeps the resources.
    pub const fn on_deletion(&self) -> Result<DeletionPolicy, DeletionPolicyConflict> {
        match (self.deletion_policy, self.destroy_resources_on_deletion) {
            (Some(policy @ (DeletionPolicy::Orphan | DeletionPolicy::Retain)), true) => {
                Err(DeletionPolicyConflict(policy))
            }
            (Some(policy), _) => Ok(policy),
            (None, true) => Ok(DeletionPolicy::Destroy),
            (None, false) => Ok(DeletionPolicy::Retain),
        }
    }

    /// Returns whether the deletion of the object destroys its resources first.
    #[must_use]
    pub const fn destroys_on_deletion(&self) -> bool {
        matches!(self.on_deletion(), Ok(DeletionPolicy::Destroy))
    }
}

/// Differences that do not count as drift. Addresses and attributes of an entry must both match; an entry with neither ignores
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IgnoredDrift {
    /// Addresses of resources, or output.name; * matches any number of characters. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Paths of attributes that are changed in place, separated by dots (tags.owner); a path includes all paths below it, *
    /// matches any number of characters. Empty: all changes of the resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<String>,
}

/// The CLI of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolSelection {
    /// Name of the CLI.
    pub name: ToolName,
    /// A version (1.12.6), a prefix (1.12, 1.12.x) or a constraint (~> 1.8, >= 1.8, < 1.11): the newest installed version that
    /// matches. Empty: the newest installed version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(
        length(max = 64),
        regex(
            pattern = r"^[ *]*(((~>|[<>!]?=|[<>])? *v?[0-9]{1,9}(\.([0-9]{1,9}|[xX*])){0,2}([-+][0-9A-Za-z.+-]+)? *)(, *(~>|[<>!]?=|[<>])? *v?[0-9]{1,9}(\.([0-9]{1,9}|[xX*])){0,2}([-+][0-9A-Za-z.+-]+)? *)*)?$"
        )
    )]
    pub version: String,
}

api_enum! {
    /// The supported CLIs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    #[schemars(inline)]
    ToolName {
        /// OpenTofu.
        Tofu = "tofu",
        /// Terraform.
        Terraform = "terraform",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_policy_and_the_older_field_agree_or_contradict() {
        let policy_of = |policy: &str, destroys: bool| {
            let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" },
                "destroyResourcesOnDeletion": destroys });
            if !policy.is_empty() {
                spec["deletionPolicy"] = policy.into();
            }
            let spec: TerraformSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(
                spec.destroys_on_deletion(),
                spec.on_deletion() == Ok(DeletionPolicy::Destroy)
            );
            spec.on_deletion().map(DeletionPolicy::as_str)
        };
        assert_eq!(policy_of("", false), Ok("Retain"));
        assert_eq!(policy_of("", true), Ok("Destroy"));
        assert_eq!(policy_of("Destroy", false), Ok("Destroy"));
        assert_eq!(policy_of("Destroy", true), Ok("Destroy"));
        assert_eq!(policy_of("Orphan", false), Ok("Orphan"));
        assert_eq!(policy_of("Retain", false), Ok("Retain"));
        let contradiction = policy_of("Orphan", true).unwrap_err();
        assert_eq!(contradiction, DeletionPolicyConflict(DeletionPolicy::Orphan));
        assert!(
            contradiction
                .to_string()
                .starts_with("spec.deletionPolicy is Orphan and spec.destroyR")
        );
        assert_eq!(
            policy_of("Retain", true),
            Err(DeletionPolicyConflict(DeletionPolicy::Retain))
        );
    }
}
