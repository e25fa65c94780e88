//! Which runs of a stack the counters do not contain yet. Pure.
//!
//! Reconciliations see the same runs again and again, and the counters start at zero with each controller. So the runs of a stack
//! are counted up to a sequence number, at first up to the runs before the start of the controller. The number of a newest run that
//! was deleted is used again.

use jiff::Timestamp;
use sluice_api::run::{Action, Phase, TerraformRun};

use crate::reconcile::history::{by_sequence, created_at, sequence};
use crate::reconcile::report::{phase, succeeded};

/// The newest runs of a stack that are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CountedRuns {
    /// The uid of the stack: another object of the same name has other runs.
    uid: String,
    created: u64,
    ended: u64,
}

/// The runs to count.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NewRuns<'a> {
    /// Runs that were created.
    pub(super) created: Vec<&'a TerraformRun>,
    /// Runs that have ended.
    pub(super) ended: Vec<EndedRun<'a>>,
}

/// A run that has ended.
#[derive(Debug, PartialEq)]
pub(super) struct EndedRun<'a> {
    pub(super) run: &'a TerraformRun,
    pub(super) lock: Option<LockEvent>,
}

/// What a run shows about the state lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockEvent {
    /// It failed because the state was locked.
    Met,
    /// It released the lock that the run before it had met, as `forceUnlock` requests.
    Unlocked,
    /// It got past the lock that the run before it had met: the holder has released it, or was proved dead since.
    Passed,
}

impl CountedRuns {
    /// Returns the runs to count, and what is counted with them. `before` is the result of the last call for the stack, `started` is
    /// the run that was created after the others were listed, and `start` is when the controller started.
    pub(super) fn count<'a>(
        before: Option<&Self>,
        uid: &str,
        listed: &'a [TerraformRun],
        started: Option<&'a TerraformRun>,
        start: Timestamp,
    ) -> (Self, NewRuns<'a>) {
        let listed = by_sequence(listed);
        let mut counted = match before.filter(|before| before.uid == uid) {
            Some(before) => before.up_to(listed.last().map_or(0, |run| sequence(run))),
            None => Self::before_start(uid, &listed, start),
        };
        let mut new = NewRuns::default();
        let mut previous = None;
        for run in listed.into_iter().chain(started) {
            let number = sequence(run);
            if number > counted.created {
                new.created.push(run);
                counted.created = number;
            }
            if !phase(run).is_final() {
                continue;
            }
            if number > counted.ended {
                let lock = lock_event(previous, run);
                new.ended.push(EndedRun { run, lock });
                counted.ended = number;
            }
            if phase(run) != Phase::Superseded {
                previous = Some(run);
            }
        }
        (counted, new)
    }

    /// Forgets the runs after this one: they were deleted, and the next ones have their numbers.
    fn up_to(&self, newest: u64) -> Self {
        Self {
            uid: self.uid.clone(),
            created: self.created.min(newest),
            ended: self.ended.min(newest),
        }
    }

    /// Counts the runs that an earlier controller has counted. Times in the API are whole seconds.
    fn before_start(uid: &str, ordered: &[&TerraformRun], start: Timestamp) -> Self {
        let is_before = |time: Timestamp| time.as_second() < start.as_second();
        let newest = |is_counted: &dyn Fn(&TerraformRun) -> bool| {
            let counted = ordered.iter().filter(|run| is_counted(run));
            counted.map(|run| sequence(run)).max().unwrap_or(0)
        };
        Self {
            uid: uid.to_owned(),
            created: newest(&|run| is_before(created_at(run))),
            ended: newest(&|run| finished_at(run).is_some_and(is_before)),
        }
    }
}

/// Returns when the run ended.
fn finished_at(run: &TerraformRun) -> Option<Timestamp> {
    let status = run.status.as_ref()?;
    status.finished_at.as_ref().map(|time| time.0)
}

/// Returns the seconds between the claim and the end of a run; `None` for one that no runner has claimed.
pub(super) fn duration_seconds(run: &TerraformRun) -> Option<f64> {
    let started = run.status.as_ref()?.started_at.as_ref()?.0;
    // A clock that was set back gives no negative duration.
    Some(finished_at(run)?.duration_since(started).as_secs_f64().max(0.0))
}

fn lock_event(previous: Option<&TerraformRun>, run: &TerraformRun) -> Option<LockEvent> {
    if met_lock(run) {
        return Some(LockEvent::Met);
    }
    previous.filter(|previous| met_lock(previous) && succeeded(run))?;
    Some(match run.spec.action {
        Action::Unlock => LockEvent::Unlocked,
        _ => LockEvent::Passed,
    })
}

/// Returns whether the run failed because the state was locked.
fn met_lock(run: &TerraformRun) -> bool {
    let status = run.status.as_ref();
    phase(run) == Phase::Failed && status.is_some_and(|status| status.lock.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A run that was created in this minute and ended in the same minute.
    fn run(number: u64, action: &str, status: &Value) -> TerraformRun {
        let created = format!("2026-01-01T00:{number:02}:00Z");
        let mut run = json!({
            "metadata": { "name": format!("net-u1-{number}"), "namespace": "team", "creationTimestamp": created },
            "spec": { "action": action, "attempt": 1, "deadline": "2h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
                "terraform": { "name": "net", "uid": "u1", "generation": 1 } },
            "status": { "phase": "Succeeded", "finishedAt": format!("2026-01-01T00:{number:02}:40Z") },
        });
        for (key, value) in status.as_object().unwrap() {
            run["status"][key] = value.clone();
        }
        serde_json::from_value(run).unwrap()
    }

    fn active(number: u64) -> TerraformRun {
        run(
            number,
            "Plan",
            &json!({ "phase": "Planning", "finishedAt": null }),
        )
    }

    fn locked(number: u64) -> TerraformRun {
        run(
            number,
            "Plan",
            &json!({ "phase": "Failed", "lock": { "id": "l1" } }),
        )
    }

    fn numbers(new: &NewRuns<'_>) -> (Vec<u64>, Vec<u64>) {
        let created = new.created.iter().map(|run| sequence(run)).collect();
        (
            created,
            new.ended.iter().map(|ended| sequence(ended.run)).collect(),
        )
    }

    fn start(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn count<'a>(
        before: Option<&CountedRuns>,
        uid: &str,
        runs: &'a [TerraformRun],
        start: Timestamp,
    ) -> (CountedRuns, NewRuns<'a>) {
        CountedRuns::count(before, uid, runs, None, start)
    }

    #[test]
    fn a_run_is_counted_once_when_it_is_created_and_once_when_it_ends() {
        let (done, start) = (run(1, "Plan", &json!({})), start("2026-01-01T00:00:00Z"));
        let (counted, new) = count(None, "u1", &[], start);
        assert_eq!(numbers(&new), (vec![], vec![]));
        let running = [done.clone(), active(2)];
        let (counted, new) = count(Some(&counted), "u1", &running, start);
        assert_eq!(numbers(&new), (vec![1, 2], vec![1]));
        let (counted, new) = count(Some(&counted), "u1", &running, start);
        assert_eq!(numbers(&new), (vec![], vec![]));
        let ended = [run(2, "Plan", &json!({ "phase": "Lost" })), done];
        let (counted, new) = count(Some(&counted), "u1", &ended, start);
        assert_eq!(numbers(&new), (vec![], vec![2]));
        // Old runs are deleted, which changes nothing.
        let (_, new) = count(Some(&counted), "u1", &ended[..1], start);
        assert_eq!(numbers(&new), (vec![], vec![]));
    }

    #[test]
    fn a_new_controller_counts_what_happens_after_its_start() {
        let runs = [run(1, "Plan", &json!({})), run(2, "Plan", &json!({})), active(3)];
        let counted = |time| count(None, "u1", &runs, start(time)).0;
        let numbers = |time| {
            let (_, new) = count(None, "u1", &runs, start(time));
            numbers(&new)
        };
        assert_eq!(numbers("2026-01-01T01:00:00Z"), (vec![], vec![]));
        // Run 2 was created before the start and ended after it.
        assert_eq!(numbers("2026-01-01T00:02:30Z"), (vec![3], vec![2]));
        assert_eq!(numbers("2026-01-01T00:02:00.9Z"), (vec![2, 3], vec![2]));
        assert_eq!(counted("2026-01-01T01:00:00Z").ended, 2);
    }

    #[test]
    fn a_number_that_is_used_again_after_a_deletion_is_counted_again() {
        let start = start("2026-01-01T00:00:00Z");
        let done = |number| run(number, "Plan", &json!({}));
        let all: Vec<_> = (1..=5).map(done).collect();
        let (counted, _) = count(None, "u1", &all, start);
        for (left, next) in [(4, 5), (0, 1)] {
            let started = active(next);
            let (again, new) = CountedRuns::count(Some(&counted), "u1", &all[..left], Some(&started), start);
            assert_eq!(numbers(&new), (vec![next], vec![]));
            let ended = [&all[..left], &[done(next)]].concat();
            assert_eq!(
                numbers(&count(Some(&again), "u1", &ended, start).1),
                (vec![], vec![next])
            );
        }
        // An older run that was deleted changes nothing.
        let (_, new) = count(Some(&counted), "u1", &all[2..], start);
        assert_eq!(numbers(&new), (vec![], vec![]));
    }

    #[test]
    fn another_object_of_the_same_name_is_counted_from_its_first_run() {
        let (runs, start) = ([run(1, "Plan", &json!({}))], start("2026-01-01T00:00:00Z"));
        let (counted, _) = count(None, "u1", &runs, start);
        let (_, new) = count(Some(&counted), "u2", &runs, start);
        assert_eq!(numbers(&new), (vec![1], vec![1]));
    }

    #[test]
    fn a_lock_is_met_and_then_released_or_passed() {
        let events = |runs: &[TerraformRun]| -> Vec<Option<LockEvent>> {
            let (_, new) = count(None, "u1", runs, start("2026-01-01T00:00:00Z"));
            new.ended.iter().map(|ended| ended.lock).collect()
        };
        let (met, unlocked, passed) = (
            Some(LockEvent::Met),
            Some(LockEvent::Unlocked),
            Some(LockEvent::Passed),
        );
        let unlock = |phase: &str| run(2, "Unlock", &json!({ "phase": phase }));
        let plan = |number| run(number, "Plan", &json!({}));
        assert_eq!(
            events(&[locked(1), unlock("Succeeded"), plan(3)]),
            [met, unlocked, None]
        );
        assert_eq!(events(&[locked(1), unlock("Failed"), plan(3)]), [met, None, None]);
        assert_eq!(events(&[locked(1), locked(2), plan(3)]), [met, met, passed]);
        let superseded = run(2, "Plan", &json!({ "phase": "Superseded" }));
        assert_eq!(events(&[locked(1), superseded, plan(3)]), [met, None, passed]);
        // A run that acquired the lock itself and succeeded met none.
        let holder = run(1, "Plan", &json!({ "lock": { "id": "l1" } }));
        assert_eq!(events(&[holder, plan(2)]), [None, None]);
    }

    #[test]
    fn the_duration_is_from_the_claim_to_the_end() {
        let took = |status: Value| duration_seconds(&run(1, "Plan", &status));
        assert_eq!(took(json!({ "startedAt": "2026-01-01T00:01:10Z" })), Some(30.0));
        assert_eq!(took(json!({ "startedAt": "2026-01-01T01:00:00Z" })), Some(0.0));
        assert_eq!(took(json!({})), None, "no runner claimed it");
    }
}
