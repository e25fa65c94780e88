//! `dependsOn`: what is made waits for what it builds on; what is destroyed waits for what builds on it. Pure.

use super::{Dependencies, Facts, Guard, Rest, RunAction, Step, guard};

/// What of a living stack only an edit helps. A destroy does not ask for what the stack builds on.
pub(super) fn forbids(facts: &Facts) -> Option<Rest> {
    if guard(Guard::Contradiction, facts.contradiction.is_some()) {
        return Some(Rest::Contradiction);
    }
    let never = matches!(
        facts.dependencies,
        Dependencies::Denied(_) | Dependencies::Cycle(_)
    );
    guard(Guard::DependenciesFirst, never && !facts.policy.destroy).then_some(Rest::Dependencies)
}

/// Inputs that cannot be had are mostly those that a dependency is still to write.
pub(super) fn instead_of_inputs(facts: &Facts) -> Rest {
    if facts.dependencies == Dependencies::Ready || facts.policy.destroy || facts.deleting {
        Rest::InputsUnknown
    } else {
        Rest::Dependencies
    }
}

/// The step, if it is its turn. A plan to destroy may be made, and read, while others still build on the stack; its apply
/// waits for them.
pub(super) fn in_turn(facts: &Facts, step: Step) -> Step {
    match &step {
        // They make and destroy nothing.
        Step::Start(run) if matches!(run.action, RunAction::Unlock | RunAction::BreakTheGlass) => {}
        Step::Start(run) if run.destroy => {
            let held = run.action.applies() && !facts.dependants.is_empty();
            if guard(Guard::DependantsFirst, held) {
                return Step::Rest(Rest::Dependants);
            }
        }
        Step::Start(_) => {
            let early = facts.dependencies != Dependencies::Ready;
            if guard(Guard::DependenciesFirst, early) {
                return Step::Rest(Rest::Dependencies);
            }
        }
        _ => {}
    }
    step
}

/// What keeps a deleted stack, whether or not its resources are destroyed.
pub(super) fn keeps(facts: &Facts) -> Option<Rest> {
    if guard(Guard::Contradiction, facts.contradiction.is_some()) {
        return Some(Rest::Contradiction);
    }
    guard(Guard::DependantsFirst, !facts.dependants.is_empty()).then_some(Rest::Dependants)
}

#[cfg(test)]
mod tests {
    use super::super::table::first_broken;
    use super::super::tests::{change, ended, facts, table, with_last, with_pending};
    use super::super::{Approval, Inputs, Outcome, SourceFact};
    use super::*;

    fn waiting() -> Dependencies {
        Dependencies::Waiting("dependency 'team/net' is not ready".into())
    }

    fn builds_on(dependencies: Dependencies, edit: impl FnOnce(&mut Facts)) -> Facts {
        change(facts(), |f| {
            f.dependencies = dependencies;
            edit(f);
        })
    }

    #[test]
    fn what_is_made_waits_for_what_it_builds_on() {
        let drifted = |approval| {
            change(with_pending(60, true), |f| {
                f.dependencies = waiting();
                f.approval = approval;
            })
        };
        let failed = || Inputs::Failed {
            reason: "VarsGenerationFailed",
            message: String::new(),
        };
        insta::assert_snapshot!(table(vec![
            ("new", builds_on(waiting(), |_| ())),
            ("new, no artifact", builds_on(waiting(), |f| f.source = SourceFact::NoArtifact)),
            ("new, inputs to come", builds_on(waiting(), |f| f.inputs = failed())),
            ("inputs missing, dependencies ready", builds_on(Dependencies::Ready, |f| f.inputs = failed())),
            ("steady", change(with_last(ended(Outcome::Succeeded, 60)), |f| f.dependencies = waiting())),
            ("interval over", change(with_last(ended(Outcome::Succeeded, 600)), |f| f.dependencies = waiting())),
            ("failed a while ago", change(with_last(ended(Outcome::Failed, 20)), |f| f.dependencies = waiting())),
            ("plan waits for approval", drifted(Approval::None)),
            ("plan approved", drifted(Approval::Given { by: "ada".into() })),
            ("denied, steady", change(with_last(ended(Outcome::Succeeded, 60)), |f| f.dependencies = Dependencies::Denied(String::new()))),
            ("in a circle, steady", change(with_last(ended(Outcome::Succeeded, 60)), |f| f.dependencies = Dependencies::Cycle(String::new()))),
            ("suspended in a circle", builds_on(Dependencies::Cycle(String::new()), |f| f.suspended = true)),
        ]), @r#"
        new: Dependencies
        new, no artifact: Source
        new, inputs to come: Dependencies
        inputs missing, dependencies ready: InputsUnknown
        steady: Steady +540s
        interval over: Dependencies
        failed a while ago: Dependencies
        plan waits for approval: AwaitApproval
        plan approved: Dependencies
        denied, steady: Dependencies
        in a circle, steady: Dependencies
        suspended in a circle: Suspended
        "#);
    }

    #[test]
    fn what_is_destroyed_waits_for_what_builds_on_it() {
        let destroying = |approval: Approval, edit: &dyn Fn(&mut Facts)| {
            change(with_last(ended(Outcome::Succeeded, 60)), |f| {
                f.policy.destroy = true;
                f.approval = approval;
                edit(f);
            })
        };
        let held = |f: &mut Facts| f.dependants = vec!["app".into()];
        let deleting = |edit: &dyn Fn(&mut Facts)| {
            change(with_last(ended(Outcome::Succeeded, 60)), |f| {
                f.deleting = true;
                edit(f);
            })
        };
        insta::assert_snapshot!(table(vec![
            ("destroy, auto, held", destroying(Approval::Auto, &held)),
            ("destroy, manual, held: a plan to read", destroying(Approval::None, &held)),
            ("destroy, auto, free, what it builds on not ready", destroying(Approval::Auto, &|f| f.dependencies = waiting())),
            ("destroy, auto, free, in a circle", destroying(Approval::Auto, &|f| f.dependencies = Dependencies::Cycle(String::new()))),
            ("deleted, held", deleting(&held)),
            ("deleted, held, source gone", deleting(&|f| { held(f); f.source = SourceFact::NoArtifact; })),
            ("deleted, held, to be destroyed", deleting(&|f| { held(f); f.policy.destroy_on_deletion = true; })),
            ("deleted, held, suspended", deleting(&|f| { held(f); f.suspended = true; })),
            ("deleted, free", deleting(&|_| ())),
            ("deleted, free, to be destroyed", deleting(&|f| f.policy.destroy_on_deletion = true)),
            ("deleted, to be destroyed from what was applied last", deleting(&|f| { f.policy.destroy_on_deletion = true; f.source = SourceFact::NotFound(String::new()); })),
            ("deleted, to be destroyed, nothing to do it with", deleting(&|f| { f.policy.destroy_on_deletion = true; f.source = SourceFact::NotFound(String::new()); f.inputs = Inputs::Unresolved; })),
            ("deleted, contradicting fields", deleting(&|f| f.contradiction = Some("both".into()))),
        ]), @r#"
        destroy, auto, held: Dependants
        destroy, manual, held: a plan to read: Plan (destroy) because Revision, attempt 1
        destroy, auto, free, what it builds on not ready: PlanAndApply (destroy) because Revision, attempt 1, approved by auto
        destroy, auto, free, in a circle: PlanAndApply (destroy) because Revision, attempt 1, approved by auto
        deleted, held: Dependants
        deleted, held, source gone: Dependants
        deleted, held, to be destroyed: Dependants
        deleted, held, suspended: DeletionSuspended
        deleted, free: Release
        deleted, free, to be destroyed: PlanAndApply (destroy) because Deletion, attempt 1, approved by deletion
        deleted, to be destroyed from what was applied last: PlanAndApply (destroy) because Deletion, attempt 1, approved by deletion
        deleted, to be destroyed, nothing to do it with: Source
        deleted, contradicting fields: Contradiction
        "#);
    }

    #[test]
    fn each_rule_is_missed_when_it_is_left_out() {
        for rule in [
            Guard::Contradiction,
            Guard::DependenciesFirst,
            Guard::DependantsFirst,
        ] {
            assert!(first_broken(Some(rule)).is_some(), "{rule:?}");
        }
    }

    #[test]
    fn contradicting_fields_stop_a_living_stack() {
        insta::assert_snapshot!(table(vec![
            ("new", change(facts(), |f| f.contradiction = Some("both".into()))),
            ("destroy", change(facts(), |f| { f.contradiction = Some("both".into()); f.policy.destroy = true; })),
        ]), @r#"
        new: Contradiction
        destroy: Contradiction
        "#);
    }
}
