//! Approvals in `sluice up`: its API has one user, so a PlanApproval can name no other. On a cluster the component `approval-admission` of
//! `config/` does this; the API of `sluice up` has no admission policies, so here rules of the definition do.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, ValidationRule,
};
use sluice_embedded::{ADMIN_GROUPS, ADMIN_USER};

/// Adds the rules to the definition of PlanApprovals: approver and groups are those of the user.
pub(super) fn require_own_user(definitions: &mut [CustomResourceDefinition]) {
    let approvals = definitions
        .iter_mut()
        .filter(|definition| definition.spec.names.kind == "PlanApproval");
    for version in approvals.flat_map(|definition| &mut definition.spec.versions) {
        let schema = version.schema.as_mut();
        let root = schema.and_then(|schema| schema.open_api_v3_schema.as_mut());
        let fields = root.and_then(|root| root.properties.as_mut());
        if let Some(spec) = fields.and_then(|fields| fields.get_mut("spec")) {
            spec.x_kubernetes_validations
                .get_or_insert_default()
                .extend(rules());
        }
    }
}

fn rules() -> [ValidationRule; 2] {
    let rule = |rule: String, message: String| ValidationRule {
        rule,
        message: Some(message),
        ..ValidationRule::default()
    };
    let groups = ADMIN_GROUPS.map(|group| format!("'{group}'")).join(", ");
    [
        rule(
            format!("self.approver == '{ADMIN_USER}'"),
            format!("approver must be the requesting user, {ADMIN_USER}"),
        ),
        rule(
            format!("!has(self.groups) || self.groups.all(group, group in [{groups}])"),
            format!(
                "groups must be groups of the requesting user: {}",
                ADMIN_GROUPS.join(", ")
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use kube::Api;
    use kube::api::PostParams;
    use serde_json::{Value, json};
    use sluice_api::run::PlanApproval;
    use sluice_embedded::ApiServer;

    use super::*;

    #[tokio::test]
    async fn an_approval_names_no_other_user_than_that_of_the_api() {
        let mut definitions = sluice_api::crds();
        require_own_user(&mut definitions);
        let embedded = ApiServer::builder().crds(definitions).build().unwrap();
        let api: Api<PlanApproval> = Api::namespaced(embedded.client(), "default");
        let create = async |name: &str, approver: &str, groups: Value| {
            let approval = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval", "metadata": { "name": name },
                "spec": { "approver": approver, "groups": groups, "planID": "a", "terraformRef": { "name": "app" } } });
            let created = api
                .create(&PostParams::default(), &serde_json::from_value(approval).unwrap())
                .await;
            match created {
                Ok(_) => String::new(),
                Err(kube::Error::Api(refused)) => refused.message.clone(),
                Err(error) => panic!("{error}"),
            }
        };
        let refusal = create("other", "bob", json!([])).await;
        assert!(
            refusal.contains("approver must be the requesting user, admin"),
            "{refusal}"
        );
        let refusal = create("forged", ADMIN_USER, json!(["system:masters", "ops"])).await;
        assert!(
            refusal.contains("groups must be groups of the requesting user"),
            "{refusal}"
        );
        assert_eq!(create("own", ADMIN_USER, json!(["system:masters"])).await, "");
        assert_eq!(create("without-groups", ADMIN_USER, json!([])).await, "");
    }
}
