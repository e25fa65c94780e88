//! Mutants: the decision with one guard left out, and the system with one flaw. Each is noticed, by the law of the decision
//! table or the property of the model that its line names.

use super::{
    Flaw, Sluice,
    checks::{explore, of},
};
use crate::decide::{Guard, table};

/// What notices, at this place, that the guard is left out.
fn noticed(guard: Guard, place: &str) -> Option<String> {
    if place == "table" {
        return table::first_broken(Some(guard)).map(|(law, _)| law.to_owned());
    }
    let model = Sluice {
        left_out: Some(guard),
        ..of(place)
    };
    explore(model, 1).wrong.map(|(property, _)| property)
}

macro_rules! mutants {
    ($($name:ident: $guard:ident, $place:literal, $by:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let found = noticed(Guard::$guard, $place).expect("somebody notices");
                println!("{:?} left out: {found}", Guard::$guard);
                assert_eq!(found, $by);
            }
        )*

        #[test]
        fn every_guard_has_a_mutant() {
            let tried = [$(Guard::$guard),*];
            let missing: Vec<_> = Guard::ALL.iter().filter(|guard| !tried.contains(guard)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    };
}

mutants! {
    held: Held, "table", "never an apply without an approval of that effect or auto";
    suspended: Suspended, "table", "a suspended stack starts nothing";
    active: Active, "table", "a run in progress is followed";
    refused: Refused, "table", "a refused field starts nothing";
    source_missing: SourceMissing, "table", "nothing but a destroy is run without an artifact";
    inputs_unknown: InputsUnknown, "table", "nothing is run without inputs";
    inputs_changed: InputsChanged, "table", "never an apply without an approval of that effect or auto";
    destroy_switched: DestroySwitched, "table", "never an apply without an approval of that effect or auto";
    plan_waits: PlanWaits, "first apply, approved", "once faults stop, it becomes stable at the wanted state";
    plan_only_withholds: PlanOnlyWithholds, "table", "never an apply without an approval of that effect or auto";
    disabled_withholds: DisabledWithholds, "table", "only a plan that somebody may approve waits for an approval";
    unapproved: Unapproved, "table", "never an apply without an approval of that effect or auto";
    not_auto: NotAuto, "table", "never an apply without an approval of that effect or auto";
    plan_only_plans: PlanOnlyPlans, "table", "never an apply without an approval of that effect or auto";
    input_pause: InputPause, "table", "never a run when nothing changed, nor before its time";
    failure: Failure, "first apply, auto", "once faults stop, it becomes stable at the wanted state";
    retry_delay: RetryDelay, "table", "never a run when nothing changed, nor before its time";
    retry_limit: RetryLimit, "table", "never a run when nothing changed, nor before its time";
    stale_limit: StaleLimit, "table", "never a run when nothing changed, nor before its time";
    not_due: NotDue, "table", "never a run when nothing changed, nor before its time";
    requested: Requested, "table", "a request is taken up";
    deletion_suspended: DeletionSuspended, "table", "a suspended stack is not let go";
    destroy_first: DestroyFirst, "table", "a stack that destroys on deletion is destroyed before it is let go";
    other_run: OtherRun, "table", "a stack that destroys on deletion is destroyed before it is let go";
    destroyed: Destroyed, "table", "never a run when nothing changed, nor before its time";
    withheld: Withheld, "table", "a stack that destroys on deletion is destroyed before it is let go";
    destroy_delay: DestroyDelay, "table", "never a run when nothing changed, nor before its time";
    plan_used: PlanUsed, "first apply, auto", "never a run when nothing changed";
    superseded: Superseded, "first apply, approved", "a run has the cause that it says";
    numbered: Numbered, "first apply, approved", "a new run has a new name";
    taken_up: TakenUp, "first apply, auto", "never a run when nothing changed";
    claimed: Claimed, "first apply, auto", "a run that somebody has claimed is not started again";
    alive: Alive, "first apply, auto", "a run that works has not ended";
    outdated: Outdated, "first apply, auto", "a run whose inputs changed before it began does not begin";
    contradiction: Contradiction, "table", "contradicting fields let nothing go";
    dependencies_first: DependenciesFirst, "table", "what is made waits for what it builds on";
    dependants_first: DependantsFirst, "table", "a stack is not let go before those that build on it";
}

fn flawed(flaw: Flaw, model: &Sluice) -> Option<String> {
    let model = Sluice {
        flaw: Some(flaw),
        ..model.clone()
    };
    explore(model, 1).wrong.map(|(property, _)| property)
}

#[test]
fn a_claim_that_is_no_compare_and_swap() {
    let found = flawed(Flaw::BlindClaim, &of("two controllers"));
    assert!(found.is_some());
}

#[test]
fn a_plan_that_is_applied_without_asking() {
    let found = flawed(Flaw::NoGate, &of("first apply, auto"));
    let wanted = "never an apply without an approval of that effect or auto";
    assert_eq!(found.as_deref(), Some(wanted));
}

#[test]
fn an_approval_that_is_not_asked_for_again() {
    let found = flawed(Flaw::NoStanding, &of("drift, auto"));
    let wanted = "nothing is applied for an object that is suspended or being deleted";
    assert_eq!(found.as_deref(), Some(wanted));
}

#[test]
fn a_process_that_is_looked_at_before_its_run_is_read() {
    let found = flawed(Flaw::LivenessBeforeRead, &of("two controllers"));
    assert_eq!(found.as_deref(), Some("a run that works has not ended"));
}
