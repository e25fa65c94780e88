//! The safety of the decision over random facts.

use jiff::SignedDuration;
use proptest::bool::weighted;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, prop_compose, proptest};
use sluice_api::run::PlanRejection;

use super::super::{Strategy, *};
use super::{NOW, at, change, ended, facts, unsupported};

/// About 1 of 80 facts would apply a stored plan, and the pause withholds 1 of 200: a decision without the pause breaks the property in some
/// 20 of these cases.
const CASES: u32 = 4096;

prop_compose! {
    /// Most of what withholds a run is rare: a stored plan is applied only where all of it is absent.
    fn any_facts()(
        deleting in weighted(0.2), suspended in weighted(0.1), unsupported_field in weighted(0.1), generation in 1_i64..3,
        plan_only in weighted(0.2), destroy in weighted(0.2), destroy_on_deletion: bool, approval in 0_usize..5, source in 0..6,
        inputs in 0..6, active in weighted(0.1),
        last in proptest::option::weighted(0.8, (0_usize..4, 0_i64..2000, 1_u32..50, any::<bool>(), 0..2)),
        pending in proptest::option::weighted(0.8, (any::<bool>(), 0_i64..2000, weighted(0.2))), held: bool, forced: bool,
        refused in proptest::option::weighted(0.7, 0_i64..40), request: bool, exponential: bool,
        retries in proptest::option::of(0_u32..3),
    ) -> Facts {
        let mut f = facts();
        f.deleting = deleting;
        f.suspended = suspended;
        f.unsupported_field = unsupported_field.then(|| unsupported("spec.x"));
        f.generation = generation;
        f.policy = Policy { plan_only, forced, destroy, destroy_on_deletion, ..Policy::default() };
        let approval: usize = approval;
        f.approval = [Approval::None, Approval::Auto, Approval::Given { by: "u".into() }, Approval::Disabled, Approval::Replan][approval].clone();
        if source == 1 { f.source = SourceFact::NoArtifact; }
        if source == 2 { f.source = SourceFact::NotFound("gone".into()); }
        if inputs == 1 { f.inputs = Inputs::Known("i2".into()); }
        if inputs == 2 { f.inputs = Inputs::Unresolved; }
        f.history.active = active.then(|| ended(Outcome::Active, 1));
        f.history.last = last.map(|(outcome, ago, attempt, stale, deletion)| RunFact {
            attempt, stale, trigger: if deletion == 1 { Trigger::Deletion } else { Trigger::Revision },
            ..ended([Outcome::Succeeded, Outcome::Succeeded, Outcome::Failed, Outcome::Lost][outcome], ago)
        });
        if f.history.last.as_ref().is_some_and(|l| l.outcome == Outcome::Succeeded) {
            f.history.pending = pending.map(|(drift, ago, rejected)| Pending {
                plan_id: "p".into(), run: "r".into(), drift, held, rejection: rejected.then(PlanRejection::default),
                planned: at(NOW - ago) });
        }
        // Only a stored plan is refused.
        f.history.refused_apply = refused.filter(|_| f.history.pending.is_some()).map(|ago| at(NOW - ago));
        f.request = request.then(|| "t".to_owned());
        if exponential { f.retry.strategy = Strategy::Exponential; }
        f.retry.retries = retries;
        f
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn nothing_is_applied_without_approval(f in any_facts()) {
        if let Step::Start(run) = decide(&f, &[]) {
            prop_assert!(f.history.active.is_none(), "two runs at once");
            prop_assert!(!f.suspended, "a suspended stack runs nothing");
            prop_assert!(f.unsupported_field.is_none(), "an unsupported field runs nothing");
            let approved = matches!(f.approval, Approval::Auto | Approval::Given { .. });
            let deletion = f.deleting && f.policy.destroy_on_deletion;
            if run.action != RunAction::Plan {
                prop_assert!(approved && !f.policy.plan_only || deletion, "an apply needs an approval");
            }
            if run.action == RunAction::PlanAndApply && !deletion {
                prop_assert_eq!(&f.approval, &Approval::Auto, "only auto applies a plan that no user has seen");
            }
            if run.action == RunAction::Apply {
                let held = f.history.pending.as_ref().is_some_and(|pending| pending.held);
                prop_assert!(!held || matches!(f.approval, Approval::Given { .. }), "a held plan needs an approval");
                let rejected = f.history.pending.as_ref().is_some_and(|pending| pending.rejection.is_some());
                prop_assert!(!rejected, "a rejected plan is never applied");
                prop_assert_eq!(run.plan.map(|(_, r)| r), f.history.pending.map(|p| p.run), "exactly the stored plan");
                prop_assert!(matches!(&f.inputs, Inputs::Known(i) if Some(i) == f.history.last.as_ref().map(|l| &l.inputs)));
            }
        }
    }

    /// The pause after a refusal turns the apply of the stored plan into a wait, and changes no other step. The destroy of a deletion is
    /// no exception: like a run after changed inputs it makes a plan of its own, which no runner has refused.
    #[test]
    fn a_refused_plan_is_not_applied_before_its_pause_ends(f in any_facts()) {
        let pause = f.history.refused_apply.map(|refused| refused + f.retry.delay(1)).filter(|until| *until > f.now);
        let without_refusal = decide(&change(f.clone(), |f| f.history.refused_apply = None), &[]);
        let is_apply = matches!(&without_refusal, Step::Start(run) if run.action == RunAction::Apply);
        let expected = match pause {
            Some(until) if is_apply => Step::Idle(Idle::RetryAt(until)),
            _ => without_refusal,
        };
        prop_assert_eq!(decide(&f, &[]), expected);
    }

    #[test]
    fn an_idle_time_is_in_the_future(f in any_facts()) {
        if let Step::Idle(Idle::RetryAt(when) | Idle::InSync(when) | Idle::ShowPlan { again: Some(when) }) = decide(&f, &[]) {
            prop_assert!(when > f.now);
        }
    }

    #[test]
    fn a_delay_is_bounded(attempt: u32, seconds in 0_i64..100_000, longest in 0_i64..1_000_000) {
        let policy = RetryPolicy {
            interval: SignedDuration::from_secs(seconds), strategy: Strategy::Exponential,
            longest: SignedDuration::from_secs(longest), retries: None,
        };
        prop_assert!(policy.delay(attempt) <= policy.longest);
        prop_assert!(!policy.delay(attempt).is_negative());
    }
}
