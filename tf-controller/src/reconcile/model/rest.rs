//! That there is an end: left to itself, the system comes to rest. Together with "where nothing goes on by itself, all is as it
//! is wanted" this is what must come to be: whatever happened, once nothing more happens it gets there.
//!
//! Who can take a step for ever takes it in the end (weak fairness): a watch may be late, not dead. So a circle counts unless
//! somebody could leave it in each of its states, and goes nowhere inside it.

use super::{Sluice, Turn, checks, property, world::World};
use stateright::Model as _;
use std::{
    collections::{HashMap, HashSet},
    io::Write as _,
    sync::Arc,
    time::Instant,
};

/// The steps from each state that need nobody from outside, by the numbers of the states.
type Steps = Vec<Vec<(usize, Turn)>>;

/// Every state that can be reached, and how it goes on by itself from there.
///
/// # Errors
///
/// It does not, and not all is as it is wanted; or there is no end of states.
fn steps(model: &Sluice) -> Result<Steps, Arc<World>> {
    let mut numbers: HashMap<Arc<World>, usize> = HashMap::new();
    let mut states: Vec<Arc<World>> = Vec::new();
    let mut number = |world: World, states: &mut Vec<Arc<World>>| {
        let world = Arc::new(world);
        *numbers.entry(Arc::clone(&world)).or_insert_with(|| {
            states.push(world);
            states.len() - 1
        })
    };
    for world in model.init_states() {
        number(world, &mut states);
    }
    let mut steps = Steps::new();
    while let Some(world) = states.get(steps.len()).cloned() {
        let mut turns = Vec::new();
        model.actions(&world, &mut turns);
        let mut by_itself = Vec::new();
        for turn in turns {
            let next = model.next_state(&world, turn).filter(|next| *next != *world);
            let Some(next) = next else { continue };
            let next = number(next, &mut states);
            if turn.goes_by_itself(&world) {
                by_itself.push((next, turn));
            }
        }
        let rests = by_itself.is_empty() && world.past.wrong.is_none();
        if rests && !property::is_wanted(&world) || !model.within_boundary(&world) {
            return Err(world);
        }
        steps.push(by_itself);
    }
    Ok(steps)
}

/// States that can each be reached from each other one: Kosaraju's two walks.
fn rounds(steps: &Steps) -> Vec<Vec<usize>> {
    let mut before = vec![Vec::new(); steps.len()];
    for (state, next) in steps.iter().enumerate() {
        for (next, _) in next {
            before[*next].push(state);
        }
    }
    let mut left = Vec::new();
    let mut seen = vec![false; steps.len()];
    for begin in 0..steps.len() {
        if std::mem::replace(&mut seen[begin], true) {
            continue;
        }
        let mut way = vec![(begin, 0)];
        while let Some((state, turn)) = way.last_mut() {
            if let Some((next, _)) = steps[*state].get(*turn) {
                *turn += 1;
                if !std::mem::replace(&mut seen[*next], true) {
                    way.push((*next, 0));
                }
            } else {
                left.push(*state);
                way.pop();
            }
        }
    }
    let mut rounds = Vec::new();
    for begin in left.into_iter().rev() {
        if !std::mem::replace(&mut seen[begin], false) {
            continue;
        }
        let (mut round, mut at) = (vec![begin], 0);
        while let Some(state) = round.get(at) {
            at += 1;
            let new = before[*state]
                .iter()
                .filter(|state| std::mem::replace(&mut seen[**state], false));
            let new: Vec<_> = new.copied().collect();
            round.extend(new);
        }
        if round.len() > 1 {
            rounds.push(round);
        }
    }
    rounds
}

/// The turns of a round in which the system can go on for ever, if there is one.
fn endless(steps: &Steps) -> Option<HashSet<Turn>> {
    rounds(steps).into_iter().find_map(|round| {
        let inside: HashSet<usize> = round.iter().copied().collect();
        let mut stay = HashSet::new();
        let mut always: Option<HashSet<Turn>> = None;
        for state in &round {
            let (mut stays, mut can) = (HashSet::new(), HashSet::new());
            for (next, turn) in &steps[*state] {
                can.insert(*turn);
                if inside.contains(next) {
                    stays.insert(*turn);
                }
            }
            stay.extend(stays);
            always = Some(match always {
                Some(always) => always.intersection(&can).copied().collect(),
                None => can,
            });
        }
        // Who could leave all the time, and does nothing here, leaves.
        always
            .is_none_or(|always| always.is_subset(&stay))
            .then_some(stay)
    })
}

#[test]
fn left_to_itself_it_comes_to_rest() {
    for (name, model) in checks::small() {
        let begun = Instant::now();
        let steps = steps(&model).unwrap();
        assert_eq!(endless(&steps), None, "{name}");
        let line = format!(
            "model, rest, {name}: {} states, {:.1?}\n",
            steps.len(),
            begun.elapsed()
        );
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn a_circle_counts_unless_somebody_leaves_it() {
    let (ask, write, hear) = (Turn::Look(0), Turn::Act(0), Turn::Deliver(0));
    let round = |leaves: [bool; 2]| {
        let mut steps = vec![vec![(1, ask)], vec![(0, write)], Vec::new()];
        for (state, leaves) in leaves.into_iter().enumerate() {
            if leaves {
                steps[state].push((2, hear));
            }
        }
        endless(&steps)
    };
    let turns = Some(HashSet::from([ask, write]));
    assert_eq!(round([false, false]), turns, "nobody can leave");
    assert_eq!(
        round([true, false]),
        turns,
        "who could leave may be asked at the wrong time for ever"
    );
    assert_eq!(
        round([true, true]),
        None,
        "who can always leave does so in the end"
    );
}
