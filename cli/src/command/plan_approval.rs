//! The approval of a plan as an object in the name of the user (docs/reference/planapproval.md).

use std::collections::BTreeSet;

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, UserInfo};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use sluice_api::run::{PlanApproval, PlanApprovalStatus};
use sluice_api::terraform::required_approvals::Verdict;
use sluice_api::terraform::{Terraform, name_with_digest};

use crate::CliError;
use crate::cluster::{Cluster, describe};
use crate::stack;

/// Characters of the stack in the name of an approval.
const STACK_LENGTH: usize = 40;

/// Creates the approval of this user, who is that of the connection. The same command may be typed again.
///
/// # Errors
/// The user has approved the plan already with another comment, or the approval does not count; the API rejects the object.
pub(super) async fn create(
    cluster: &Cluster,
    stack: &Terraform,
    plan: &str,
    comment: &str,
    user: &UserInfo,
) -> Result<(), CliError> {
    let approval = approval_of(stack, plan, comment, user)?;
    let name = approval.name_any();
    let object = describe::<PlanApproval>(cluster.namespace(), &name);
    let (approvals, params) = (cluster.objects::<PlanApproval>(), PostParams::default());
    let created = cluster
        .answer(&object, approvals.create(&params, &approval))
        .await;
    match created {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            // Without it, the text says less.
            let found = cluster.get::<PlanApproval>(&name).await.ok();
            match found.as_ref() {
                Some(found) if is_same(found, &approval) => Ok(()),
                found => Err(given_already(stack, found.unwrap_or(&approval))),
            }
        }
        Err(source) => Err(CliError::Api {
            action: "create",
            object,
            source: Box::new(source),
        }),
    }
}

/// Returns whether an approval says the same, and counts as far as is known. Pure.
fn is_same(found: &PlanApproval, approval: &PlanApproval) -> bool {
    let may_count = |status: &PlanApprovalStatus| status.accepted || status.reason.is_empty();
    let is_kept = found.metadata.deletion_timestamp.is_none();
    is_kept && found.spec == approval.spec && found.status.as_ref().is_none_or(may_count)
}

/// Returns the error of a user who has approved the plan already: it is deleted first, if it does not count and a new one may. Pure.
fn given_already(stack: &Terraform, approval: &PlanApproval) -> CliError {
    let (spec, name) = (&approval.spec, approval.name_any());
    let namespace = stack.namespace().unwrap_or_default();
    let status = approval.status.as_ref().filter(|status| {
        !status.accepted && !status.reason.is_empty() && status.reason != Verdict::Repeated.reason()
    });
    let given = format!("{} has approved {} already", spec.approver, spec.plan_id);
    let (cause, verb) = match status {
        Some(status) => (
            format!("{given}, which does not count: {}", status.message),
            "delete",
        ),
        None => (given, "get"),
    };
    CliError::Refused {
        object: format!("terraform {}", stack::full_name(stack)),
        cause,
        next_command: format!("kubectl {verb} planapproval {name} -n {namespace}"),
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
    plan: &str,
    comment: &str,
    user: &UserInfo,
) -> Result<PlanApproval, CliError> {
    let approver = user.username.clone().unwrap_or_default();
    let own: BTreeSet<&String> = user.groups.iter().flatten().collect();
    let required = stack.spec.approval.iter().flat_map(|required| &required.groups);
    let groups: Vec<_> = required.filter(|group| own.contains(group)).collect();
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
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::fixture;

    #[test]
    fn an_approval_names_the_user_and_only_the_groups_that_count() {
        let stack =
            fixture::stack(&json!({ "spec": { "approval": { "count": 2, "groups": ["sre", "owners"] } } }));
        let user = |name: &str| UserInfo {
            username: Some(name.to_owned()),
            groups: Some(vec!["system:authenticated".to_owned(), "sre".to_owned()]),
            ..UserInfo::default()
        };
        let approve = |name: &str| approval_of(&stack, "plan-x", "looks good", &user(name)).unwrap();
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

    #[test]
    fn an_approval_of_a_stack_that_requires_none_names_no_groups() {
        let user = UserInfo {
            username: Some("alice".to_owned()),
            groups: Some(vec!["sre".to_owned()]),
            ..UserInfo::default()
        };
        let approval = approval_of(&fixture::stack(&json!({})), "plan-x", "", &user).unwrap();
        assert_eq!(
            (approval.spec.approver.as_str(), approval.spec.groups.len()),
            ("alice", 0)
        );
    }

    #[test]
    fn the_same_approval_is_given_again_unless_it_does_not_count() {
        let (stack, user) = (fixture::stack(&json!({})), UserInfo::default());
        let approve = |comment: &str| approval_of(&stack, "plan-x", comment, &user).unwrap();
        for (status, expected) in [
            (json!(null), true),
            (json!({ "accepted": false }), true),
            (json!({ "accepted": true, "reason": "Counted" }), true),
            (json!({ "accepted": false, "reason": "BeforePlan" }), false),
        ] {
            let mut found = approve("");
            found.status = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(is_same(&found, &approve("")), expected, "{status}");
            assert!(!is_same(&found, &approve("reviewed")), "{status}");
            found.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            assert!(!is_same(&found, &approve("")), "{status}");
        }
    }

    #[test]
    fn an_approval_that_does_not_count_is_deleted_before_the_next_one() {
        let stack = fixture::stack(&json!({}));
        let user = UserInfo {
            username: Some("alice".to_owned()),
            ..UserInfo::default()
        };
        let error = |status: serde_json::Value| {
            let mut approval = approval_of(&stack, "plan-x", "", &user).unwrap();
            approval.status = serde_json::from_value(status).unwrap();
            let name = approval.name_any();
            let error = given_already(&stack, &approval);
            (error.to_string(), error.advice().replace(&name, "NAME"))
        };
        let given = "terraform team/app: alice has approved plan-x already";
        let show = "kubectl get planapproval NAME -n team";
        for status in [
            json!(null),
            json!({ "accepted": true, "reason": "Counted", "message": "it counts" }),
            json!({ "accepted": false, "reason": "Repeated", "message": "another one counts" }),
        ] {
            assert_eq!(error(status), (given.to_owned(), show.to_owned()));
        }
        let before = json!({ "accepted": false, "reason": "BeforePlan", "message": "it was created before" });
        assert_eq!(
            error(before),
            (
                format!("{given}, which does not count: it was created before"),
                "kubectl delete planapproval NAME -n team".to_owned()
            )
        );
    }
}
