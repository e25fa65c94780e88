//! Termination: without outside events, the system stops. Together with the property of convergence this shows that
//! the desired state is reached once no more events happen.
//!
//! Weak fairness is assumed: a step that stays possible is taken in the end, since a watch may lag but not die. So a strongly
//! connected component counts unless some transition is possible in each of its states and never stays inside it.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use stateright::Model as _;

use super::state::SystemState;
use super::{Sluice, Transition, checks, property};

/// The internal steps from each state, by the numbers of the states.
type Steps = Vec<Vec<(usize, Transition)>>;

/// Returns every reachable state and its internal steps.
///
/// # Errors
///
/// A final state that has not converged, or one beyond the boundary.
fn steps(model: &Sluice) -> Result<Steps, Arc<SystemState>> {
    let mut numbers: HashMap<Arc<SystemState>, usize> = HashMap::new();
    let mut states: Vec<Arc<SystemState>> = Vec::new();
    let mut number = |state: SystemState, states: &mut Vec<Arc<SystemState>>| {
        let state = Arc::new(state);
        *numbers.entry(Arc::clone(&state)).or_insert_with(|| {
            states.push(state);
            states.len() - 1
        })
    };
    for state in model.init_states() {
        number(state, &mut states);
    }
    let mut steps = Steps::new();
    while let Some(state) = states.get(steps.len()).cloned() {
        let mut transitions = Vec::new();
        model.actions(&state, &mut transitions);
        let mut internal = Vec::new();
        for transition in transitions {
            let next = model
                .next_state(&state, transition)
                .filter(|next| *next != *state);
            let Some(next) = next else { continue };
            let next = number(next, &mut states);
            if transition.is_internal(&state) {
                internal.push((next, transition));
            }
        }
        let is_final = internal.is_empty() && state.trace.violation.is_none();
        if is_final && !property::is_converged(&state) || !model.within_boundary(&state) {
            return Err(state);
        }
        steps.push(internal);
    }
    Ok(steps)
}

/// Returns the strongly connected components, by Kosaraju's algorithm.
fn strongly_connected(steps: &Steps) -> Vec<Vec<usize>> {
    let mut predecessors = vec![Vec::new(); steps.len()];
    for (state, next) in steps.iter().enumerate() {
        for (next, _) in next {
            predecessors[*next].push(state);
        }
    }
    let mut finished = Vec::new();
    let mut visited = vec![false; steps.len()];
    for start in 0..steps.len() {
        if std::mem::replace(&mut visited[start], true) {
            continue;
        }
        let mut path = vec![(start, 0)];
        while let Some((state, transition)) = path.last_mut() {
            if let Some((next, _)) = steps[*state].get(*transition) {
                *transition += 1;
                if !std::mem::replace(&mut visited[*next], true) {
                    path.push((*next, 0));
                }
            } else {
                finished.push(*state);
                path.pop();
            }
        }
    }
    let mut strongly_connected = Vec::new();
    for start in finished.into_iter().rev() {
        if !std::mem::replace(&mut visited[start], false) {
            continue;
        }
        let (mut component, mut at) = (vec![start], 0);
        while let Some(state) = component.get(at) {
            at += 1;
            let new = predecessors[*state]
                .iter()
                .filter(|state| std::mem::replace(&mut visited[**state], false));
            let new: Vec<_> = new.copied().collect();
            component.extend(new);
        }
        if component.len() > 1 {
            strongly_connected.push(component);
        }
    }
    strongly_connected
}

/// Returns the transitions of a component in which the system can stay forever, if there is one.
fn endless(steps: &Steps) -> Option<HashSet<Transition>> {
    strongly_connected(steps).into_iter().find_map(|component| {
        let inside: HashSet<usize> = component.iter().copied().collect();
        let mut stay = HashSet::new();
        let mut always: Option<HashSet<Transition>> = None;
        for state in &component {
            let (mut inner, mut possible) = (HashSet::new(), HashSet::new());
            for (next, transition) in &steps[*state] {
                possible.insert(*transition);
                if inside.contains(next) {
                    inner.insert(*transition);
                }
            }
            stay.extend(inner);
            always = Some(match always {
                Some(always) => always.intersection(&possible).copied().collect(),
                None => possible,
            });
        }
        // A transition that is always possible and never stays inside leaves the component.
        always
            .is_none_or(|always| always.is_subset(&stay))
            .then_some(stay)
    })
}

#[test]
fn every_stack_reaches_idle_without_further_input() {
    for (name, model) in checks::small() {
        let started = Instant::now();
        let steps = steps(&model).unwrap();
        assert_eq!(endless(&steps), None, "{name}");
        let line = format!(
            "model, rest, {name}: {} states, {:.1?}\n",
            steps.len(),
            started.elapsed()
        );
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn a_component_is_endless_unless_a_transition_leaves_it() {
    let (reconcile, write, deliver) = (
        Transition::Reconcile(0),
        Transition::Write(0),
        Transition::Deliver(0),
    );
    let component = |leaves: [bool; 2]| {
        let mut steps = vec![vec![(1, reconcile)], vec![(0, write)], Vec::new()];
        for (state, leaves) in leaves.into_iter().enumerate() {
            if leaves {
                steps[state].push((2, deliver));
            }
        }
        endless(&steps)
    };
    let transitions = Some(HashSet::from([reconcile, write]));
    assert_eq!(component([false, false]), transitions, "no transition leaves");
    assert_eq!(
        component([true, false]),
        transitions,
        "a transition that is not always possible may never be taken"
    );
    assert_eq!(
        component([true, true]),
        None,
        "a transition that is always possible is taken in the end"
    );
}
