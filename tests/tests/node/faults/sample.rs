//! Which trials run: a sample of the pairs of fault and moment, or a shard of it.
//!
//! `make chaos` runs each pair at least once, but of those that take minutes only some. `SLUICE_SEED` repeats a sample.

use std::num::NonZeroUsize;
use std::time::Duration;

use sluice_harness::sample::Rng;

use super::Trial;
use super::fault::{self, Fault};
use super::moment::{Moment, Release};

/// The number of trials; `SLUICE_TRIALS` requests another, or `all`.
const TRIALS: usize = 7;
/// Trials of minutes among the others, each time that all others are chosen.
const LONG_TRIALS: usize = 4;

impl Trial {
    /// Returns `count` trials of these pairs of fault and moment, in a random order: each once before any is repeated. Of those that take
    /// minutes there are only `long` among the others, other ones each time.
    fn sample(rng: &mut Rng, pairs: &[(Fault, Moment)], count: usize, long: usize) -> Vec<Self> {
        let is_long = |(fault, _): &(Fault, Moment)| fault.takes_minutes();
        let (all_long, short): (Vec<_>, Vec<_>) = pairs.iter().copied().partition(is_long);
        let long = if short.is_empty() { all_long.len() } else { long };
        let (mut trials, mut left, mut left_long) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            if left.is_empty() {
                left.clone_from(&short);
                for _ in 0..long.min(all_long.len()) {
                    if left_long.is_empty() {
                        left_long.clone_from(&all_long);
                    }
                    left.push(left_long.swap_remove(rng.below(left_long.len())));
                }
            }
            let (fault, moment) = left.swap_remove(rng.below(left.len()));
            trials.push(Self::random(rng, number, fault, moment));
        }
        trials
    }

    /// Returns a trial of this pair whose other properties are random.
    fn random(rng: &mut Rng, number: usize, fault: Fault, moment: Moment) -> Self {
        let is_manual = rng.below(2) == 0;
        let delay = Duration::from_millis(rng.next_u64() % 8000);
        let release = if rng.below(2) == 0 || fault.needs_release() {
            Release::During
        } else {
            Release::After
        };
        Self {
            number,
            fault,
            moment,
            is_manual,
            delay,
            release,
        }
    }
}

/// A part of the trials, such as the first third. The shards of one sample are disjoint, and all together are the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    /// From 1.
    number: usize,
    count: usize,
}

impl Shard {
    /// Parses `1/3`.
    fn parse(text: &str) -> Option<Self> {
        let (number, count) = text.split_once('/')?;
        let (number, count): (usize, usize) = (number.parse().ok()?, count.parse().ok()?);
        (1..=count).contains(&number).then_some(Self { number, count })
    }

    const fn contains(self, trial: &Trial) -> bool {
        trial.number % self.count == self.number - 1
    }
}

/// Returns the trials that the environment requests, in their order.
pub(super) fn requested() -> Vec<Trial> {
    let variable = |name: &str| std::env::var(name).ok();
    let pairs = select(
        &variable("SLUICE_FAULT").unwrap_or_default(),
        variable("SLUICE_TRIALS").is_some(),
    );
    let (count, long) = match variable("SLUICE_TRIALS").as_deref() {
        Some("all") => (pairs.len(), pairs.len()),
        Some(count) => (count.parse().unwrap(), LONG_TRIALS),
        None => (TRIALS, 0),
    };
    let shard = variable("SLUICE_SHARD").unwrap_or_else(|| "1/1".to_owned());
    let shard = Shard::parse(&shard).expect("SLUICE_SHARD is such as 1/3");
    let mut rng = Rng::from_environment("faults during runs");
    let mut trials = Trial::sample(&mut rng, &pairs, count, long);
    trials.retain(|trial| shard.contains(trial));
    trials
}

/// Returns the pairs of fault and moment whose names contain a text; without `is_complete` none that takes minutes.
fn select(text: &str, is_complete: bool) -> Vec<(Fault, Moment)> {
    let mut pairs = fault::pairs();
    pairs.retain(|(fault, _)| is_complete || !fault.takes_minutes());
    pairs.retain(|(fault, moment)| format!("{fault:?} {moment:?}").contains(text));
    assert!(
        !pairs.is_empty(),
        "SLUICE_FAULT={text} selects nothing: set it to a part of a name such as `StopEtcd Plan`, and SLUICE_TRIALS for a fault of minutes"
    );
    pairs
}

/// Returns the number of nodes among which the trials are divided.
pub(super) fn node_count() -> usize {
    let count = std::env::var("SLUICE_NODES").unwrap_or_else(|_| "1".to_owned());
    let count = count.parse::<NonZeroUsize>();
    count.expect("SLUICE_NODES is a number from 1").get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_repeats_no_pair_before_each_was_chosen() {
        let known = fault::pairs();
        let all = known.len();
        let trials = Trial::sample(&mut Rng::from_seed(7), &known, all + 3, all);
        let mut pairs: Vec<_> = trials
            .iter()
            .take(all)
            .map(|trial| (trial.fault, trial.moment))
            .collect();
        pairs.sort();
        pairs.dedup();
        assert_eq!((pairs.len(), trials.len()), (all, all + 3));
        assert!(pairs.iter().any(|(fault, _)| *fault == Fault::KillRunner));
        // A trial of each kind exists, except one whose run continues during a fault that waits for its end.
        for release in [Release::During, Release::After] {
            assert!(trials.iter().any(|trial| trial.release == release));
        }
        let mut waiting = trials.iter().filter(|trial| trial.fault.needs_release());
        assert!(waiting.all(|trial| trial.release == Release::During));
    }

    #[test]
    fn a_sample_has_some_trials_of_minutes_and_they_are_at_any_moment() {
        let known = fault::pairs();
        let short = known.iter().filter(|(fault, _)| !fault.takes_minutes()).count();
        let round = short + LONG_TRIALS;
        let trials = Trial::sample(&mut Rng::from_seed(7), &known, 5 * round, LONG_TRIALS);
        let long = |trials: &[Trial]| {
            let long = trials.iter().filter(|trial| trial.fault.takes_minutes());
            long.map(|trial| (trial.fault, trial.moment)).collect::<Vec<_>>()
        };
        assert!(trials.chunks(round).all(|round| long(round).len() == LONG_TRIALS));
        let mut pairs = long(&trials);
        pairs.sort();
        pairs.dedup();
        assert_eq!(pairs.len(), known.len() - short, "each of them in five rounds");
        let only = [(Fault::StopRuntimeUntilEviction, Moment::Plan)];
        assert_eq!(Trial::sample(&mut Rng::from_seed(7), &only, 2, 0).len(), 2);
    }

    #[test]
    fn pairs_are_selected_by_their_names_and_a_sample_has_none_that_takes_minutes() {
        let minutes =
            |pairs: &[(Fault, Moment)]| pairs.iter().filter(|(fault, _)| fault.takes_minutes()).count();
        assert_eq!((minutes(&select("", true)), minutes(&select("", false))), (18, 0));
        assert_eq!(select("StopEtcd Plan", false), [(Fault::StopEtcd, Moment::Plan)]);
        assert_eq!(select("PauseLeader", false).len(), 9);
        // It can end only a run that has its artifact.
        assert_eq!(select("StopSourceControllerUntilEnd", false).len(), 5);
    }

    #[test]
    fn the_shards_of_a_sample_are_disjoint_and_complete() {
        let trials = Trial::sample(&mut Rng::from_seed(7), &fault::pairs(), 20, 0);
        for count in 1..=4 {
            let shards = (1..=count).map(|number| Shard { number, count });
            let mut numbers: Vec<_> = shards
                .flat_map(|shard| trials.iter().filter(move |trial| shard.contains(trial)))
                .map(|trial| trial.number)
                .collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..20).collect::<Vec<_>>(), "{count}");
        }
        assert_eq!(Shard::parse("2/3"), Some(Shard { number: 2, count: 3 }));
        for text in ["", "1", "0/3", "4/3", "1/0", "a/b"] {
            assert_eq!(Shard::parse(text), None, "{text:?}");
        }
    }
}
