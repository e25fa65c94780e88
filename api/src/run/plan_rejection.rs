//! The rejection of a plan by a user: an annotation of the Terraform object that names the plan. It counts only for the effect of that
//! plan, as an approval does, and comes before every approval of it. tf-controller copies it to the status of the run that made the plan,
//! where it stays. Pure.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TerraformRunStatus;
use crate::annotation::REJECTED_PLAN;
use crate::terraform::Terraform;
use crate::terraform::plan_id::PlanId;
use crate::terraform::required_approvals::named_effect;

/// Characters of a name or a comment that are kept, as in a PlanApproval.
const TEXT_LENGTH: usize = 1024;

/// The rejection of the plan that a run made, in the status of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanRejection {
    /// Why, as the annotation has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// When, as the annotation has it, or else when the controller saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_at: Option<Time>,
    /// The user that the annotation names; empty if it names none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rejected_by: String,
}

impl fmt::Display for PlanRejection {
    /// Formats `rejected by alice at 2026-01-08T09:00:00Z: comment`, without what is not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rejected")?;
        if !self.rejected_by.is_empty() {
            write!(f, " by {}", self.rejected_by)?;
        }
        if let Some(at) = &self.rejected_at {
            write!(f, " at {:.0}", at.0)?;
        }
        if !self.comment.is_empty() {
            write!(f, ": {}", self.comment)?;
        }
        Ok(())
    }
}

/// The value of the annotation. A value that is no such object is the id of the plan alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RejectionRequest {
    /// The whole id of the plan, or its effect digest.
    #[serde(rename = "planID")]
    plan_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    rejected_by: String,
    /// A time as in RFC 3339. Another text is ignored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    rejected_at: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    comment: String,
}

/// Returns the value of [`REJECTED_PLAN`] that rejects the plan with this id.
///
/// # Errors
/// The value cannot be written as JSON: a bug.
pub fn rejection_request(plan: &str, rejection: &PlanRejection) -> Result<String, serde_json::Error> {
    serde_json::to_string(&RejectionRequest {
        plan_id: plan.to_owned(),
        rejected_by: rejection.rejected_by.clone(),
        rejected_at: rejection
            .rejected_at
            .as_ref()
            .map_or_else(String::new, |at| format!("{:.0}", at.0)),
        comment: rejection.comment.clone(),
    })
}

/// Returns the rejection of the plan with this id: the one that its run records, or else the one in the annotation of the object. An
/// annotation that names another plan, or a part of an id, rejects nothing.
#[must_use]
pub fn rejection_of(
    terraform: &Terraform,
    plan: &str,
    made_by: Option<&TerraformRunStatus>,
) -> Option<PlanRejection> {
    let recorded = made_by.and_then(|status| status.rejection.clone());
    recorded.or_else(|| requested(terraform, plan))
}

/// Returns the rejection in the annotation, if it names this plan.
fn requested(terraform: &Terraform, plan: &str) -> Option<PlanRejection> {
    let text = terraform.metadata.annotations.as_ref()?.get(REJECTED_PLAN)?;
    let request: RejectionRequest = serde_json::from_str(text).unwrap_or_else(|_| RejectionRequest {
        plan_id: text.trim().to_owned(),
        ..RejectionRequest::default()
    });
    let pending = plan.parse::<PlanId>().ok()?;
    if named_effect(&request.plan_id)? != *pending.effect() {
        return None;
    }
    let cut = |text: &str| text.chars().take(TEXT_LENGTH).collect();
    Some(PlanRejection {
        comment: cut(&request.comment),
        rejected_at: request.rejected_at.parse().ok().map(Time),
        rejected_by: cut(&request.rejected_by),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAN: &str = "plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567";
    const EFFECT: &str = "0123456789abcdef0123456789abcdef01234567";
    const OTHER: &str = "plan-main-b8e362c206-1123456789abcdef0123456789abcdef01234567";

    fn stack(annotation: &str) -> Terraform {
        serde_json::from_value(json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
            "metadata": { "name": "app", "annotations": { REJECTED_PLAN: annotation } },
            "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "repo" } },
        }))
        .unwrap()
    }

    fn alice() -> PlanRejection {
        PlanRejection {
            comment: "too big".to_owned(),
            rejected_at: Some(Time("2026-01-08T09:00:00Z".parse().unwrap())),
            rejected_by: "alice".to_owned(),
        }
    }

    #[test]
    fn an_annotation_rejects_only_the_plan_that_it_names() {
        let rejects = |annotation: &str, plan: &str| rejection_of(&stack(annotation), plan, None).is_some();
        let object = json!({ "planID": PLAN }).to_string();
        let with_newline = format!(" {PLAN}\n");
        for named in [PLAN, EFFECT, with_newline.as_str(), object.as_str()] {
            assert!(rejects(named, PLAN), "{named}");
            assert!(!rejects(named, OTHER), "{named}");
            assert!(!rejects(named, ""), "{named}");
        }
        let other = json!({ "planID": OTHER }).to_string();
        for nothing in [
            "",
            "plan-main-b8e362c206",
            &EFFECT[..39],
            "*",
            "true",
            "{}",
            "{\"planID\": 1}",
            OTHER,
            other.as_str(),
        ] {
            assert!(!rejects(nothing, PLAN), "{nothing}");
        }
        // A plan of tofu-controller has no effect digest.
        assert!(!rejects("plan-main-b8e362c206", "plan-main-b8e362c206"));
    }

    #[test]
    fn a_request_says_who_when_and_why() {
        let request = rejection_request(PLAN, &alice()).unwrap();
        let found = rejection_of(&stack(&request), PLAN, None).unwrap();
        assert_eq!(found, alice());
        assert_eq!(
            found.to_string(),
            "rejected by alice at 2026-01-08T09:00:00Z: too big"
        );
        let bare = rejection_of(&stack(PLAN), PLAN, None).unwrap();
        assert_eq!(
            (bare.clone(), bare.to_string().as_str()),
            (PlanRejection::default(), "rejected")
        );
        let late = json!({ "planID": PLAN, "rejectedAt": "tomorrow", "comment": "é".repeat(2000) });
        let found = rejection_of(&stack(&late.to_string()), PLAN, None).unwrap();
        assert_eq!(
            (found.rejected_at, found.comment.chars().count()),
            (None, TEXT_LENGTH)
        );
    }

    #[test]
    fn what_the_run_records_stays_without_the_annotation() {
        let status = TerraformRunStatus {
            rejection: Some(alice()),
            ..TerraformRunStatus::default()
        };
        assert_eq!(rejection_of(&stack(OTHER), PLAN, Some(&status)), Some(alice()));
        let none = TerraformRunStatus::default();
        assert_eq!(rejection_of(&stack(OTHER), PLAN, Some(&none)), None);
    }
}
