//! The decision about a stored plan: approved, refused, rejected, or none of that.

use sluice_api::run::PlanRejection;

use super::*;

fn held(facts: &mut Facts) {
    facts.history.pending.as_mut().unwrap().held = true;
}

#[test]
fn a_waiting_plan() {
    let approved = Approval::Given { by: "kubectl".into() };
    insta::assert_snapshot!(table(vec![
        ("not approved", with_pending(60, false)),
        ("not approved, long ago", with_pending(6000, false)),
        ("approved", change(with_pending(60, false), |f| f.approval = approved.clone())),
        ("auto", change(with_pending(60, false), |f| f.approval = Approval::Auto)),
        ("approved, plan only", change(with_pending(60, false), |f| { f.approval = approved.clone(); f.policy.plan_only = true; })),
        ("approved, inputs changed", change(with_pending(60, false), |f| { f.approval = approved.clone(); f.inputs = Inputs::Known("i2".into()); })),
        ("auto, inputs changed", change(with_pending(60, false), |f| { f.approval = Approval::Auto; f.inputs = Inputs::Known("i2".into()); })),
        ("approved, destroy switched on", change(with_pending(60, false), |f| { f.approval = approved.clone(); f.policy.destroy = true; })),
        ("replan", change(with_pending(60, false), |f| { f.approval = Approval::Replan; f.generation = 2; })),
        ("replanned", change(with_pending(60, false), |f| f.approval = Approval::Replan)),
        ("drift, manual", with_pending(60, true)),
        ("drift, manual, interval over", with_pending(600, true)),
        ("drift, manual, requested", change(with_pending(60, true), |f| f.request = Some("t".into()))),
        ("not approved, requested", change(with_pending(60, false), |f| f.request = Some("t".into()))),
        ("plan only, requested", change(with_pending(60, false), |f| { f.policy.plan_only = true; f.request = Some("t".into()); })),
        ("drift, approved, requested", change(with_pending(60, true), |f| { f.approval = approved.clone(); f.request = Some("t".into()); })),
        ("drift, auto", change(with_pending(60, true), |f| f.approval = Approval::Auto)),
        ("drift, auto, held", change(with_pending(60, true), |f| { f.approval = Approval::Auto; held(f); })),
        ("drift, auto, held, interval over", change(with_pending(600, true), |f| { f.approval = Approval::Auto; held(f); })),
        ("auto, held", change(with_pending(6000, false), |f| { f.approval = Approval::Auto; held(f); })),
        ("auto, held, approved", change(with_pending(60, false), |f| { f.approval = approved.clone(); held(f); })),
        ("auto, held, inputs changed", change(with_pending(60, false), |f| { f.approval = Approval::Auto; held(f); f.inputs = Inputs::Known("i2".into()); })),
        ("force", change(with_pending(60, false), |f| { f.approval = Approval::Auto; f.policy.forced = true; })),
        ("drift, disabled", change(with_pending(60, true), |f| f.approval = Approval::Disabled)),
        ("drift, disabled, requested", change(with_pending(60, true), |f| { f.approval = Approval::Disabled; f.request = Some("t".into()); })),
        ("drift, disabled, interval over", change(with_pending(600, true), |f| f.approval = Approval::Disabled)),
    ]), @"
    not approved: AwaitApproval
    not approved, long ago: AwaitApproval
    approved: Apply because Approval, attempt 1, plan-main-aa-ee, approved by kubectl
    auto: Apply because Approval, attempt 1, plan-main-aa-ee, approved by auto
    approved, plan only: ShowPlan None
    approved, inputs changed: Plan because Revision, attempt 1
    auto, inputs changed: PlanAndApply because Revision, attempt 1, approved by auto
    approved, destroy switched on: Plan (destroy) because Revision, attempt 1
    replan: Plan because Spec, attempt 1
    replanned: AwaitApproval
    drift, manual: AwaitApproval
    drift, manual, interval over: Plan because Interval, attempt 1
    drift, manual, requested: Plan because Request, attempt 1
    not approved, requested: Plan because Request, attempt 1
    plan only, requested: Plan because Request, attempt 1
    drift, approved, requested: Apply because Approval, attempt 1, plan-main-aa-ee, approved by kubectl
    drift, auto: Apply because Drift, attempt 1, plan-main-aa-ee, approved by auto
    drift, auto, held: AwaitApproval
    drift, auto, held, interval over: Plan because Interval, attempt 1
    auto, held: AwaitApproval
    auto, held, approved: Apply because Approval, attempt 1, plan-main-aa-ee, approved by kubectl
    auto, held, inputs changed: PlanAndApply because Revision, attempt 1, approved by auto
    force: Apply because Approval, attempt 1, plan-main-aa-ee, approved by force
    drift, disabled: ShowPlan Some(540)
    drift, disabled, requested: Plan because Request, attempt 1
    drift, disabled, interval over: Plan because Interval, attempt 1
    ");
}

#[test]
fn a_refused_apply_is_repeated_after_the_retry_interval() {
    let given = || Approval::Given { by: "alice".into() };
    let step = |approval: Approval, ago: i64, edit: fn(&mut Facts)| {
        let mut facts = with_pending(60, false);
        facts.approval = approval;
        facts.history.refused_apply = Some(at(NOW - ago));
        edit(&mut facts);
        line(&decide(&facts, &[]))
    };
    assert_eq!(step(given(), 5, |_| {}), "RetryAt +10s");
    assert_eq!(step(Approval::Auto, 5, |_| {}), "RetryAt +10s");
    // No run handles a request by a refusal, so it would repeat without end.
    assert_eq!(step(given(), 5, |f| f.request = Some("t".into())), "RetryAt +10s");
    assert_eq!(
        step(given(), 15, |_| {}),
        "Apply because Approval, attempt 1, plan-main-aa-ee, approved by alice"
    );
    assert_eq!(step(Approval::None, 5, |_| {}), "AwaitApproval");
    assert_eq!(
        step(given(), 5, |f| f.inputs = Inputs::Known("i2".into())),
        "Plan because Revision, attempt 1"
    );
}

#[test]
fn a_rejected_plan_waits_for_a_change_or_a_request() {
    type Edit = fn(&mut Facts);
    let step = |drift: bool, edit: Edit| {
        let mut facts = with_pending(6000, drift);
        facts.history.pending.as_mut().unwrap().rejection = Some(PlanRejection::default());
        edit(&mut facts);
        line(&decide(&facts, &[]))
    };
    let nothing: [Edit; 5] = [
        |_| {},
        |f| f.approval = Approval::Auto,
        |f| f.approval = Approval::Given { by: "u".into() },
        |f| f.generation = 2,
        |f| f.approval = Approval::Replan,
    ];
    let changes: [(Edit, &str); 5] = [
        (
            |f| f.request = Some("t".into()),
            "Plan because Request, attempt 1",
        ),
        (
            |f| f.inputs = Inputs::Known("i2".into()),
            "Plan because Revision, attempt 1",
        ),
        (
            |f| {
                f.inputs = Inputs::Known("i2".into());
                f.approval = Approval::Auto;
            },
            "PlanAndApply because Revision, attempt 1, approved by auto",
        ),
        (
            |f| f.policy.destroy = true,
            "Plan (destroy) because Revision, attempt 1",
        ),
        (
            |f| {
                f.generation = 2;
                f.approval = Approval::Replan;
            },
            "Plan because Spec, attempt 1",
        ),
    ];
    for drift in [false, true] {
        for edit in nothing {
            assert_eq!(step(drift, edit), "PlanRejected");
        }
        for (edit, wanted) in changes {
            assert_eq!(step(drift, edit), wanted);
        }
    }
    // Without the rejection the same facts apply the plan.
    let mut facts = with_pending(6000, false);
    facts.approval = Approval::Given { by: "u".into() };
    assert!(line(&decide(&facts, &[])).starts_with("Apply because Approval"));
}
