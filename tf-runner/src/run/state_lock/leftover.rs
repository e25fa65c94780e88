//! The state lock that a command of this run left behind: the response to its creation was lost, or the release failed.
//!
//! The evidence is that of [`super`] within one run: the holder is the user and host of this run; the lock was created during
//! a command of this run that failed because of the lock; and no earlier command met it as a foreign lock. The command
//! has ended, so the lock is dead. It is not reported as a foreign lock, so that the next run can still attribute it to this one.
//! Other failures do not count as evidence: `workspace new` fails in every run but the first, and a user may lock the state at that time.
//!
//! The time spans in which a command may have left such a lock are recorded with the run. Outside of them, for example during
//! health checks, the run held no lock.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use sluice_api::run::{LockInfo, LockWindow, RunStatusLimit};
use sluice_tf_core::cli::lock::parse_created;

/// The locks that commands of this run met or may have left behind.
#[derive(Debug, Default)]
pub(crate) struct LeftoverLock {
    /// `user@host` of this run.
    who: String,
    /// The time spans of the commands that may have left a lock.
    failed: Vec<RangeInclusive<Timestamp>>,
    /// Those of them that met no lock: a command that met one created none.
    possible: Vec<RangeInclusive<Timestamp>>,
    /// The ids of the foreign locks that they met.
    foreign_ids: Vec<String>,
    /// The lock of this run that the last command met.
    own: Option<LockInfo>,
    /// The foreign lock that was met last.
    foreign: Option<LockInfo>,
}

impl LeftoverLock {
    pub(crate) fn of_holder(who: &str) -> Self {
        Self {
            who: who.to_owned(),
            ..Self::default()
        }
    }

    /// Records the lock that a command met, and its time span if it may have left a lock. Returns the lock if it is foreign.
    pub(crate) fn record(
        &mut self,
        window: Option<RangeInclusive<Timestamp>>,
        met: Option<LockInfo>,
    ) -> Option<LockInfo> {
        if met.is_none() {
            self.possible.extend(window.clone());
        }
        let is_own = met.as_ref().is_some_and(|lock| self.is_own(lock));
        let (own, met) = if is_own { (met, None) } else { (None, met) };
        self.own = own;
        self.failed.extend(window);
        self.foreign_ids.extend(met.iter().map(|lock| lock.id.clone()));
        if met.is_some() {
            self.foreign.clone_from(&met);
        }
        met
    }

    /// Takes the lock of this run that the last command met.
    pub(crate) const fn take_own(&mut self) -> Option<LockInfo> {
        self.own.take()
    }

    /// The foreign lock that was met since [`Self::forget_foreign`], not redacted.
    pub(crate) const fn foreign(&self) -> Option<&LockInfo> {
        self.foreign.as_ref()
    }

    /// Forgets the foreign lock. Called before a command that requests the lock again.
    pub(crate) fn forget_foreign(&mut self) {
        self.foreign = None;
    }

    /// The possible lock windows, for the record; `None` if they are too many.
    pub(crate) fn possible_windows(&self) -> Option<Vec<LockWindow>> {
        let window = |time: &RangeInclusive<Timestamp>| LockWindow {
            from: MicroTime(*time.start()),
            to: MicroTime(*time.end()),
        };
        (self.possible.len() <= RunStatusLimit::LOCK_WINDOWS)
            .then(|| self.possible.iter().map(window).collect())
    }

    fn is_own(&self, lock: &LockInfo) -> bool {
        let created = parse_created(&lock.created);
        lock.who == self.who
            && !self.foreign_ids.contains(&lock.id)
            && created.is_some_and(|created| self.failed.iter().any(|time| time.contains(&created)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(id: &str, who: &str) -> LockInfo {
        LockInfo {
            id: id.into(),
            who: who.into(),
            created: "2026-11-21 11:37:28.445320369 +0000 UTC".into(),
            operation: "OperationTypeApply".into(),
        }
    }

    fn time(from: &str, to: &str) -> RangeInclusive<Timestamp> {
        let time = |seconds: &str| format!("2026-11-21T11:37:{seconds}Z").parse().unwrap();
        time(from)..=time(to)
    }

    #[test]
    fn a_lock_created_during_a_failed_command_is_its_own() {
        let mut left = LeftoverLock::of_holder("me@vm");
        assert_eq!(left.record(Some(time("28.4", "28.5")), None), None);
        assert_eq!(left.take_own(), None);
        assert_eq!(
            left.record(Some(time("29", "30")), Some(lock("1", "me@vm"))),
            None
        );
        assert_eq!(left.take_own(), Some(lock("1", "me@vm")));
        assert_eq!(left.take_own(), None);
        assert_eq!(
            left.record(Some(time("31", "32")), Some(lock("1", "me@vm"))),
            None,
            "it was not released, and stays its own"
        );
        assert_eq!(left.record(Some(time("33", "34")), None), None);
        assert_eq!(left.take_own(), None, "the newest met none");
    }

    #[test]
    fn only_commands_that_met_no_lock_record_a_window() {
        let mut left = LeftoverLock::of_holder("me@vm");
        assert_eq!(left.possible_windows(), Some(Vec::new()));
        left.record(Some(time("28.4", "28.5")), None);
        left.record(Some(time("29", "30")), Some(lock("1", "me@vm")));
        left.record(Some(time("31", "32")), Some(lock("2", "you@vm")));
        left.record(None, None);
        assert_eq!(left.foreign(), Some(&lock("2", "you@vm")));
        left.forget_foreign();
        assert_eq!(left.foreign(), None);
        let spans = left.possible_windows().unwrap();
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0].from.0.to_string(), "2026-11-21T11:37:28.4Z");
        for _ in 0..RunStatusLimit::LOCK_WINDOWS {
            left.record(Some(time("33", "34")), None);
        }
        assert_eq!(left.possible_windows(), None, "more than are kept");
    }

    #[test]
    fn any_other_lock_is_foreign() {
        let somebodys = |earlier: Option<RangeInclusive<Timestamp>>, met: LockInfo| {
            let mut left = LeftoverLock::of_holder("me@vm");
            left.record(earlier, None);
            left.record(Some(time("40", "41")), Some(met.clone())) == Some(met)
        };
        assert!(!somebodys(Some(time("28.4", "28.5")), lock("1", "me@vm")));
        assert!(somebodys(Some(time("28.4", "28.5")), lock("1", "you@vm")));
        assert!(somebodys(None, lock("1", "me@vm")));
        assert!(somebodys(Some(time("28.3", "28.4")), lock("1", "me@vm")));
        assert!(somebodys(Some(time("28.5", "28.6")), lock("1", "me@vm")));
        let garbage = LockInfo {
            created: "yesterday".into(),
            ..lock("1", "me@vm")
        };
        assert!(somebodys(Some(time("28.4", "28.5")), garbage));
        let mut left = LeftoverLock::of_holder("me@vm");
        let met = Some(lock("1", "me@vm"));
        assert_eq!(
            left.record(Some(time("28.4", "33")), met.clone()),
            met,
            "taken while the command waited for it: it is not the command's"
        );
        assert_eq!(left.record(Some(time("34", "35")), met.clone()), met);
    }
}
