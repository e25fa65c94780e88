//! Random histories of three candidates: two of them never lead at the same time, whatever their clocks show.
//!
//! Wall clocks may differ by days and may be set at any time, because times in the Lease are never compared with a clock.
//! Monotonic clocks may start at any time. As in client-go, the rules depend only on the rates of the clocks: a candidate
//! waits for the duration of the Lease by its own clock, and the leader leads for the renew deadline by its own. Two lead only
//! if one clock is faster than the other by more than the ratio of the two (35 s and 30 s: a sixth).

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;

use super::{Election, Fault, Outcome, Skew, held};

/// An act of a random history.
#[derive(Clone, Debug)]
enum Act {
    Try(usize),
    Resign(usize),
    Pass(u64),
    Fault(usize, Fault),
    Arrive(usize),
    /// Sets the wall clock of a candidate to this offset in milliseconds.
    Set(usize, i64),
}

/// Two days: thousands of times the duration of the Lease.
const WALL: i64 = 2 * 24 * 60 * 60 * 1000;
/// The ratio of the fastest and the slowest is 1.15, below that of the Lease and the renew deadline (1.166).
const RATES: std::ops::Range<f64> = 0.93..1.07;

fn walls() -> impl Strategy<Value = i64> {
    // A fraction of the Lease, several times the Lease, days.
    prop_oneof![-35_000..35_000_i64, -350_000..350_000_i64, -WALL..WALL]
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let who = 0..3_usize;
    let fault = prop_oneof![
        2 => Just(Fault::None),
        1 => Just(Fault::Refused),
        1 => Just(Fault::Mute),
        1 => Just(Fault::Late),
    ];
    let act = prop_oneof![
        6 => who.clone().prop_map(Act::Try),
        1 => who.clone().prop_map(Act::Resign),
        5 => (1..20_u64).prop_map(Act::Pass),
        2 => (who.clone(), fault).prop_map(|(who, fault)| Act::Fault(who, fault)),
        2 => who.clone().prop_map(Act::Arrive),
        1 => (who, walls()).prop_map(|(who, wall)| Act::Set(who, wall)),
    ];
    proptest::collection::vec(act, 1..80)
}

fn skews() -> impl Strategy<Value = Vec<Skew>> {
    let skew = (walls(), 0..100_000_u64, RATES).prop_map(|(wall, age, rate)| Skew {
        wall,
        age: Duration::from_secs(age),
        rate,
    });
    proptest::collection::vec(skew, 3)
}

/// The result of an act: the outcome of an attempt, and the leaders afterwards.
type ObservedLease = (Option<Result<Outcome, String>>, Vec<usize>);

async fn live(acts: &[Act], skews: Vec<Skew>) -> Vec<ObservedLease> {
    let mut election = Election::new(3);
    election.skews = skews;
    let mut seen = Vec::new();
    for act in acts {
        let mut tried = None;
        match *act {
            Act::Try(n) => tried = Some(election.attempt(n).await),
            Act::Resign(n) => {
                let wall = election.wall(n);
                drop(election.candidates[n].0.release(wall).await);
            }
            Act::Pass(seconds) => election.pass(seconds),
            Act::Fault(n, fault) => election.fault(n, fault),
            Act::Arrive(n) => election.candidates[n].1.arrive(&election.api).await,
            Act::Set(n, wall) => election.skews[n].wall = wall,
        }
        let leaders = election.leaders();
        assert!(leaders.len() <= 1, "{leaders:?} lead at once");
        seen.push((tried, leaders));
    }
    // Without faults, a candidate leads within the duration of the Lease by the slowest clock.
    for n in 0..3 {
        election.fault(n, Fault::None);
        election.candidates[n].1.arrive(&election.api).await;
    }
    for n in 0..3 {
        drop(election.attempt(n).await);
    }
    election.pass(38);
    for n in 0..3 {
        drop(election.attempt(n).await);
    }
    assert_eq!(election.leaders().len(), 1);
    seen
}

fn lived(acts: &[Act], skews: Vec<Skew>) -> Vec<ObservedLease> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(live(acts, skews))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn never_two_lead_and_one_does_once_faults_stop(acts in acts(), skews in skews()) {
        lived(&acts, skews);
    }

    #[test]
    fn the_dates_of_the_lease_change_no_decision(acts in acts(), skews in skews()) {
        let one_day = |skew: &Skew| Skew { wall: 0, ..*skew };
        let same_day = skews.iter().map(one_day).collect();
        let unset: Vec<_> = acts.iter().filter(|act| !matches!(act, Act::Set(..))).cloned().collect();
        let mut seen = lived(&acts, skews).into_iter().zip(&acts).filter(|(_, act)| !matches!(act, Act::Set(..)));
        for (number, wanted) in lived(&unset, same_day).into_iter().enumerate() {
            prop_assert_eq!(seen.next().unwrap().0, wanted, "act {}", number);
        }
    }
}

/// The bound of the rules: the histories above stay within it, and this one shows that they detect a violation.
#[tokio::test]
async fn two_leaders_require_clock_rates_that_differ_by_the_ratio_of_lease_and_renewal() {
    for (rate, leaders) in [(1.16, vec![1]), (1.18, vec![0, 1])] {
        let mut election = Election::new(2);
        election.skews[1].rate = rate;
        assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
        assert_eq!(election.attempt(1).await, Ok(held("pod-0")));
        election.elapsed += Duration::from_secs(35).div_f64(rate) + Duration::from_millis(1);
        assert_eq!(election.attempt(1).await, Ok(Outcome::Acquired));
        assert_eq!(election.leaders(), leaders, "{rate}");
    }
}

/// Others observe a renewal only by a change of the Lease.
#[tokio::test]
async fn renewals_with_a_stopped_clock_are_observed() {
    let mut election = Election::new(2);
    for renewals in 0..4 {
        // The wall clock shows the same time at each renewal.
        election.skews[0].wall = renewals * -20_000;
        assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
        assert_eq!(
            election.attempt(1).await,
            Ok(held("pod-0")),
            "after {renewals} renewals"
        );
        assert_eq!(election.leaders(), [0]);
        election.pass(20);
    }
}

/// client-go writes its machine's time as well: a Lease with any date is respected for its duration.
#[tokio::test]
async fn a_lease_with_any_date_is_respected_for_exactly_its_duration() {
    for wall in [-WALL, -36_000, 36_000, WALL] {
        let mut election = Election::new(2);
        election.skews[0].wall = wall;
        assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
        let renewed = election.lease().await.spec.unwrap().renew_time.unwrap().0;
        assert_eq!(
            renewed,
            Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_millis(wall)
        );
        assert_eq!(election.attempt(1).await, Ok(held("pod-0")), "{wall}");
        election.pass(34);
        assert_eq!(election.attempt(1).await, Ok(held("pod-0")), "{wall}");
        election.pass(1);
        assert_eq!(election.attempt(1).await, Ok(Outcome::Acquired), "{wall}");
        assert_eq!(election.leaders(), [1]);
    }
}
