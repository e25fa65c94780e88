//! `dependsOn`: a run waits for the stacks that its stack depends on; a destroy waits for the stacks that depend on it. Pure.

use super::{Dependencies, Facts, Idle, MutationPoint, NewRun, RunAction, Step, holds};

/// Returns why a stack cannot run until its spec is edited. A destroy does not need the stacks that it depends on.
pub(super) fn blocked_by_dependencies(facts: &Facts) -> Option<Idle> {
    if holds(MutationPoint::ContradictingFields, facts.contradiction.is_some()) {
        return Some(Idle::ContradictingFields);
    }
    let is_blocked = matches!(
        facts.dependencies,
        Dependencies::Denied(_) | Dependencies::Cycle(_)
    );
    holds(
        MutationPoint::DependenciesFirst,
        is_blocked && !facts.policy.destroy,
    )
    .then_some(Idle::Dependencies)
}

/// Returns why inputs are missing: mostly because a dependency has not written them yet.
pub(super) fn missing_inputs(facts: &Facts) -> Idle {
    if facts.dependencies == Dependencies::Ready || facts.policy.destroy || facts.deleting {
        Idle::InputsUnknown
    } else {
        Idle::Dependencies
    }
}

/// Returns the step, or the wait for the stacks that this one depends on. A destroy does not need them, and neither a release
/// of the state lock nor a break-glass session changes resources.
pub(super) fn wait_for_dependencies(facts: &Facts, step: Step) -> Step {
    let needs_dependencies =
        |run: &NewRun| !run.destroy && !matches!(run.action, RunAction::Unlock | RunAction::BreakTheGlass);
    let is_early = facts.dependencies != Dependencies::Ready
        && matches!(&step, Step::Start(run) if needs_dependencies(run));
    if holds(MutationPoint::DependenciesFirst, is_early) {
        return Step::Idle(Idle::Dependencies);
    }
    step
}

/// Returns whether this step of [`decide_alone`](super::decide_alone) can depend on the dependents of the stack: any step of a
/// deletion that is not suspended, and the apply of a destroy plan. The plan itself may be made and read before.
pub(crate) fn needs_dependents(facts: &Facts, step: &Step) -> bool {
    match step {
        Step::Follow | Step::Idle(Idle::DeletionSuspended) => false,
        Step::Start(run) if run.destroy && run.action.applies() => true,
        _ => facts.deleting,
    }
}

/// Returns the step, or the wait for these dependents of the stack, which still have resources.
pub(crate) fn wait_for_dependents(facts: &Facts, step: Step, dependents: Vec<String>) -> Step {
    let waits = needs_dependents(facts, &step) && step != Step::Idle(Idle::ContradictingFields);
    if holds(MutationPoint::DependentsFirst, waits && !dependents.is_empty()) {
        return Step::Idle(Idle::Dependents(dependents));
    }
    step
}

#[cfg(test)]
mod tests {
    use super::super::table::first_broken;
    use super::super::tests::{change, ended, facts, table, table_with, with_last, with_pending};
    use super::super::{Approval, Inputs, Outcome, SourceFact};
    use super::*;

    fn waiting() -> Dependencies {
        Dependencies::Waiting("dependency 'team/net' is not ready".into())
    }

    fn depends_on(dependencies: Dependencies, edit: impl FnOnce(&mut Facts)) -> Facts {
        change(facts(), |f| {
            f.dependencies = dependencies;
            edit(f);
        })
    }

    #[test]
    fn a_run_waits_for_its_dependencies() {
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
            ("new", depends_on(waiting(), |_| ())),
            ("new, no artifact", depends_on(waiting(), |f| f.source = SourceFact::NoArtifact)),
            ("new, inputs to come", depends_on(waiting(), |f| f.inputs = failed())),
            ("inputs missing, dependencies ready", depends_on(Dependencies::Ready, |f| f.inputs = failed())),
            ("steady", change(with_last(ended(Outcome::Succeeded, 60)), |f| f.dependencies = waiting())),
            ("interval over", change(with_last(ended(Outcome::Succeeded, 600)), |f| f.dependencies = waiting())),
            ("failed a while ago", change(with_last(ended(Outcome::Failed, 20)), |f| f.dependencies = waiting())),
            ("plan waits for approval", drifted(Approval::None)),
            ("plan approved", drifted(Approval::Given { by: "ada".into() })),
            ("denied, steady", change(with_last(ended(Outcome::Succeeded, 60)), |f| f.dependencies = Dependencies::Denied(String::new()))),
            ("in a cycle, steady", change(with_last(ended(Outcome::Succeeded, 60)), |f| f.dependencies = Dependencies::Cycle(String::new()))),
            ("suspended in a cycle", depends_on(Dependencies::Cycle(String::new()), |f| f.suspended = true)),
        ]), @r#"
        new: Dependencies
        new, no artifact: Source
        new, inputs to come: Dependencies
        inputs missing, dependencies ready: InputsUnknown
        steady: InSync +540s
        interval over: Dependencies
        failed a while ago: Dependencies
        plan waits for approval: AwaitApproval
        plan approved: Dependencies
        denied, steady: Dependencies
        in a cycle, steady: Dependencies
        suspended in a cycle: Suspended
        "#);
    }

    #[test]
    fn a_destroy_waits_for_its_dependents() {
        let destroying = |approval: Approval, edit: &dyn Fn(&mut Facts)| {
            change(with_last(ended(Outcome::Succeeded, 60)), |f| {
                f.policy.destroy = true;
                f.approval = approval;
                edit(f);
            })
        };
        let deleting = |edit: &dyn Fn(&mut Facts)| {
            change(with_last(ended(Outcome::Succeeded, 60)), |f| {
                f.deleting = true;
                edit(f);
            })
        };
        let free: &dyn Fn(&mut Facts) = &|_| ();
        insta::assert_snapshot!(table_with(&["app".into()], vec![
            ("destroy, auto", destroying(Approval::Auto, free)),
            ("destroy, manual: a plan to read", destroying(Approval::None, free)),
            ("deleted", deleting(free)),
            ("deleted, source gone", deleting(&|f| f.source = SourceFact::NoArtifact)),
            ("deleted, to be destroyed", deleting(&|f| f.policy.destroy_on_deletion = true)),
            ("deleted, suspended", deleting(&|f| f.suspended = true)),
            ("deleted, contradicting fields", deleting(&|f| f.contradiction = Some("both".into()))),
        ]), @r#"
        destroy, auto: Dependents(["app"])
        destroy, manual: a plan to read: Plan (destroy) because Revision, attempt 1
        deleted: Dependents(["app"])
        deleted, source gone: Dependents(["app"])
        deleted, to be destroyed: Dependents(["app"])
        deleted, suspended: DeletionSuspended
        deleted, contradicting fields: ContradictingFields
        "#);
        insta::assert_snapshot!(table(vec![
            ("destroy, auto, free, dependency not ready", destroying(Approval::Auto, &|f| f.dependencies = waiting())),
            ("destroy, auto, free, in a cycle", destroying(Approval::Auto, &|f| f.dependencies = Dependencies::Cycle(String::new()))),
            ("deleted, free", deleting(free)),
            ("deleted, free, to be destroyed", deleting(&|f| f.policy.destroy_on_deletion = true)),
            ("deleted, to be destroyed from what was applied last", deleting(&|f| { f.policy.destroy_on_deletion = true; f.source = SourceFact::NotFound(String::new()); })),
            ("deleted, to be destroyed, nothing to do it with", deleting(&|f| { f.policy.destroy_on_deletion = true; f.source = SourceFact::NotFound(String::new()); f.inputs = Inputs::Unresolved; })),
            ("deleted, contradicting fields", deleting(&|f| f.contradiction = Some("both".into()))),
        ]), @r#"
        destroy, auto, free, dependency not ready: PlanAndApply (destroy) because Revision, attempt 1, approved by auto
        destroy, auto, free, in a cycle: PlanAndApply (destroy) because Revision, attempt 1, approved by auto
        deleted, free: Release
        deleted, free, to be destroyed: PlanAndApply (destroy) because Deletion, attempt 1, approved by deletion
        deleted, to be destroyed from what was applied last: PlanAndApply (destroy) because Deletion, attempt 1, approved by deletion
        deleted, to be destroyed, nothing to do it with: Source
        deleted, contradicting fields: ContradictingFields
        "#);
    }

    #[test]
    fn each_disabled_rule_breaks_a_law() {
        for rule in [
            MutationPoint::ContradictingFields,
            MutationPoint::DependenciesFirst,
            MutationPoint::DependentsFirst,
        ] {
            assert!(first_broken(Some(rule)).is_some(), "{rule:?}");
        }
    }

    #[test]
    fn contradicting_fields_stop_a_stack_without_deletion() {
        insta::assert_snapshot!(table(vec![
            ("new", change(facts(), |f| f.contradiction = Some("both".into()))),
            ("destroy", change(facts(), |f| { f.contradiction = Some("both".into()); f.policy.destroy = true; })),
        ]), @r#"
        new: ContradictingFields
        destroy: ContradictingFields
        "#);
    }
}
