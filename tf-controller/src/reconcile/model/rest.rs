//! That there is an end: left to itself, the system goes round in no circle. Together with "where nothing goes on by itself,
//! all is as it is wanted" this is what must come to be: whatever happened, once nothing more happens it gets there.

use super::{
    Sluice, Turn,
    checks::small,
    world::World,
};
use crate::decide::Guard;
use stateright::Model as _;
use std::{collections::HashMap, io::Write as _, sync::Arc, time::Instant};

/// The steps from each state that need nobody from outside, by the numbers of the states.
type Steps = Vec<Vec<(usize, Turn)>>;

/// Every state that can be reached, and how it goes on by itself from there.
fn steps(model: &Sluice) -> Steps {
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
        steps.push(by_itself);
    }
    steps
}

/// A circle, if there is one: what is left when all that leads nowhere else was taken away.
fn circle(steps: &Steps) -> Option<Vec<Turn>> {
    let mut before = vec![Vec::new(); steps.len()];
    for (state, next) in steps.iter().enumerate() {
        next.iter().for_each(|(next, _)| before[*next].push(state));
    }
    let mut left: Vec<usize> = steps.iter().map(Vec::len).collect();
    let mut ends: Vec<usize> = (0..steps.len()).filter(|state| left[*state] == 0).collect();
    while let Some(end) = ends.pop() {
        for state in &before[end] {
            left[*state] -= 1;
            if left[*state] == 0 {
                ends.push(*state);
            }
        }
    }
    let mut at = left.iter().position(|left| *left > 0)?;
    let (mut seen, mut way) = (HashMap::new(), Vec::new());
    loop {
        if let Some(begin) = seen.insert(at, way.len()) {
            return Some(way.split_off(begin));
        }
        let (next, turn) = steps[at].iter().find(|(next, _)| left[*next] > 0)?;
        way.push(*turn);
        at = *next;
    }
}

#[test]
fn left_to_itself_it_comes_to_rest() {
    for (name, model) in small() {
        let begun = Instant::now();
        let steps = steps(&model);
        let circle = circle(&steps);
        assert!(circle.is_none(), "{name}: {circle:?}");
        let line = format!("model, rest, {name}: {} states, {:.1?}\n", steps.len(), begun.elapsed());
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn a_pass_that_looks_after_a_living_run_again_and_again_is_noticed() {
    let (_, model) = small().swap_remove(0);
    let model = Sluice {
        left_out: Some(Guard::Alive),
        ..model
    };
    let circle = circle(&steps(&model)).expect("it goes round");
    let looks = circle.iter().any(|turn| matches!(turn, Turn::Look(_)));
    assert!(looks, "{circle:?}");
}
