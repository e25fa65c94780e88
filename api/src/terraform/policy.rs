//! Guard rails: fields that Sluice adds to the kind. An older definition in the cluster prunes them, so the controller
//! looks at start whether the installed one declares them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TerraformSpec;

/// What `approvePlan: auto` may apply without a person. A plan of which any part is held waits for an approval as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoApply {
    /// Kinds of change that are applied; others wait. Empty: all that are not held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<ChangeKind>,
    /// Kinds of change that wait for an approval, whatever allow says. delete holds replacements too: they destroy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hold: Vec<ChangeKind>,
    /// Resource types of which any change waits for an approval; * stands for any number of characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hold_resource_types: Vec<String>,
    /// A plan with more changes than this waits for an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_changes: Option<i32>,
}

/// What a plan does to one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ChangeKind {
    /// Makes it.
    Create,
    /// Changes it in place.
    Update,
    /// Destroys it and makes it anew, in either order.
    Replace,
    /// Destroys it.
    Delete,
}

/// What becomes of resources and state when the object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum DeletionPolicy {
    /// The resources are destroyed first, as with destroyResourcesOnDeletion.
    Destroy,
    /// The resources stay; the state that Sluice's backend keeps is deleted.
    Orphan,
    /// The resources and the state stay.
    Retain,
}

impl DeletionPolicy {
    /// The spelling in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Destroy => "Destroy",
            Self::Orphan => "Orphan",
            Self::Retain => "Retain",
        }
    }
}

/// `deletionPolicy` and `destroyResourcesOnDeletion` say opposite things. The CRD refuses such an object; an older one,
/// or one that was stored before, may let it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "spec.deletionPolicy is {policy} and spec.destroyResourcesOnDeletion is true: the resources cannot both stay and be \
     destroyed; remove one of the two",
    policy = .0.as_str()
)]
pub struct ContradictingDeletion(pub DeletionPolicy);

impl TerraformSpec {
    /// What becomes of resources and state with the object: `deletionPolicy`, or without it what
    /// `destroyResourcesOnDeletion` says. That one is false when it is absent, so false contradicts nothing.
    ///
    /// # Errors
    /// When `destroyResourcesOnDeletion: true` meets a policy that keeps the resources.
    pub const fn on_deletion(&self) -> Result<DeletionPolicy, ContradictingDeletion> {
        match (self.deletion_policy, self.destroy_resources_on_deletion) {
            (Some(policy @ (DeletionPolicy::Orphan | DeletionPolicy::Retain)), true) => {
                Err(ContradictingDeletion(policy))
            }
            (Some(policy), _) => Ok(policy),
            (None, true) => Ok(DeletionPolicy::Destroy),
            (None, false) => Ok(DeletionPolicy::Retain),
        }
    }

    /// Whether the deletion of the object destroys its resources first.
    #[must_use]
    pub const fn destroys_on_deletion(&self) -> bool {
        matches!(self.on_deletion(), Ok(DeletionPolicy::Destroy))
    }
}

/// Differences between state and world that are not drift. In one entry addresses and attributes must both match; an entry
/// with neither ignores nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IgnoredDrift {
    /// Addresses of resources, or output.name; * stands for any number of characters. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Paths of attributes that are changed in place, with dots between their parts (tags.owner); a path stands for all below
    /// it, * for any number of characters. Empty: all that happens to the resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<String>,
}

/// The program of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolSelection {
    /// Which of the two.
    pub name: ToolName,
    /// Its version (1.12.6), the beginning of one (1.12, 1.12.x), or a constraint (~> 1.8, >= 1.8, < 1.11): the newest that
    /// is installed and fits. Empty: the newest that is installed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(
        length(max = 64),
        regex(
            pattern = r"^[ *]*(((~>|[<>!]?=|[<>])? *v?[0-9]{1,9}(\.([0-9]{1,9}|[xX*])){0,2}([-+][0-9A-Za-z.+-]+)? *)(, *(~>|[<>!]?=|[<>])? *v?[0-9]{1,9}(\.([0-9]{1,9}|[xX*])){0,2}([-+][0-9A-Za-z.+-]+)? *)*)?$"
        )
    )]
    pub version: String,
}

/// The programs that a stack can be run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ToolName {
    /// OpenTofu.
    Tofu,
    /// Terraform.
    Terraform,
}

impl ToolName {
    /// The program's file name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tofu => "tofu",
            Self::Terraform => "terraform",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_policy_and_the_older_field_are_one_answer_or_a_contradiction() {
        let answer = |policy: &str, destroys: bool| {
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
        assert_eq!(answer("", false), Ok("Retain"));
        assert_eq!(answer("", true), Ok("Destroy"));
        assert_eq!(answer("Destroy", false), Ok("Destroy"));
        assert_eq!(answer("Destroy", true), Ok("Destroy"));
        assert_eq!(answer("Orphan", false), Ok("Orphan"));
        assert_eq!(answer("Retain", false), Ok("Retain"));
        let contradiction = answer("Orphan", true).unwrap_err();
        assert_eq!(contradiction, ContradictingDeletion(DeletionPolicy::Orphan));
        assert!(
            contradiction
                .to_string()
                .starts_with("spec.deletionPolicy is Orphan and spec.destroyR")
        );
        assert_eq!(
            answer("Retain", true),
            Err(ContradictingDeletion(DeletionPolicy::Retain))
        );
    }
}
