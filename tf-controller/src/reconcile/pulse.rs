//! Signs of life of runs that work where their locks cannot be seen. Clocks of machines need not agree: what counts is how long,
//! by our own steady clock, nothing new was heard while somebody listened.

use crate::executor::RunRef;
use jiff::Timestamp;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// What the time between two looks counts for at most: while the API is away nobody can be heard, and a runner gets the time to
/// speak again.
const GAP: Duration = Duration::from_secs(15);
/// What was not asked for this long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// What was heard of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    beat: Option<Timestamp>,
    looked: Instant,
    silent: Duration,
}

impl Heard {
    /// After another look.
    fn now(before: Option<Self>, beat: Option<Timestamp>, now: Instant) -> Self {
        let silent = before.filter(|before| before.beat == beat).map(|before| {
            let gap = now.saturating_duration_since(before.looked).min(GAP);
            before.silent.saturating_add(gap)
        });
        Self {
            beat,
            looked: now,
            silent: silent.unwrap_or_default(),
        }
    }
}

/// The ear for such runs.
pub(crate) struct Pulses {
    silence: Duration,
    heard: Mutex<HashMap<RunRef, Heard>>,
}

impl Pulses {
    /// Those that are silent for this long are dead.
    pub(crate) fn new(silence: Duration) -> Self {
        Self {
            silence,
            heard: Mutex::default(),
        }
    }

    /// Whether the run, which last said at `beat` that it lives, still counts as living.
    pub(crate) fn lives(&self, run: &RunRef, beat: Option<Timestamp>, now: Instant) -> bool {
        let mut all = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, heard| now.saturating_duration_since(heard.looked) < FORGOTTEN);
        let heard = Heard::now(all.get(run).copied(), beat, now);
        all.insert(run.clone(), heard);
        heard.silent < self.silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(60);

    fn run() -> RunRef {
        RunRef {
            namespace: "team".into(),
            name: "net-1".into(),
        }
    }

    fn beat(number: i64) -> Timestamp {
        Timestamp::from_second(number).unwrap()
    }

    #[test]
    fn a_run_is_dead_when_nothing_new_was_heard_for_the_time_that_was_listened() {
        let (pulses, start) = (Pulses::new(SILENCE), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for seconds in (0..60).step_by(10) {
            assert!(pulses.lives(&run(), Some(beat(1)), at(seconds)), "{seconds}");
        }
        assert!(!pulses.lives(&run(), Some(beat(1)), at(60)));
        // Whatever the time says that it tells, also an earlier one: it is a new word.
        assert!(pulses.lives(&run(), Some(beat(0)), at(61)));
        assert!(pulses.lives(&run(), Some(beat(0)), at(70)));
    }

    #[test]
    fn time_in_which_nobody_listened_does_not_count_against_a_run() {
        let (pulses, start) = (Pulses::new(SILENCE), Instant::now());
        assert!(pulses.lives(&run(), Some(beat(1)), start));
        assert!(pulses.lives(&run(), Some(beat(1)), start + Duration::from_secs(1800)));
        assert!(pulses.lives(&run(), Some(beat(2)), start + Duration::from_secs(1810)));
    }

    #[test]
    fn a_run_that_never_said_anything_is_given_the_same_time() {
        let (pulses, start) = (Pulses::new(SILENCE), Instant::now());
        let looks = (0..20).map(|look| pulses.lives(&run(), None, start + Duration::from_secs(look * 10)));
        assert_eq!(looks.filter(|lives| *lives).count(), 6);
    }
}
