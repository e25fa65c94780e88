//! The decision as a table. Its safety over random facts is in `properties`, stored plans are in `pending_plan`.

mod pending_plan;
mod properties;

use jiff::SignedDuration;

use super::{Strategy, *};

pub(super) const NOW: i64 = 1_000_000;

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

pub(crate) fn facts() -> Facts {
    Facts {
        deleting: false,
        suspended: false,
        unsupported_field: None,
        contradiction: None,
        generation: 1,
        policy: Policy::default(),
        approval: Approval::None,
        dependencies: Dependencies::Ready,
        source: SourceFact::Found {
            revision: "main@sha1:aa".into(),
            digest: "sha256:bb".into(),
        },
        inputs: Inputs::Known("i1".into()),
        history: History {
            next_sequence: 1,
            ..History::default()
        },
        request: None,
        interval: SignedDuration::from_mins(10),
        interval_offset: None,
        retry: RetryPolicy {
            interval: SignedDuration::from_secs(15),
            strategy: Strategy::Static,
            longest: SignedDuration::from_hours(24),
            retries: None,
        },
        now: at(NOW),
    }
}

pub(crate) fn ended(outcome: Outcome, ago: i64) -> RunFact {
    RunFact {
        name: "app-1234-1".into(),
        action: RunAction::Plan,
        trigger: Trigger::Revision,
        destroy: false,
        generation: 1,
        inputs: "i1".into(),
        source: "sha256:bb".into(),
        attempt: 1,
        outcome,
        stale: false,
        needs_change: false,
        disrupted: false,
        finished: at(NOW - ago),
    }
}

pub(super) fn with_last(last: RunFact) -> Facts {
    let mut facts = facts();
    facts.history.last_success = (last.outcome == Outcome::Succeeded).then_some(last.finished);
    facts.history.last = Some(last);
    facts
}

/// Only a change helps after the last run: the image of its pod does not have the CLI, or its state is another one.
fn needs_change(facts: Facts) -> Facts {
    change(facts, |f| f.history.last.as_mut().unwrap().needs_change = true)
}

pub(super) fn with_pending(ago: i64, drift: bool) -> Facts {
    let mut facts = with_last(ended(Outcome::Succeeded, ago));
    facts.history.pending = Some(Pending {
        plan_id: "plan-main-aa-ee".into(),
        run: "app-1234-1".into(),
        drift,
        held: false,
        rejection: None,
        planned: at(NOW - ago),
    });
    facts
}

/// The step in one line, as the tables show it.
pub(super) fn line(step: &Step) -> String {
    match step {
        Step::Start(run) => format!(
            "{:?}{} because {:?}, attempt {}{}{}",
            run.action,
            if run.destroy { " (destroy)" } else { "" },
            run.trigger,
            run.attempt,
            run.plan
                .as_ref()
                .map(|(id, _)| format!(", {id}"))
                .unwrap_or_default(),
            run.approved_by
                .as_ref()
                .map(|by| format!(", approved by {by}"))
                .unwrap_or_default(),
        ),
        Step::Idle(Idle::InputPause(when)) => format!("InputPause +{}s", when.as_second() - NOW),
        Step::Idle(Idle::RetryAt(when)) if when == &Timestamp::MAX => "RetryAt never".to_owned(),
        Step::Idle(Idle::RetryAt(when)) => format!("RetryAt +{}s", when.as_second() - NOW),
        Step::Idle(Idle::InSync(when)) if when == &Timestamp::MAX => "InSync for ever".to_owned(),
        Step::Idle(Idle::InSync(when)) => format!("InSync +{}s", when.as_second() - NOW),
        Step::Idle(Idle::ShowPlan { again }) => {
            format!("ShowPlan {:?}", again.map(|when| when.as_second() - NOW))
        }
        Step::Idle(rest) => format!("{rest:?}"),
        other => format!("{other:?}"),
    }
}

pub(super) fn table(rows: Vec<(&str, Facts)>) -> String {
    table_with(&[], rows)
}

/// The table of stacks with these dependents.
pub(super) fn table_with(dependents: &[String], rows: Vec<(&str, Facts)>) -> String {
    let lines = rows
        .into_iter()
        .map(|(name, facts)| format!("{name}: {}", line(&decide(&facts, dependents))));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn runs_caused_only_by_inputs_are_paused() {
    let after_input_runs = |edit: &dyn Fn(&mut Facts)| {
        let mut facts = with_last(ended(Outcome::Succeeded, 5));
        facts.history.input_runs = Some(InputRunStreak {
            count: 3,
            ended: at(NOW - 5),
        });
        facts.inputs = Inputs::Known("i2".into());
        edit(&mut facts);
        facts
    };
    let source = |digest: &str| SourceFact::Found {
        revision: "main@sha1:cc".into(),
        digest: digest.into(),
    };
    insta::assert_snapshot!(table(vec![
        ("inputs changed again", after_input_runs(&|_| ())),
        ("the pause is over", after_input_runs(&|f| f.now = at(NOW + 35))),
        ("the first time", after_input_runs(&|f| f.history.input_runs = None)),
        ("a commit", after_input_runs(&|f| f.source = source("sha256:cc"))),
        ("an edit", after_input_runs(&|f| f.generation = 2)),
        ("a request", after_input_runs(&|f| f.request = Some("now".into()))),
        ("inputs as they were", after_input_runs(&|f| f.inputs = Inputs::Known("i1".into()))),
    ]), @"
    inputs changed again: InputPause +35s
    the pause is over: Plan because Revision, attempt 1
    the first time: Plan because Revision, attempt 1
    a commit: Plan because Revision, attempt 1
    an edit: Plan because Spec, attempt 1
    a request: Plan because Revision, attempt 1
    inputs as they were: InSync +595s
    ");
}

pub(super) fn change(mut facts: Facts, edit: impl FnOnce(&mut Facts)) -> Facts {
    edit(&mut facts);
    facts
}

fn unsupported(text: &str) -> UnsupportedField {
    UnsupportedField {
        reason: "InvalidToolVersion",
        text: text.to_owned(),
    }
}

#[test]
fn a_stack_without_deletion() {
    let failed = |ago| with_last(ended(Outcome::Failed, ago));
    insta::assert_snapshot!(table(vec![
        ("new", facts()),
        ("new, auto", change(facts(), |f| f.approval = Approval::Auto)),
        ("new, auto, plan only", change(facts(), |f| { f.approval = Approval::Auto; f.policy.plan_only = true; })),
        ("new, destroy, auto", change(facts(), |f| { f.approval = Approval::Auto; f.policy.destroy = true; })),
        ("suspended", change(facts(), |f| f.suspended = true)),
        ("unsupported field", change(facts(), |f| f.unsupported_field = Some(unsupported("spec.cloud")))),
        ("no artifact", change(facts(), |f| f.source = SourceFact::NoArtifact)),
        ("inputs unknown", change(facts(), |f| f.inputs = Inputs::Failed { reason: "VarsGenerationFailed", message: String::new() })),
        ("steady", with_last(ended(Outcome::Succeeded, 60))),
        ("steady, revision moved, inputs same", with_last(ended(Outcome::Succeeded, 60))),
        ("inputs changed by a commit", change(with_last(ended(Outcome::Succeeded, 60)), |f| f.inputs = Inputs::Known("i2".into()))),
        ("inputs changed by the spec", change(with_last(ended(Outcome::Succeeded, 60)), |f| { f.inputs = Inputs::Known("i2".into()); f.generation = 2; })),
        ("interval over", with_last(ended(Outcome::Succeeded, 600))),
        ("its run is old, its success is not", change(with_last(ended(Outcome::Succeeded, 7_776_000)), |f| f.history.last_success = Some(at(NOW - 60)))),
        ("interval over, auto", change(with_last(ended(Outcome::Succeeded, 600)), |f| f.approval = Approval::Auto)),
        ("interval of nothing", change(with_last(ended(Outcome::Succeeded, 600)), |f| f.interval = SignedDuration::ZERO)),
        ("requested", change(with_last(ended(Outcome::Succeeded, 60)), |f| f.request = Some("t".into()))),
        ("failed just now", failed(5)),
        ("failed a while ago", failed(15)),
        ("failed, lost", with_last(ended(Outcome::Lost, 15))),
        ("failed, spec edited since", change(failed(5), |f| f.generation = 2)),
        ("failed, requested", change(failed(5), |f| f.request = Some("t".into()))),
        ("failed, no retries", change(failed(15), |f| f.retry.retries = Some(0))),
        ("failed, no retries, requested", change(failed(15), |f| { f.retry.retries = Some(0); f.request = Some("t".into()); })),
        ("stale plan", change(failed(0), |f| f.history.last.as_mut().unwrap().stale = true)),
    ]), @"
    new: Plan because Revision, attempt 1
    new, auto: PlanAndApply because Revision, attempt 1, approved by auto
    new, auto, plan only: Plan because Revision, attempt 1
    new, destroy, auto: PlanAndApply (destroy) because Revision, attempt 1, approved by auto
    suspended: Suspended
    unsupported field: UnsupportedField
    no artifact: Source
    inputs unknown: InputsUnknown
    steady: InSync +540s
    steady, revision moved, inputs same: InSync +540s
    inputs changed by a commit: Plan because Revision, attempt 1
    inputs changed by the spec: Plan because Spec, attempt 1
    interval over: Plan because Interval, attempt 1
    its run is old, its success is not: InSync +540s
    interval over, auto: Plan because Interval, attempt 1
    interval of nothing: InSync for ever
    requested: Plan because Request, attempt 1
    failed just now: RetryAt +10s
    failed a while ago: Plan because Retry, attempt 2
    failed, lost: Plan because Retry, attempt 2
    failed, spec edited since: Plan because Spec, attempt 1
    failed, requested: Plan because Request, attempt 1
    failed, no retries: RetryLimit
    failed, no retries, requested: Plan because Request, attempt 1
    stale plan: Plan because Retry, attempt 2
    ");
}

#[test]
fn a_run_whose_image_lacks_the_cli() {
    let failed = |ago| needs_change(with_last(ended(Outcome::Failed, ago)));
    insta::assert_snapshot!(table(vec![
        ("a while ago", failed(15)),
        ("interval over", failed(600)),
        ("interval of nothing", change(failed(600), |f| f.interval = SignedDuration::ZERO)),
        ("a retry delay longer than the interval", change(failed(600), |f| f.retry.interval = SignedDuration::from_mins(20))),
        ("spec edited since", change(failed(5), |f| f.generation = 2)),
        ("requested", change(failed(5), |f| f.request = Some("t".into()))),
    ]), @"
    a while ago: RetryAt +585s
    interval over: Plan because Retry, attempt 2
    interval of nothing: RetryAt +85800s
    a retry delay longer than the interval: RetryAt +600s
    spec edited since: Plan because Spec, attempt 1
    requested: Plan because Request, attempt 1
    ");
}

#[test]
fn a_check_that_failed() {
    let failed = |ago| with_last(ended(Outcome::Failed, ago));
    let check = |facts| {
        change(facts, |f| {
            f.approval = Approval::Auto;
            f.history.checked = true;
        })
    };
    insta::assert_snapshot!(table(vec![
        ("auto, failed", change(failed(15), |f| f.approval = Approval::Auto)),
        ("auto, a check failed", check(failed(15))),
        ("auto, a check failed, spec edited since", change(check(failed(5)), |f| f.generation = 2)),
        ("auto, a check failed, requested", change(check(failed(5)), |f| f.request = Some("t".into()))),
    ]), @"
    auto, failed: PlanAndApply because Retry, attempt 2, approved by auto
    auto, a check failed: Plan because Retry, attempt 2
    auto, a check failed, spec edited since: Plan because Spec, attempt 1
    auto, a check failed, requested: Plan because Request, attempt 1
    ");
}

#[test]
fn a_deleted_stack() {
    let deleting = |edit: fn(&mut Facts)| {
        change(facts(), |f| {
            f.deleting = true;
            f.policy.destroy_on_deletion = true;
            edit(f);
        })
    };
    let destroyed = |outcome, ago| RunFact {
        trigger: Trigger::Deletion,
        destroy: true,
        ..ended(outcome, ago)
    };
    let withheld = |ago, edit: fn(&mut Facts)| {
        change(deleting(edit), |f| {
            f.history.last = Some(destroyed(Outcome::Succeeded, ago));
            f.history.pending = with_pending(ago, false).history.pending;
        })
    };
    insta::assert_snapshot!(table(vec![
        ("keep resources", deleting(|f| f.policy.destroy_on_deletion = false)),
        ("keep resources, source gone", deleting(|f| { f.policy.destroy_on_deletion = false; f.source = SourceFact::NoArtifact; })),
        ("destroy", deleting(|_| {})),
        ("destroy, source gone", deleting(|f| { f.source = SourceFact::NoArtifact; f.inputs = Inputs::Unresolved; })),
        ("suspended", deleting(|f| f.suspended = true)),
        ("a run is in progress", deleting(|f| f.history.active = Some(RunFact { outcome: Outcome::Active, ..ended(Outcome::Active, 1) }))),
        ("destroyed", change(deleting(|_| {}), |f| f.history.last = Some(destroyed(Outcome::Succeeded, 1)))),
        ("destroy failed", change(deleting(|_| {}), |f| f.history.last = Some(destroyed(Outcome::Failed, 1)))),
        ("destroy failed a while ago", change(deleting(|_| {}), |f| f.history.last = Some(destroyed(Outcome::Failed, 20)))),
        ("held", withheld(20, |_| {})),
        ("held, interval over", withheld(600, |_| {})),
        ("held, interval of nothing", withheld(20, |f| f.interval = SignedDuration::ZERO)),
        ("held, spec edited since", withheld(1, |f| f.generation = 2)),
        ("held, requested", withheld(1, |f| f.request = Some("t".into()))),
        ("no such CLI", needs_change(change(deleting(|_| {}), |f| f.history.last = Some(destroyed(Outcome::Failed, 20))))),
        ("no such CLI, spec edited since", needs_change(change(deleting(|f| f.generation = 2), |f| f.history.last = Some(destroyed(Outcome::Failed, 20))))),
    ]), @"
    keep resources: Release
    keep resources, source gone: Release
    destroy: PlanAndApply (destroy) because Deletion, attempt 1, approved by deletion
    destroy, source gone: Source
    suspended: DeletionSuspended
    a run is in progress: Follow
    destroyed: Release
    destroy failed: RetryAt +14s
    destroy failed a while ago: PlanAndApply (destroy) because Deletion, attempt 2, approved by deletion
    held: RetryAt +580s
    held, interval over: PlanAndApply (destroy) because Deletion, attempt 2, approved by deletion
    held, interval of nothing: RetryAt +86380s
    held, spec edited since: PlanAndApply (destroy) because Deletion, attempt 2, approved by deletion
    held, requested: PlanAndApply (destroy) because Deletion, attempt 2, approved by deletion
    no such CLI: RetryAt +580s
    no such CLI, spec edited since: PlanAndApply (destroy) because Deletion, attempt 2, approved by deletion
    ");
}

/// All causes at once; each step removes the one that decided. The order is that of the list in the documentation of the module.
#[test]
fn the_rules_apply_in_the_documented_order() {
    type Edit = fn(&mut Facts);
    let mut f = with_pending(60, false);
    f.deleting = true;
    f.suspended = true;
    f.contradiction = Some("both".into());
    f.unsupported_field = Some(unsupported("spec.x"));
    f.source = SourceFact::NoArtifact;
    f.policy.break_glass = BreakGlass::Completed;
    f.inputs = Inputs::Known("i2".into());
    f.history.outputs_gone = true;
    f.history.active = Some(ended(Outcome::Active, 0));
    let rules: [(&str, Edit); 11] = [
        ("Follow", |f| f.deleting = false),
        ("Follow", |f| f.history.active = None),
        ("Suspended", |f| f.suspended = false),
        ("ContradictingFields", |f| f.contradiction = None),
        ("UnsupportedField", |f| f.unsupported_field = None),
        ("Source", |f| f.source = facts().source),
        ("BreakGlassCompleted", |f| {
            f.policy.break_glass = BreakGlass::NotRequested;
        }),
        ("Plan because Revision, attempt 1", |f| {
            f.inputs = Inputs::Known("i1".into());
        }),
        ("AwaitApproval", |f| {
            f.history.pending = None;
            f.history.last.as_mut().unwrap().outcome = Outcome::Failed;
            f.request = Some("token".into());
        }),
        ("Plan because Request, attempt 1", |f| {
            f.history.last.as_mut().unwrap().outcome = Outcome::Succeeded;
        }),
        ("Plan because Repair, attempt 1", |f| {
            f.history.outputs_gone = false;
        }),
    ];
    for (step, remove) in rules {
        assert_eq!(line(&decide(&f, &[])), step);
        remove(&mut f);
    }
    assert_eq!(line(&decide(&f, &[])), "Plan because Request, attempt 1");
    f.request = None;
    assert!(
        line(&decide(&f, &[])).starts_with("InSync"),
        "the interval is last"
    );
}
