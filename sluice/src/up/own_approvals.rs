//! Approvals in `sluice up`: a PlanApproval names the user that creates it, and groups of this user. On a cluster the component
//! `approval-admission` of `config/` does this; the API of `sluice up` has no admission policies.
//!
//! A commit in a repository of objects has no authenticated user. There a PlanApproval names the administrator, so that the number of
//! approvers cannot be forged.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, ValidationRule,
};
use sluice_embedded::{ADMIN_GROUPS, ADMIN_USER, UserFields};

/// Returns the fields of a PlanApproval that name its author.
pub(super) fn user_fields() -> UserFields {
    UserFields {
        group: "infra.sluice.dev".to_owned(),
        kind: "PlanApproval".to_owned(),
        user: "approver".to_owned(),
        groups: "groups".to_owned(),
    }
}

/// Adds rules to the definition of PlanApprovals: approver and groups are those of the administrator.
pub(super) fn require_administrator(definitions: &mut [CustomResourceDefinition]) {
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
    use sluice_embedded::{ApiServer, ApiServerBuilder};

    use super::*;

    async fn check(builder: ApiServerBuilder) {
        let embedded = builder.build().unwrap();
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

    #[tokio::test]
    async fn an_approval_names_no_other_user_than_its_author() {
        let builder = ApiServer::builder().crds(sluice_api::crds());
        check(builder.user_fields(user_fields())).await;
    }

    #[tokio::test]
    async fn an_approval_in_a_repository_names_the_administrator() {
        let mut definitions = sluice_api::crds();
        require_administrator(&mut definitions);
        check(ApiServer::builder().crds(definitions)).await;
    }
}
