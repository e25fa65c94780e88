//! The PlanApprovals of a stack: what the gate needs to know of them, and their status. The status is shown. One decision reads it: what rules of
//! `spec.approval` refused does not count after these are removed.

use std::sync::Arc;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::json;
use sluice_api::run::{Phase, PlanApproval, PlanApprovalStatus, TerraformRun};
use sluice_api::terraform::approval::{ApprovalDecision, ApprovalPolicy, evaluate_spec};
use sluice_api::terraform::plan_id::PlanId;
use sluice_api::terraform::required_approvals::{ApprovalEvidence, Verdict, judge_without_rules};
use sluice_api::terraform::{Reason, Terraform};

use super::Context;
use super::history::{by_sequence, candidate_plan, find_run};
use super::observe::Observed;
use super::report::phase;
use crate::decide::Pending;

/// Returns the cached approvals that name the stack.
pub(super) fn cached(stack: &Terraform, context: &Context) -> Vec<PlanApproval> {
    let (namespace, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    let names_stack = |approval: &PlanApproval| {
        approval.spec.terraform_ref.name == name
            && approval.namespace().as_deref() == Some(namespace.as_str())
    };
    let found = context.approvals.filter(names_stack);
    found.into_iter().map(Arc::unwrap_or_clone).collect()
}

/// Returns what the gate needs to know about the plan that this run stored.
pub(super) fn evidence<'a>(
    runs: &'a [TerraformRun],
    run: &str,
    approvals: &'a [PlanApproval],
) -> ApprovalEvidence<'a> {
    ApprovalEvidence {
        approvals,
        author: find_run(runs, run).map_or("", |run| run.spec.source.author.as_str()),
        since: planned_since(runs, run),
    }
}

/// Returns the creation of the first run in a row that planned the effect that this run planned. Failed runs between them change
/// nothing; a plan without changes, one with another effect, and an apply end the row.
pub(super) fn planned_since(runs: &[TerraformRun], name: &str) -> Option<Timestamp> {
    let mut newer = by_sequence(runs).into_iter().rev();
    let planned = newer.find(|run| run.name_any() == name)?;
    let effect = effect_of(planned);
    let mut first = planned;
    for run in newer {
        match effect_of(run) {
            _ if ends_row(run) => break,
            "" => {}
            other if other == effect => first = run,
            _ => break,
        }
    }
    first.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn effect_of(run: &TerraformRun) -> &str {
    let status = run.status.as_ref();
    status.map_or("", |status| status.effect_digest.as_str())
}

/// Returns whether a plan before this run is not the one that waits after it.
fn ends_row(run: &TerraformRun) -> bool {
    let Some(status) = &run.status else { return false };
    let has_applied = status.attempted_apply && status.reason != Reason::PlanStale.as_str();
    has_applied || phase(run) == Phase::Succeeded && status.has_changes == Some(false)
}

/// Writes whether the approvals of the stack count, and makes it their owner, so that they are deleted with it. A later
/// reconciliation retries failures.
pub(super) async fn report(
    stack: &Terraform,
    observed: &Observed,
    pending: Option<&Pending>,
    context: &Context,
) {
    let api: Api<PlanApproval> = context.api_of(stack);
    let params = PatchParams::default();
    for approval in observed.approvals.iter().filter(|one| !is_owned(one, stack)) {
        let Some(owner) = stack.owner_ref(&()) else { break };
        let mut owners = approval.owner_references().to_vec();
        owners.push(owner);
        let patch = Patch::Merge(json!({ "metadata": { "ownerReferences": owners } }));
        log_failure(approval, api.patch(&approval.name_any(), &params, &patch).await);
    }
    for (approval, status) in outdated(stack, observed, pending) {
        let patch = Patch::Merge(json!({ "status": status }));
        log_failure(
            approval,
            api.patch_status(&approval.name_any(), &params, &patch).await,
        );
    }
}

fn log_failure(approval: &PlanApproval, written: Result<PlanApproval, kube::Error>) {
    if let Err(error) = written {
        tracing::debug!(approval = approval.name_any(), %error, "an approval could not be updated");
    }
}

/// Returns whether the stack owns the approval. One that is being deleted needs no owner.
fn is_owned(approval: &PlanApproval, stack: &Terraform) -> bool {
    let uid = stack.uid().unwrap_or_default();
    approval.metadata.deletion_timestamp.is_some()
        || approval.owner_references().iter().any(|owner| owner.uid == uid)
}

/// Returns the approvals whose status differs, with the new one.
fn outdated<'a>(
    stack: &Terraform,
    observed: &'a Observed,
    pending: Option<&'a Pending>,
) -> Vec<(&'a PlanApproval, PlanApprovalStatus)> {
    let new = |approval: &'a PlanApproval, status: PlanApprovalStatus| {
        let is_kept = approval
            .status
            .as_ref()
            .is_some_and(|known| is_kept(known, &status));
        (!is_kept).then_some((approval, status))
    };
    let of_all = |reason: &str, message: &str| {
        let approvals = observed.approvals.iter();
        approvals
            .filter_map(|approval| new(approval, refused(reason, message)))
            .collect()
    };
    let id = pending.and_then(|pending| pending.plan_id.parse::<PlanId>().ok());
    let (Some(pending), Some(id)) = (pending, id) else {
        return of_all(NO_PLAN, "no plan waits for approval");
    };
    if let Some(rejection) = &pending.rejection {
        return of_all(
            Reason::PlanRejected.as_str(),
            &format!("the plan was {rejection}"),
        );
    }
    let candidate = candidate_plan(pending, &observed.runs, &observed.approvals);
    let judged = match &stack.spec.approval {
        Some(required) => required.judge(&id, candidate.evidence),
        None => judge_without_rules(&id, candidate.evidence),
    };
    let withheld = withheld(stack, &pending.plan_id);
    judged
        .into_iter()
        .filter_map(|judged| {
            let status = match (judged.verdict, withheld) {
                (Verdict::Counted | Verdict::Repeated, Some((reason, message))) => refused(reason, message),
                (verdict, _) => PlanApprovalStatus {
                    accepted: verdict == Verdict::Counted,
                    ..refused(verdict.reason(), &verdict.to_string())
                },
            };
            new(judged.approval, status)
        })
        .collect()
}

/// The reason while no plan waits for approval.
const NO_PLAN: &str = "NoPlan";
/// The reason of an approval that meets all rules while the spec applies no plan.
const WITHHELD: &str = "Withheld";
/// The reason during the deletion of the stack.
const NEEDS_ID: &str = "NeedsId";

/// Returns why no approval by users applies the pending plan: reason and message. As the gate has it (`sluice_api::run::gate`).
fn withheld(stack: &Terraform, plan_id: &str) -> Option<(&'static str, &'static str)> {
    if stack.metadata.deletion_timestamp.is_some() {
        let message = "only its id in approvePlan releases the destroy of a deleted object";
        return Some((NEEDS_ID, message));
    }
    let message = match evaluate_spec(ApprovalPolicy::from(&stack.spec), plan_id) {
        ApprovalDecision::Disabled => "approvePlan is \"disable\", so no plan is applied",
        ApprovalDecision::PlanOnly => "planOnly is set, so no plan is applied",
        ApprovalDecision::Replan => "approvePlan requests another plan",
        _ => return None,
    };
    Some((WITHHELD, message))
}

fn refused(reason: &str, message: &str) -> PlanApprovalStatus {
    PlanApprovalStatus {
        accepted: false,
        message: message.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Returns whether the known status stays. What an approval was for its own plan stays when this plan is not pending any more.
fn is_kept(known: &PlanApprovalStatus, new: &PlanApprovalStatus) -> bool {
    let is_past = new.reason == NO_PLAN || new.reason == Verdict::OtherPlan.reason();
    known == new || is_past && (known.accepted || new.reason == NO_PLAN && !known.reason.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::decide::SourceFact;

    const EFFECT: &str = "0123456789abcdef0123456789abcdef01234567";
    const OTHER: &str = "1123456789abcdef0123456789abcdef01234567";

    /// A run that was created on this day of January 2026.
    fn run(day: u32, status: &Value) -> TerraformRun {
        serde_json::from_value(json!({
            "metadata": { "name": format!("net-u1-{day}"), "namespace": "team",
                "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z") },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "2h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team", "author": "Carol <carol@example.org>" },
                "terraform": { "name": "net", "uid": "u1", "generation": 1 } },
            "status": status,
        }))
        .unwrap()
    }

    fn planned(day: u32, effect: &str) -> TerraformRun {
        run(
            day,
            &json!({ "phase": "Succeeded", "hasChanges": true, "effectDigest": effect,
                "planId": format!("plan-main-b8e362c206-{effect}") }),
        )
    }

    fn day(day: u32) -> Timestamp {
        format!("2026-01-{day:02}T00:00:00Z").parse().unwrap()
    }

    #[test]
    fn a_plan_that_is_only_made_again_is_as_old_as_its_first() {
        let failed = run(3, &json!({ "phase": "Failed" }));
        let stale =
            json!({ "phase": "Failed", "attemptedApply": true, "reason": Reason::PlanStale.as_str() });
        let all = [planned(2, EFFECT), failed, run(4, &stale), planned(5, EFFECT)];
        assert_eq!(planned_since(&all, "net-u1-5"), Some(day(2)));
        assert_eq!(planned_since(&all, "net-u1-2"), Some(day(2)));
        assert_eq!(planned_since(&all, "net-u1-9"), None);
        let applied = json!({ "phase": "Succeeded", "attemptedApply": true });
        let clean = json!({ "phase": "Succeeded", "hasChanges": false });
        for between in [planned(3, OTHER), run(3, &applied), run(3, &clean)] {
            let all = [planned(2, EFFECT), between, planned(4, EFFECT)];
            assert_eq!(planned_since(&all, "net-u1-4"), Some(day(4)));
        }
    }

    fn approval(effect: &str, status: &Value) -> PlanApproval {
        let mut approval = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval",
            "metadata": { "name": "one", "namespace": "team", "creationTimestamp": "2026-01-06T00:00:00Z" },
            "spec": { "approver": "alice", "planID": effect, "terraformRef": { "name": "net" } } });
        if !status.is_null() {
            approval["status"] = status.clone();
        }
        serde_json::from_value(approval).unwrap()
    }

    /// A stack with these fields.
    fn stack(fields: &Value) -> Terraform {
        let mut stack = json!({
            "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "metadata": { "name": "net" },
            "spec": { "interval": "1h", "sourceRef": { "kind": "GitRepository", "name": "code" } } });
        for (field, value) in fields.as_object().unwrap() {
            stack["spec"][field] = value.clone();
        }
        serde_json::from_value(stack).unwrap()
    }

    /// The reason that is written for an approval under these rules; `None`: its status stays.
    fn written(rules: &Value, has_plan: bool, approval: PlanApproval) -> Option<String> {
        written_for(&stack(&json!({ "approval": rules })), has_plan, approval)
    }

    /// The reason that is written for an approval of this stack; `None`: its status stays.
    fn written_for(stack: &Terraform, has_plan: bool, approval: PlanApproval) -> Option<String> {
        let observed = Observed {
            source: SourceFact::NotRead,
            approvals: vec![approval],
            ..Observed::with_active_run(vec![planned(5, EFFECT)])
        };
        let pending = Pending {
            plan_id: format!("plan-main-b8e362c206-{EFFECT}"),
            run: "net-u1-5".into(),
            drift: false,
            held: false,
            rejection: None,
            planned: day(5),
        };
        let new = outdated(stack, &observed, Some(&pending).filter(|_| has_plan));
        new.into_iter().next().map(|(_, status)| {
            assert_eq!(status.accepted, status.reason == "Counted");
            status.reason
        })
    }

    #[test]
    fn an_approval_says_why_it_does_not_count() {
        let new = |effect: &str| approval(effect, &Value::Null);
        let reason =
            |spec: Value, has_plan: bool, effect: &str| written(&spec, has_plan, new(effect)).unwrap();
        assert_eq!(reason(json!({}), true, EFFECT), "Counted");
        assert_eq!(reason(json!({}), true, OTHER), "OtherPlan");
        assert_eq!(reason(json!({}), false, EFFECT), "NoPlan");
        assert_eq!(reason(Value::Null, true, EFFECT), "Counted");
        assert_eq!(reason(Value::Null, true, OTHER), "OtherPlan");
        assert_eq!(reason(json!({ "groups": ["ops"] }), true, EFFECT), "NotInGroups");
    }

    #[test]
    fn no_approval_counts_while_the_spec_applies_no_plan() {
        let of = |mut fields: Value, rules: Value, approval: PlanApproval| {
            fields["approval"] = rules;
            written_for(&stack(&fields), true, approval)
        };
        let new = |effect: &str| approval(effect, &Value::Null);
        let counted =
            json!({ "accepted": true, "reason": "Counted", "message": Verdict::Counted.to_string() });
        for fields in [
            json!({ "approvePlan": "disable" }),
            json!({ "approvePlan": "replan" }),
            json!({ "planOnly": true }),
        ] {
            for rules in [Value::Null, json!({})] {
                let of = |approval: PlanApproval| of(fields.clone(), rules.clone(), approval);
                assert_eq!(of(new(EFFECT)), Some("Withheld".into()), "{fields}");
                assert_eq!(
                    of(approval(EFFECT, &counted)),
                    Some("Withheld".into()),
                    "{fields}"
                );
                assert_eq!(of(new(OTHER)), Some("OtherPlan".into()), "{fields}");
                assert_eq!(of(approval(OTHER, &counted)), None, "{fields}");
            }
            let groups = json!({ "groups": ["ops"] });
            assert_eq!(of(fields, groups, new(EFFECT)), Some("NotInGroups".into()));
        }
        // `force` overrides `planOnly`, but not the required approvals.
        let forced = json!({ "planOnly": true, "force": true });
        assert_eq!(of(forced, json!({}), new(EFFECT)), Some("Counted".into()));
        let other = json!({ "approvePlan": "replan-plan-other" });
        assert_eq!(of(other, Value::Null, new(EFFECT)), Some("Counted".into()));
    }

    #[test]
    fn no_approval_counts_for_the_destroy_of_a_deleted_object() {
        for rules in [Value::Null, json!({})] {
            let mut stack = stack(&json!({ "approval": rules }));
            let approval = || approval(EFFECT, &Value::Null);
            assert_eq!(written_for(&stack, true, approval()), Some("Counted".into()));
            stack.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-07T00:00:00Z")).unwrap();
            assert_eq!(written_for(&stack, true, approval()), Some("NeedsId".into()));
        }
    }

    #[test]
    fn what_rules_refused_stays_refused_after_their_removal() {
        let status = |reason: &str| json!({ "accepted": false, "reason": reason, "message": "x" });
        let by_author = approval(EFFECT, &status("ByAuthor"));
        let other = Verdict::GivenUnderOtherRules;
        assert_eq!(
            written(&Value::Null, true, by_author.clone()),
            Some(other.reason().into())
        );
        let known = json!({ "accepted": false, "reason": other.reason(), "message": other.to_string() });
        assert_eq!(written(&Value::Null, true, approval(EFFECT, &known)), None);
        assert_eq!(written(&Value::Null, false, approval(EFFECT, &known)), None);
        // Rules that the stack has again decide by themselves.
        assert_eq!(written(&json!({}), true, by_author), Some("Counted".into()));
    }

    #[test]
    fn what_an_approval_was_for_its_plan_stays_after_the_apply() {
        let counted =
            json!({ "accepted": true, "reason": "Counted", "message": Verdict::Counted.to_string() });
        let refused = json!({ "accepted": false, "reason": "NotInGroups", "message": "x" });
        let policy = json!({});
        assert_eq!(written(&policy, true, approval(EFFECT, &counted)), None);
        assert_eq!(written(&policy, true, approval(OTHER, &counted)), None);
        assert_eq!(written(&policy, false, approval(EFFECT, &counted)), None);
        assert_eq!(written(&policy, false, approval(EFFECT, &refused)), None);
        assert_eq!(
            written(&policy, true, approval(EFFECT, &refused)),
            Some("Counted".into())
        );
    }
}
