//! The API group `terraform.gitops.k8s.io`: `Repo`, the kind of a pull controller of 2019, which had one object per
//! repository. `spec.url` and the first three fields of the status are that controller's; the others are Sluice's additions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{ConditionType, MessageLimit, Polarity};
use crate::serialization::api_enum;
use crate::source::LocalReference;

/// The API group of the kind.
pub const GROUP: &str = "terraform.gitops.k8s.io";

/// The repository, and how its plans are applied.
#[expect(
    clippy::duplicated_attributes,
    reason = "printer columns repeat the same attributes"
)]
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "terraform.gitops.k8s.io",
    version = "v1alpha1",
    kind = "Repo",
    plural = "repos",
    namespaced,
    status = "RepoStatus",
    // The API server demands it of every definition in a group below `k8s.io`.
    annotation(
        "api-approved.kubernetes.io",
        "unapproved, the group of a controller of 2019"
    ),
    doc = "Repo applies the Terraform module of a Git repository: each new commit of a branch is planned and applied.",
    derive = "PartialEq",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "SHA", type_ = "string", json_path = ".status.gitSHA"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.runStatus"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Plan",
        type_ = "string",
        priority = 1,
        json_path = ".status.pendingPlan"
    ),
    printcolumn(
        name = "Job",
        type_ = "string",
        priority = 1,
        json_path = ".status.runJobName"
    ),
    printcolumn(name = "Run", type_ = "string", priority = 1, json_path = ".status.runName"),
    printcolumn(
        name = "Message",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RepoSpec {
    /// Whether plans are applied without an approval.
    #[serde(default)]
    pub approval: ApprovalMode,
    /// With approval Manual: the id of the plan to apply, as in status.pendingPlan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub approve_plan: String,
    /// The branch whose commits are applied.
    #[serde(default = "master")]
    #[schemars(length(min = 1))]
    pub branch: String,
    /// Secret with the credentials for the repository, as in GitRepository. Absent: the one that the GitRepository names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalReference>,
    /// Address of the repository: http, https or ssh, also in the short form git@host:path.
    pub url: String,
    /// The CLI's workspace, whose variables are in the file workspace.tfvars at the root of the repository. Absent: the workspace
    /// default, without such a file. Lower case, because it is part of the name of the Secret with the state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63), regex(pattern = r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$"))]
    pub workspace: String,
}

/// The schema's default of `branch`, the only branch of the controller of 2019.
fn master() -> String {
    "master".to_owned()
}

api_enum! {
    /// Whether plans are applied without an approval.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(inline)]
    ApprovalMode {
        /// Each plan is applied.
        #[default]
        Auto = "Auto",
        /// A plan is applied once approvePlan names it.
        Manual = "Manual",
    }
}

/// The present commit and its run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepoStatus {
    /// The present commit. Empty: the branch was not read yet.
    #[serde(default, rename = "gitSHA", skip_serializing_if = "String::is_empty")]
    pub git_sha: String,
    /// Name of the Job of the commit. Empty: there is none yet, the commit needs none, or runs are processes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_job_name: String,
    /// How far the commit is.
    #[serde(default)]
    pub run_status: RunStatus,
    /// Conditions of the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last reconcile request that source and stack have got.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_handled_reconcile_at: String,
    /// The Secret with the log of the run, compressed (data key log.gz), or with its first part. Empty: logTail of the TerraformRun is all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_secret: String,
    /// The generation that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Branch and address that gitSHA was read from. Empty: the branch was not read yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub observed_source: String,
    /// Id of the plan that waits for an approval.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pending_plan: String,
    /// Name of the TerraformRun of the commit, which has the plan and the log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_name: String,
}

api_enum! {
    /// How far the present commit is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(inline)]
    RunStatus {
        /// It has no run yet.
        #[default]
        New = "New",
        /// Its run has not begun, or its plan waits for an approval.
        Pending = "Pending",
        /// Its run is in progress.
        Running = "Running",
        /// It is applied.
        Completed = "Completed",
        /// Its run failed.
        Failed = "Failed",
    }
}

api_enum! {
    /// The condition types of Repo objects.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    RepoCondition {
        /// The present commit is applied.
        Ready = "Ready",
    }
}

impl ConditionType for RepoCondition {
    const OWNED: &'static [Self] = Self::ALL;
    const MESSAGE_LIMIT: MessageLimit = MessageLimit::Characters(20_000);

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }

    fn polarity(self) -> Polarity {
        match self {
            Self::Ready => Polarity::Normal,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_of_2019_is_complete() {
        let repo: Repo = serde_json::from_value(json!({
            "apiVersion": "terraform.gitops.k8s.io/v1alpha1", "kind": "Repo", "metadata": { "name": "sample-repo" },
            "spec": { "url": "https://git.example.com/sample-repo.git" },
            "status": { "gitSHA": "abc", "runJobName": "terraform-run-abc", "runStatus": "Completed" },
        }))
        .unwrap();
        assert_eq!(repo.spec.branch, "master");
        assert_eq!(repo.spec.approval, ApprovalMode::Auto);
        assert_eq!(repo.spec.workspace, "");
        let status = repo.status.unwrap();
        assert_eq!(
            serde_json::to_value(&status).unwrap(),
            json!({ "gitSHA": "abc", "runJobName": "terraform-run-abc", "runStatus": "Completed" })
        );
    }

    #[test]
    fn the_definition_has_the_name_of_2019_and_the_five_values() {
        let crd = crate::crd::optional_crds().remove(0);
        assert_eq!(
            crd.metadata.name.as_deref(),
            Some("repos.terraform.gitops.k8s.io")
        );
        let approved = &crd.metadata.annotations.as_ref().unwrap()["api-approved.kubernetes.io"];
        assert!(approved.starts_with("unapproved"), "{approved}");
        let crd = serde_json::to_value(&crd).unwrap();
        let fields = "/spec/versions/0/schema/openAPIV3Schema/properties";
        assert_eq!(
            crd.pointer(&format!("{fields}/status/properties/runStatus/enum")),
            Some(&json!(["New", "Pending", "Running", "Completed", "Failed"]))
        );
        assert_eq!(
            crd.pointer(&format!("{fields}/spec/required")),
            Some(&json!(["url"]))
        );
        assert_eq!(
            crd.pointer("/spec/versions/0/subresources/status"),
            Some(&json!({}))
        );
        // Stored with `true` in 2019, with which an API server refuses defaults.
        assert_eq!(crd.pointer("/spec/preserveUnknownFields"), Some(&json!(false)));
        // Of the workspace, which is part of the name of a Secret.
        assert_eq!(
            crd.pointer(&format!("{fields}/spec/properties/workspace/pattern")),
            Some(&json!("^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$"))
        );
    }
}
