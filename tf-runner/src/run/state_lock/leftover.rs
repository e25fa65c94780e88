//! The state lock that a command of this very run left behind: it was taken and the answer was lost, or it could not be released.
//!
//! The proof is that of [`super::unlock`] inside one run: the lock's holder is the user and host of this run, it was taken in the
//! time of a command of this run that failed over the lock, and no command of this run met it as somebody's before that. Such a
//! lock is nobody's any more, since the command is over. It is not told as one that somebody holds: so the next run may still
//! prove it to be this one's, should this one be gone before it is released. What fails for another reason says nothing of a lock:
//! `workspace new` does so in every run but the first, and a person may take the lock in that moment.
//!
//! The times in which such a lock may have been left are put on record with the run: at any other time of it, minutes of health
//! checks among them, nothing of the run held a lock.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use sluice_api::run::{LockInfo, LockWindow, RunStatusLimit};

use sluice_tf_core::cli::lock::parse_created;

/// What is known of such locks.
#[derive(Debug, Default)]
pub(crate) struct LeftoverLock {
    /// `user@host` of this run.
    who: String,
    /// When the commands went that may have left one.
    failed: Vec<RangeInclusive<Timestamp>>,
    /// Those of them that met no lock: whoever met one took none.
    took: Vec<RangeInclusive<Timestamp>>,
    /// The ids of the locks of somebody that they met.
    met: Vec<String>,
    /// The lock of its own that the newest of them met.
    own: Option<LockInfo>,
    /// The lock of somebody that was met last.
    somebodys: Option<LockInfo>,
}

impl LeftoverLock {
    pub(crate) fn by(who: &str) -> Self {
        Self {
            who: who.to_owned(),
            ..Self::default()
        }
    }

    /// A command met this lock; it went at `time`, if it may have left one itself. Returns the lock if it is somebody's.
    pub(crate) fn note(
        &mut self,
        time: Option<RangeInclusive<Timestamp>>,
        met: Option<LockInfo>,
    ) -> Option<LockInfo> {
        if met.is_none() {
            self.took.extend(time.clone());
        }
        let is_own = met.as_ref().is_some_and(|lock| self.is_own(lock));
        let (own, met) = if is_own { (met, None) } else { (None, met) };
        self.own = own;
        self.failed.extend(time);
        self.met.extend(met.iter().map(|lock| lock.id.clone()));
        if met.is_some() {
            self.somebodys.clone_from(&met);
        }
        met
    }

    /// The lock of its own that the newest failed command met; it is told once.
    pub(crate) const fn take(&mut self) -> Option<LockInfo> {
        self.own.take()
    }

    /// The lock of somebody that was met since this was last forgotten, as the CLI tells it.
    pub(crate) const fn somebodys(&self) -> Option<&LockInfo> {
        self.somebodys.as_ref()
    }

    /// Whether somebody holds the lock is asked anew.
    pub(crate) fn forget_somebodys(&mut self) {
        self.somebodys = None;
    }

    /// When commands went that may have left a lock, for the record; `None` where these are too many to be on it.
    pub(crate) fn spans(&self) -> Option<Vec<LockWindow>> {
        let span = |time: &RangeInclusive<Timestamp>| LockWindow {
            from: MicroTime(*time.start()),
            to: MicroTime(*time.end()),
        };
        (self.took.len() <= RunStatusLimit::LOCK_WINDOWS).then(|| self.took.iter().map(span).collect())
    }

    fn is_own(&self, lock: &LockInfo) -> bool {
        let created = parse_created(&lock.created);
        lock.who == self.who
            && !self.met.contains(&lock.id)
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
    fn a_lock_of_the_time_of_a_failed_command_is_its_own() {
        let mut left = LeftoverLock::by("me@vm");
        assert_eq!(left.note(Some(time("28.4", "28.5")), None), None);
        assert_eq!(left.take(), None);
        assert_eq!(left.note(Some(time("29", "30")), Some(lock("1", "me@vm"))), None);
        assert_eq!(left.take(), Some(lock("1", "me@vm")));
        assert_eq!(left.take(), None);
        assert_eq!(
            left.note(Some(time("31", "32")), Some(lock("1", "me@vm"))),
            None,
            "it was not released, and stays its own"
        );
        assert_eq!(left.note(Some(time("33", "34")), None), None);
        assert_eq!(left.take(), None, "the newest met none");
    }

    #[test]
    fn only_who_met_no_lock_is_on_record_as_one_that_may_have_left_one() {
        let mut left = LeftoverLock::by("me@vm");
        assert_eq!(left.spans(), Some(Vec::new()));
        left.note(Some(time("28.4", "28.5")), None);
        left.note(Some(time("29", "30")), Some(lock("1", "me@vm")));
        left.note(Some(time("31", "32")), Some(lock("2", "you@vm")));
        left.note(None, None);
        assert_eq!(left.somebodys(), Some(&lock("2", "you@vm")));
        left.forget_somebodys();
        assert_eq!(left.somebodys(), None);
        let spans = left.spans().unwrap();
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0].from.0.to_string(), "2026-11-21T11:37:28.4Z");
        for _ in 0..RunStatusLimit::LOCK_WINDOWS {
            left.note(Some(time("33", "34")), None);
        }
        assert_eq!(left.spans(), None, "more than are kept");
    }

    #[test]
    fn any_other_lock_is_somebodys() {
        let somebodys = |earlier: Option<RangeInclusive<Timestamp>>, met: LockInfo| {
            let mut left = LeftoverLock::by("me@vm");
            left.note(earlier, None);
            left.note(Some(time("40", "41")), Some(met.clone())) == Some(met)
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
        let mut left = LeftoverLock::by("me@vm");
        let met = Some(lock("1", "me@vm"));
        assert_eq!(
            left.note(Some(time("28.4", "33")), met.clone()),
            met,
            "taken while the command waited for it: it is not the command's"
        );
        assert_eq!(left.note(Some(time("34", "35")), met.clone()), met);
    }
}
