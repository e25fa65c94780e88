//! The plan of another stack of the namespace, which the account of runs may replace: the apply must refuse it.

use serde_json::{Value, json};

use super::{TENANT, Tenants};

/// What a new object may have of the metadata of another one.
const COPIED: [&str; 5] = ["name", "namespace", "labels", "annotations", "ownerReferences"];

impl Tenants {
    /// Returns the Secret of a plan with other content.
    pub(super) async fn forged_plan(&self, name: &str) -> Value {
        let secret = self.kubectl(TENANT, &["get", "secret", name, "-ojson"]).await;
        let mut secret: Value = serde_json::from_str(&secret).unwrap();
        let metadata = secret["metadata"].as_object_mut().unwrap();
        metadata.retain(|field, _| COPIED.contains(&field.as_str()));
        secret["data"]["planted"] = json!("eWVz");
        secret
    }

    /// The plan of the other stack is not the one that its run has recorded: an approval of it applies nothing.
    pub(super) async fn check_forged_plan(&self, name: &str) {
        let planted = ["get", "secret", name, "-ojsonpath={.data.planted}"];
        assert_eq!(self.kubectl(TENANT, &planted).await, "eWVz", "the plan is forged");
        let pending = ["get", "terraform/neighbour", "-ojsonpath={.status.plan.pending}"];
        let id = self.kubectl(TENANT, &pending).await;
        self.own.edit("neighbour", &json!({ "approvePlan": id })).await;
        let refused = ["do not have the digest that run neighbour-"];
        if let Err(error) = self.own.wait_for_message("neighbour", &refused).await {
            panic!("{error}\n{}", self.installation.describe_pods().await);
        }
        assert_eq!(
            self.own.runs("neighbour").await,
            [
                "Succeeded TerraformPlannedWithChanges",
                "Failed TFExecApplyFailed"
            ]
        );
    }
}
