//! The approval of a plan as an object, for stacks whose `spec.approval` requires approvals of users (docs/reference/planapproval.md).

use std::collections::BTreeSet;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use sluice_api::run::PlanApproval;
use sluice_api::terraform::{RequiredApprovals, Terraform, name_with_digest};

use crate::CliError;
use crate::cluster::{Cluster, describe};
use crate::stack;

/// Characters of the stack in the name of an approval.
const STACK_LENGTH: usize = 40;

/// Creates the approval of the user of the connection.
///
/// # Errors
/// The API does not know who the user is, the user has approved the plan already, or the API rejects the object.
pub(super) async fn create(
    cluster: &Cluster,
    stack: &Terraform,
    required: &RequiredApprovals,
    plan: &str,
    comment: &str,
) -> Result<(), CliError> {
    let user = who_am_i(cluster.client()).await?;
    let approval = approval_of(stack, required, plan, comment, &user)?;
    let name = approval.name_any();
    let object = describe::<PlanApproval>(cluster.namespace(), &name);
    let (approvals, params) = (cluster.objects::<PlanApproval>(), PostParams::default());
    let created = cluster
        .answer(&object, approvals.create(&params, &approval))
        .await;
    match created {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Err(CliError::Refused {
            object: format!("terraform {}", stack::full_name(stack)),
            cause: format!("{} has approved {plan} already", approval.spec.approver),
            next_command: format!("kubectl get planapproval {name} -n {}", cluster.namespace()),
        }),
        Err(source) => Err(CliError::Api {
            action: "create",
            object,
            source: Box::new(source),
        }),
    }
}

/// Returns the user of the connection, as the API server knows it (KEP-3325).
///
/// # Errors
/// The API does not answer the question.
pub(super) async fn who_am_i(client: Client) -> Result<UserInfo, CliError> {
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await;
    let review = review.map_err(|source| CliError::Api {
        action: "create",
        object: "selfsubjectreview".to_owned(),
        source: Box::new(source),
    })?;
    let user = review.status.and_then(|status| status.user_info);
    Ok(user.unwrap_or_default())
}

/// Builds the approval. It names only those groups of the user that the stack asks for. Its name is that of stack, plan and user, so that
/// a user has one approval of a plan. Pure.
fn approval_of(
    stack: &Terraform,
    required: &RequiredApprovals,
    plan: &str,
    comment: &str,
    user: &UserInfo,
) -> Result<PlanApproval, CliError> {
    let approver = user.username.clone().unwrap_or_default();
    let own: BTreeSet<&String> = user.groups.iter().flatten().collect();
    let groups: Vec<_> = required
        .groups
        .iter()
        .filter(|group| own.contains(group))
        .collect();
    let name = stack.name_any();
    let digest = name_with_digest(&format!("{name} {plan} {approver}"));
    let digest = digest.rsplit("-x").next().unwrap_or_default();
    let front: String = name.chars().take(STACK_LENGTH).collect();
    let front = front.trim_end_matches(['-', '.']);
    let object = json!({
        "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval",
        "metadata": { "name": format!("{front}-{digest}"), "namespace": stack.namespace() },
        "spec": { "approver": approver, "comment": comment, "groups": groups, "planID": plan, "terraformRef": { "name": name } },
    });
    serde_json::from_value(object).map_err(|error| CliError::Format(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn an_approval_names_the_user_and_only_the_groups_that_count() {
        let stack =
            fixture::stack(&json!({ "spec": { "approval": { "count": 2, "groups": ["sre", "owners"] } } }));
        let required = stack.spec.approval.clone().unwrap();
        let user = |name: &str| UserInfo {
            username: Some(name.to_owned()),
            groups: Some(vec!["system:authenticated".to_owned(), "sre".to_owned()]),
            ..UserInfo::default()
        };
        let approve =
            |name: &str| approval_of(&stack, &required, "plan-x", "looks good", &user(name)).unwrap();
        let spec = approve("alice").spec;
        assert_eq!(
            (spec.approver.as_str(), spec.groups),
            ("alice", vec!["sre".to_owned()])
        );
        assert_eq!(
            (spec.plan_id.as_str(), spec.comment.as_str()),
            ("plan-x", "looks good")
        );
        assert_eq!(approve("alice").name_any(), approve("alice").name_any());
        assert_ne!(approve("alice").name_any(), approve("bob").name_any());
        assert!(approve("alice").name_any().starts_with("app-"));
    }
}
