//! Checks the ledger of the provider after a trial. Pure.

use std::collections::{BTreeMap, BTreeSet};

use sluice_harness::trial::{LedgerEntry, LedgerEvent};

/// How often a fault lets a resource be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Creations {
    /// The CLI continues: each creation begins once.
    Once,
    /// The CLI or its provider ends within a step, and the state is written: a creation may begin again, and each resource is made once.
    Again,
    /// The CLI cannot write its state: a resource is made again for each one that no state had and that the test removed.
    AfterOrphans,
}

/// A resource that no state had and that the test removed: its name, and its computed value, which differs each time it is made.
pub(super) type Orphan = (String, String);

/// Compares the created resources with the state: by name, the computed values of its resources.
pub(super) fn check_creations(
    ledger: &[LedgerEntry],
    recorded: &BTreeMap<String, String>,
    orphans: &[Orphan],
    creations: Creations,
) -> Result<(), String> {
    if creations != Creations::AfterOrphans && !orphans.is_empty() {
        return Err(format!(
            "no state had {orphans:?}, although the CLI could write it"
        ));
    }
    let made: BTreeSet<(&str, &str)> = of(ledger, LedgerEvent::Made)
        .map(|entry| (entry.name.as_str(), entry.random.as_str()))
        .collect();
    let recorded: BTreeSet<_> = recorded
        .iter()
        .map(|(name, random)| (name.as_str(), random.as_str()))
        .collect();
    // A provider that is killed between its two writes has not recorded an orphan.
    let removed = orphans
        .iter()
        .map(|(name, random)| (name.as_str(), random.as_str()));
    let known: BTreeSet<_> = removed.chain(recorded.iter().copied()).collect();
    if !recorded.is_subset(&made) || !made.is_subset(&known) {
        return Err(format!(
            "made: {made:?}; in the state: {recorded:?}; orphans: {orphans:?}"
        ));
    }
    if creations == Creations::Once {
        return check_begun(ledger, &recorded);
    }
    Ok(())
}

/// Each creation begins once.
fn check_begun(ledger: &[LedgerEntry], recorded: &BTreeSet<(&str, &str)>) -> Result<(), String> {
    let begun: Vec<_> = of(ledger, LedgerEvent::Begin)
        .filter(|entry| entry.step == "create")
        .collect();
    for (name, _) in recorded {
        let count = begun.iter().filter(|entry| entry.name == *name).count();
        if count != 1 {
            return Err(format!("the creation of {name} began {count} times: {begun:?}"));
        }
    }
    Ok(())
}

/// No creation of a stack whose state went with its namespace began twice.
pub(super) fn check_created_once(ledger: &[LedgerEntry]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let mut begun = of(ledger, LedgerEvent::Begin).filter(|entry| entry.step == "create");
    match begun.find(|entry| !names.insert(&entry.name)) {
        Some(entry) => Err(format!("the creation of {} began again: {ledger:?}", entry.name)),
        None => Ok(()),
    }
}

/// Each CLI has ended before the next one works: at most one run of a stack is active. A CLI works from the first to the last entry of its
/// providers; a step that is held or waits has one each second, so the end of a killed CLI is known.
pub(super) fn check_overlap(ledger: &[LedgerEntry]) -> Result<(), String> {
    let mut spans: BTreeMap<(&str, i32), (i64, i64)> = BTreeMap::new();
    for entry in ledger {
        let cli = (entry.pod.as_str(), entry.cli);
        let (begin, end) = spans.entry(cli).or_insert((entry.at, entry.at));
        (*begin, *end) = ((*begin).min(entry.at), (*end).max(entry.at));
    }
    let mut ordered: Vec<_> = spans.into_iter().collect();
    ordered.sort_by_key(|(_, (begin, _))| *begin);
    for pair in ordered.windows(2) {
        if let [(one, (_, end)), (other, (begin, _))] = pair
            && begin <= end
        {
            return Err(format!(
                "the CLI {other:?} (pod, process) worked before {one:?} had ended: {ledger:?}"
            ));
        }
    }
    Ok(())
}

/// The step, such as `create second`, has begun and not ended, and has worked since this time (Unix, in nanoseconds).
pub(super) fn check_held(ledger: &[LedgerEntry], step: &str, since: i64) -> Result<(), String> {
    let own = ledger
        .iter()
        .rfind(|entry| format!("{} {}", entry.step, entry.name) == step);
    match own {
        Some(last) if last.event == LedgerEvent::Working && last.at >= since => Ok(()),
        _ => Err(format!(
            "{step:?} was not held until the end of the fault: {own:?}"
        )),
    }
}

fn of(ledger: &[LedgerEntry], event: LedgerEvent) -> impl Iterator<Item = &LedgerEntry> {
    ledger.iter().filter(move |entry| entry.event == event)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of the CLI with this process in the pod `run-1`; `subject` is a step with its resource.
    fn entry(event: LedgerEvent, subject: &str, at: i64, cli: i32) -> LedgerEntry {
        let (step, name) = subject.split_once(' ').unwrap();
        let random = if event == LedgerEvent::Made {
            format!("{at:x}")
        } else {
            String::new()
        };
        LedgerEntry {
            event,
            step: step.to_owned(),
            name: name.to_owned(),
            random,
            at,
            pod: "run-1".to_owned(),
            cli,
            provider: cli + 1,
        }
    }

    /// What a CLI with this process writes that makes a resource from 10 before `at`.
    fn creation(name: &str, at: i64, cli: i32) -> Vec<LedgerEntry> {
        let subject = format!("create {name}");
        vec![
            entry(LedgerEvent::Begin, &subject, at - 10, cli),
            entry(LedgerEvent::Made, &subject, at, cli),
            entry(LedgerEvent::End, &subject, at + 1, cli),
        ]
    }

    /// A plan, and an apply that makes both resources at 100 (hexadecimal 64) and 200 (c8).
    fn apply() -> Vec<LedgerEntry> {
        let plan = vec![
            entry(LedgerEvent::Begin, "plan first", 10, 5),
            entry(LedgerEvent::End, "plan first", 20, 5),
        ];
        [plan, creation("first", 100, 7), creation("second", 200, 7)].concat()
    }

    fn state(first: &str, second: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("first".to_owned(), first.to_owned()),
            ("second".to_owned(), second.to_owned()),
        ])
    }

    #[test]
    fn an_apply_that_goes_on_begins_each_creation_once() {
        let check = |ledger: &[LedgerEntry], creations| {
            check_creations(ledger, &state("64", "c8"), &[], creations).is_ok()
        };
        assert!(check(&apply(), Creations::Once));
        let mut again = vec![entry(LedgerEvent::Begin, "create second", 40, 6)];
        again.extend(apply());
        assert!(!check(&again, Creations::Once), "a second attempt");
        assert!(check(&again, Creations::Again));
    }

    #[test]
    fn a_resource_that_is_made_twice_or_in_no_ledger_is_found() {
        let twice = [apply(), creation("second", 300, 9)].concat();
        for creations in [Creations::Once, Creations::Again, Creations::AfterOrphans] {
            for random in ["c8", "12c"] {
                let checked = check_creations(&twice, &state("64", random), &[], creations);
                assert!(checked.is_err(), "{creations:?} {random}");
            }
            let unknown = check_creations(&apply(), &state("64", "ff"), &[], creations);
            assert!(unknown.is_err(), "{creations:?}");
        }
    }

    #[test]
    fn a_resource_is_made_again_only_for_an_orphan_that_was_removed() {
        let twice = [apply(), creation("second", 300, 9)].concat();
        let orphan = [("second".to_owned(), "c8".to_owned())];
        let check = |ledger: &[LedgerEntry], orphans: &[Orphan], creations| {
            check_creations(ledger, &state("64", "12c"), orphans, creations).is_ok()
        };
        assert!(check(&twice, &orphan, Creations::AfterOrphans));
        assert!(
            !check(&twice, &orphan, Creations::Again),
            "the CLI could write its state"
        );
        let thrice = [twice.clone(), creation("second", 250, 8)].concat();
        assert!(!check(&thrice, &orphan, Creations::AfterOrphans));
        // It was killed before it could record the orphan.
        let mut unrecorded = twice;
        unrecorded.retain(|entry| entry.random != "c8");
        assert!(check(&unrecorded, &orphan, Creations::AfterOrphans));
    }

    #[test]
    fn a_deleted_stack_made_no_resource_twice() {
        assert!(check_created_once(&apply()).is_ok());
        let twice = [apply(), creation("first", 300, 9)].concat();
        assert!(check_created_once(&twice).is_err());
    }

    #[test]
    fn two_clis_that_work_at_once_are_found() {
        assert!(check_overlap(&apply()).is_ok(), "one after the other");
        // In the middle of the apply, and at its end.
        for at in [150, 201] {
            let other = entry(LedgerEvent::Begin, "plan first", at, 9);
            assert!(check_overlap(&[apply(), vec![other]].concat()).is_err(), "{at}");
        }
        let later = entry(LedgerEvent::Begin, "plan first", 202, 9);
        assert!(check_overlap(&[apply(), vec![later]].concat()).is_ok());
    }

    #[test]
    fn the_same_process_number_in_another_pod_is_another_cli() {
        let mut other = entry(LedgerEvent::Begin, "plan first", 150, 7);
        other.pod = "run-2".to_owned();
        assert!(check_overlap(&[apply(), vec![other]].concat()).is_err());
    }

    #[test]
    fn a_killed_cli_works_until_its_last_entry() {
        let killed = |last| {
            vec![
                entry(LedgerEvent::Begin, "create second", 10, 7),
                entry(LedgerEvent::Working, "create second", last, 7),
                entry(LedgerEvent::Begin, "plan first", 50, 9),
            ]
        };
        assert!(check_overlap(&killed(40)).is_ok());
        assert!(check_overlap(&killed(60)).is_err());
    }

    #[test]
    fn a_step_is_held_only_if_it_works_and_has_not_ended() {
        let mut ledger = vec![entry(LedgerEvent::Begin, "create second", 10, 7)];
        let check = |ledger: &[LedgerEntry]| check_held(ledger, "create second", 50);
        assert!(check(&ledger).is_err(), "it may have been killed since");
        ledger.push(entry(LedgerEvent::Working, "create second", 40, 7));
        assert!(check(&ledger).is_err());
        ledger.push(entry(LedgerEvent::Working, "create second", 60, 7));
        assert!(check(&ledger).is_ok());
        assert!(check_held(&ledger, "create first", 50).is_err());
        ledger.push(entry(LedgerEvent::End, "create second", 70, 7));
        assert!(check(&ledger).is_err());
    }
}
