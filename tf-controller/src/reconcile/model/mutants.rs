//! Mutants: the decision without one point, and the system with one flaw. Each is detected by the law of the decision
//! table or the property of the model that its line names.

use super::checks::{explore, model_of};
use super::{Flaw, Sluice};
use crate::decide::{MutationPoint, table};

/// Returns the law or property that detects the disabled point at this location.
fn detected_by(point: MutationPoint, location: &str) -> Option<String> {
    if location == "table" {
        return table::first_broken(Some(point)).map(|(law, _)| law.to_owned());
    }
    let model = Sluice {
        disabled_point: Some(point),
        ..model_of(location)
    };
    explore(model, 1).violation.map(|(property, _)| property)
}

macro_rules! mutants {
    ($($name:ident: $point:ident, $location:literal, $by:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let found = detected_by(MutationPoint::$point, $location).expect("the mutant is detected");
                println!("{:?} disabled: {found}", MutationPoint::$point);
                assert_eq!(found, $by);
            }
        )*

        #[test]
        fn every_mutation_point_has_a_mutant() {
            let tested = [$(MutationPoint::$point),*];
            let missing: Vec<_> = MutationPoint::ALL.iter().filter(|point| !tested.contains(point)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    };
}

mutants! {
    held: AutoApplyHold, "table", "never an apply without an approval of that effect or auto";
    suspended: Suspended, "table", "a suspended stack starts nothing";
    active: Active, "table", "a run in progress is followed";
    unsupported_field: UnsupportedField, "table", "an unsupported field starts nothing";
    source_missing: SourceMissing, "table", "nothing but a destroy is run without an artifact";
    inputs_unknown: InputsUnknown, "table", "nothing is run without inputs";
    inputs_changed: InputsChanged, "table", "never an apply without an approval of that effect or auto";
    destroy_switched: DestroySwitched, "table", "never an apply without an approval of that effect or auto";
    plan_waits: PlanWaits, "first apply, approved", "once faults stop, it reaches the desired state";
    plan_only_withholds: PlanOnlyWithholds, "table", "never an apply without an approval of that effect or auto";
    disabled_withholds: DisabledWithholds, "table", "only a plan that can be approved waits for an approval";
    rejected: Rejected, "table", "a rejected plan, and no other, waits for a change or a request";
    unapproved: Unapproved, "table", "never an apply without an approval of that effect or auto";
    not_auto: NotAuto, "table", "never an apply without an approval of that effect or auto";
    plan_only_plans: PlanOnlyPlans, "table", "never an apply without an approval of that effect or auto";
    input_pause: InputPause, "table", "never a run when nothing changed, nor before its time";
    failure: Failure, "first apply, auto", "once faults stop, it reaches the desired state";
    retry_delay: RetryDelay, "table", "never a run when nothing changed, nor before its time";
    retry_limit: RetryLimit, "table", "never a run when nothing changed, nor before its time";
    disruption_limit: DisruptionLimit, "table", "never a run when nothing changed, nor before its time";
    stale_limit: StaleLimit, "table", "never a run when nothing changed, nor before its time";
    not_due: IntervalNotDue, "table", "never a run when nothing changed, nor before its time";
    requested: Requested, "table", "a request is handled";
    deletion_suspended: DeletionSuspended, "table", "a suspended stack is not released";
    destroy_first: DestroyFirst, "table", "a stack that destroys on deletion is destroyed before its release";
    other_run: NotDeletionRun, "table", "a stack that destroys on deletion is destroyed before its release";
    destroyed: Destroyed, "table", "never a run when nothing changed, nor before its time";
    withheld: DestroyWithheld, "table", "a stack that destroys on deletion is destroyed before its release";
    destroy_delay: DestroyDelay, "table", "never a run when nothing changed, nor before its time";
    plan_used: PlanApplied, "first apply, auto", "never a run when nothing changed";
    superseded: Superseded, "first apply, approved", "a run has the cause that it states";
    numbered: UniqueSequence, "first apply, approved", "a new run has a new name";
    taken_up: RequestHandled, "first apply, auto", "never a run when nothing changed";
    claimed: Claimed, "first apply, auto", "a claimed run is not started again";
    alive: ProcessAlive, "first apply, auto", "a run with a live process has not ended";
    outdated: InputsOutdated, "first apply, auto", "a run whose inputs changed before its start does not start";
    contradiction: ContradictingFields, "table", "contradicting fields release nothing";
    dependencies_first: DependenciesFirst, "table", "a run waits for its dependencies";
    dependents_first: DependentsFirst, "table", "a stack is not released before its dependents";
}

fn flawed(flaw: Flaw, model: &Sluice) -> Option<String> {
    let model = Sluice {
        flaw: Some(flaw),
        ..model.clone()
    };
    explore(model, 1).violation.map(|(property, _)| property)
}

#[test]
fn a_claim_without_compare_and_swap() {
    let found = flawed(Flaw::BlindClaim, &model_of("two controllers"));
    assert!(found.is_some());
}

#[test]
fn a_plan_that_is_applied_without_a_check() {
    let found = flawed(Flaw::NoGate, &model_of("first apply, auto"));
    let expected = "never an apply without an approval of that effect or auto";
    assert_eq!(found.as_deref(), Some(expected));
}

#[test]
fn an_approval_that_is_not_checked_again() {
    let found = flawed(Flaw::NoApprovalCheck, &model_of("drift, auto"));
    let expected = "nothing is applied for an object that is suspended or being deleted";
    assert_eq!(found.as_deref(), Some(expected));
}

#[test]
fn checking_liveness_before_reading_the_run() {
    let found = flawed(Flaw::LivenessBeforeRead, &model_of("two controllers"));
    assert_eq!(found.as_deref(), Some("a run with a live process has not ended"));
}
