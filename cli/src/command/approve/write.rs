//! The writes of `sluice approve`: a PlanApproval, or the id.

use k8s_openapi::api::authentication::v1::UserInfo;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_api::terraform::Terraform;

use super::{ApprovalRecord, needs_id, plan_to_approve, refused};
use crate::CliError;
use crate::cluster::{Cluster, describe};
use crate::command::plan_approval;

/// The beginning of the field manager of the command line; the name of the user follows. The run records it as the approver.
const FIELD_MANAGER: &str = "sluice-approve";
/// The longest field manager (`FieldManagerMaxLength` of k8s.io/apimachinery).
const MANAGER_LENGTH: usize = 128;

/// Reads the stack again: the user has read the plan meanwhile, and the API admits the PlanApproval of a plan that no longer waits.
///
/// # Errors
/// The plan does not wait any more, it is another object, or the API rejects the request.
pub(super) async fn read_again(
    cluster: &Cluster,
    shown: &Terraform,
    plan: &str,
) -> Result<Terraform, CliError> {
    let current: Terraform = cluster.get(&shown.name_any()).await?;
    check_still_waits(shown, &current, plan)?;
    Ok(current)
}

/// Refuses a plan that does not wait any more, and that of another object of the same name. Pure.
fn check_still_waits(shown: &Terraform, current: &Terraform, plan: &str) -> Result<(), CliError> {
    if current.uid() != shown.uid() {
        return Err(refused(
            current,
            "it was deleted and created again".to_owned(),
            "plan show",
        ));
    }
    plan_to_approve(current, Some(plan)).map(drop)
}

/// Creates a PlanApproval. If the user has no right to create one, writes the id into `approvePlan` instead; not with a comment, which an
/// id cannot have, and not on a stack with `spec.approval`, where an id approves nothing. The refusal of an admission policy or of a quota
/// is an error: it concerns this approval.
pub(super) async fn approval(
    cluster: &Cluster,
    stack: &Terraform,
    plan: &str,
    comment: Option<&str>,
) -> Result<ApprovalRecord, CliError> {
    let user = plan_approval::who_am_i(cluster.client()).await;
    let manager = field_manager(user.as_ref().ok());
    if needs_id(stack, plan) {
        write_id(cluster, stack, plan, manager).await?;
        return Ok(ApprovalRecord::ApprovePlan);
    }
    let created = match user {
        Ok(user) => plan_approval::create(cluster, stack, plan, comment.unwrap_or_default(), &user).await,
        Err(error) => Err(error),
    };
    let Err(refusal) = created else {
        return Ok(ApprovalRecord::PlanApproval);
    };
    let must_be_object = stack.spec.approval.is_some() || comment.is_some();
    if must_be_object || !refusal.lacks_create_permission() {
        return Err(refusal);
    }
    match write_id(cluster, stack, plan, manager).await {
        Ok(()) => Ok(ApprovalRecord::ApprovePlan),
        // Of both rights, that to create a PlanApproval is the smaller one: its error names the role to ask for.
        Err(error) if error.is_forbidden() && refusal.is_forbidden() => Err(refusal),
        Err(error) => Err(error),
    }
}

/// Returns the field manager of an approval by the id: `sluice-approve:alice`. The API server does not verify the name. Pure.
fn field_manager(user: Option<&UserInfo>) -> String {
    let name = user.and_then(|user| user.username.as_deref()).unwrap_or_default();
    let separator = if name.is_empty() { "" } else { ":" };
    let manager = format!("{FIELD_MANAGER}{separator}{name}");
    // The length is counted in bytes.
    let is_within = |(index, letter): &(usize, char)| index + letter.len_utf8() <= MANAGER_LENGTH;
    let kept = manager.char_indices().take_while(is_within);
    kept.map(|(_, letter)| letter)
        .filter(|letter| !letter.is_control())
        .collect()
}

/// Writes the id, if that plan still waits: the patch has a test of it (RFC 6902).
async fn write_id(cluster: &Cluster, stack: &Terraform, plan: &str, manager: String) -> Result<(), CliError> {
    let name = stack.name_any();
    let patch = json!([
        { "op": "test", "path": "/metadata/uid", "value": stack.uid() },
        { "op": "test", "path": "/status/plan/pending", "value": plan },
        { "op": "add", "path": "/spec/approvePlan", "value": plan },
    ]);
    let operations = serde_json::from_value(patch).map_err(|error| CliError::Format(error.to_string()))?;
    let params = PatchParams {
        field_manager: Some(manager),
        ..PatchParams::default()
    };
    let (stacks, object) = (
        cluster.objects::<Terraform>(),
        describe::<Terraform>(cluster.namespace(), &name),
    );
    let patch = Patch::<Terraform>::Json(operations);
    let written = cluster
        .answer(&object, stacks.patch(&name, &params, &patch))
        .await;
    written.map(drop).map_err(|source| CliError::Api {
        action: "patch",
        object,
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, ready};

    #[test]
    fn only_the_plan_that_was_shown_and_still_waits_is_approved() {
        let mut status = ready("Unknown", "TerraformPlannedWithChanges");
        status["plan"] = json!({ "pending": "plan-a" });
        let shown = fixture::stack(&json!({ "status": status }));
        for (changes, expected) in [
            (json!({}), None),
            (json!({ "metadata": { "uid": "other" } }), Some("created again")),
            (
                json!({ "status": { "plan": { "pending": "plan-b" } } }),
                Some("the plan that waits is plan-b"),
            ),
            (
                json!({ "status": { "plan": { "pending": "" } } }),
                Some("no plan waits"),
            ),
            (json!({ "spec": { "suspend": true } }), Some("it is suspended")),
            (json!({ "spec": { "planOnly": true } }), Some("never applied")),
        ] {
            let mut current = json!({ "status": status });
            fixture::merge(&mut current, &changes);
            let refusal = check_still_waits(&shown, &fixture::stack(&current), "plan-a").err();
            let text = refusal.map(|error| error.to_string());
            match expected {
                None => assert_eq!(text, None, "{changes}"),
                Some(part) => assert!(text.is_some_and(|text| text.contains(part)), "{changes}"),
            }
        }
    }

    #[test]
    fn the_field_manager_names_the_user() {
        let named = |name: &str| UserInfo {
            username: Some(name.to_owned()),
            ..UserInfo::default()
        };
        assert_eq!(field_manager(Some(&named("alice"))), "sluice-approve:alice");
        assert_eq!(field_manager(Some(&named(""))), "sluice-approve");
        assert_eq!(field_manager(None), "sluice-approve");
        let long = field_manager(Some(&named(&"ä".repeat(200))));
        assert_eq!(long, format!("sluice-approve:{}", "ä".repeat(56)));
    }
}
