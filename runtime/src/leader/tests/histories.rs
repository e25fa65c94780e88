//! Random histories of three candidates: at no time do two of them lead.

use jiff::Timestamp;
use proptest::prelude::*;

use super::{Fault, World};

/// What happens in a random history.
#[derive(Clone, Debug)]
enum Act {
    Try(usize),
    Resign(usize),
    Pass(u64),
    Fault(usize, Fault),
    Arrive(usize),
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
        2 => who.prop_map(Act::Arrive),
    ];
    proptest::collection::vec(act, 1..80)
}

async fn live(acts: Vec<Act>) {
    let mut world = World::new(3);
    for act in acts {
        match act {
            Act::Try(n) => drop(world.attempt(n).await),
            Act::Resign(n) => {
                let wall = Timestamp::UNIX_EPOCH + world.elapsed;
                drop(world.candidates[n].0.resign(wall).await);
            }
            Act::Pass(seconds) => world.pass(seconds),
            Act::Fault(n, fault) => world.fault(n, fault),
            Act::Arrive(n) => world.candidates[n].1.arrive(&world.api).await,
        }
        let leaders = world.leaders();
        assert!(leaders.len() <= 1, "{leaders:?} lead at once");
    }
    // Once faults stop, somebody leads in the time of a lease.
    for n in 0..3 {
        world.fault(n, Fault::None);
        world.candidates[n].1.arrive(&world.api).await;
    }
    for n in 0..3 {
        drop(world.attempt(n).await);
    }
    world.pass(35);
    for n in 0..3 {
        drop(world.attempt(n).await);
    }
    assert_eq!(world.leaders().len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn never_two_lead_and_one_does_once_faults_stop(acts in acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(live(acts));
    }
}
