//! The graph of `dependsOn`: cycles, and the order in which stacks are triggered. Pure over the watch's cache.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use sluice_api::terraform::Terraform;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::watch::ObjectCache;

/// Longest search for a cycle; beyond it none is reported.
const MAX_STEPS: usize = 10_000;

/// Returns the stacks that a stack names, allowed or not.
pub(crate) fn targets(stack: &Terraform) -> Vec<ObjectKey> {
    let own = stack.namespace().unwrap_or_default();
    let key = |to: &sluice_api::terraform::Dependency| ObjectKey {
        namespace: if to.namespace.is_empty() {
            own.clone()
        } else {
            to.namespace.clone()
        },
        name: to.name.clone(),
    };
    stack.spec.depends_on.iter().map(key).collect()
}

/// Describes the cycle from the stack back to it.
pub(super) fn describe(stack: &Terraform, all: &ObjectCache<Terraform>) -> Option<String> {
    let start = ObjectKey::of(stack);
    let cycle = shortest_cycle(&start, targets(stack), |key| {
        all.get(key).map(|stack| targets(&stack)).unwrap_or_default()
    })?;
    let names: Vec<_> = cycle.iter().map(ToString::to_string).collect();
    Some(format!(
        "dependsOn forms a cycle: {}; remove one of these dependencies",
        names.join(" -> ")
    ))
}

/// Returns the deleted stacks that are in a dependency cycle with this one, including it, in the order of their
/// deletion. Empty without such a cycle.
pub(super) fn deleted_cycle(stack: &Terraform, all: &ObjectCache<Terraform>) -> BTreeSet<ObjectKey> {
    let is_deleted = |stack: &Terraform| stack.metadata.deletion_timestamp.is_some();
    if !is_deleted(stack) || stack.spec.depends_on.is_empty() {
        return BTreeSet::new();
    }
    let deleted = all.filter(|other| is_deleted(other));
    let edges = deleted
        .iter()
        .map(|other| (ObjectKey::of(&**other), targets(other)));
    cycle_members(&ObjectKey::of(stack), &edges.collect())
}

/// Returns the stacks that `start` leads to and that lead back to it, including `start`; empty if there are none. Pure.
fn cycle_members(start: &ObjectKey, edges: &BTreeMap<ObjectKey, Vec<ObjectKey>>) -> BTreeSet<ObjectKey> {
    let mut back: BTreeMap<ObjectKey, Vec<ObjectKey>> = BTreeMap::new();
    for (from, targets) in edges {
        for to in targets.iter().filter(|to| edges.contains_key(to)) {
            back.entry(to.clone()).or_default().push(from.clone());
        }
    }
    let forward = reachable(start, edges);
    let before = reachable(start, &back);
    forward.intersection(&before).cloned().collect()
}

/// Returns what can be reached from `start` in at least one step.
fn reachable(start: &ObjectKey, edges: &BTreeMap<ObjectKey, Vec<ObjectKey>>) -> BTreeSet<ObjectKey> {
    let (mut found, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(key) = open.pop() {
        for next in edges.get(key).into_iter().flatten() {
            if found.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    found
}

/// Returns a shortest path from `start` back to it, with both ends.
fn shortest_cycle(
    start: &ObjectKey,
    first: Vec<ObjectKey>,
    next: impl Fn(&ObjectKey) -> Vec<ObjectKey>,
) -> Option<Vec<ObjectKey>> {
    let mut from: BTreeMap<ObjectKey, ObjectKey> = BTreeMap::new();
    let mut open: std::collections::VecDeque<_> = first.into_iter().map(|key| (start.clone(), key)).collect();
    for _ in 0..MAX_STEPS {
        let (before, key) = open.pop_front()?;
        if key == *start {
            let mut path = vec![start.clone(), before.clone()];
            let mut at = &before;
            while let Some(earlier) = from.get(at) {
                path.push(earlier.clone());
                at = earlier;
            }
            path.reverse();
            return Some(path);
        }
        if from.contains_key(&key) {
            continue;
        }
        open.extend(next(&key).into_iter().map(|target| (key.clone(), target)));
        from.insert(key, before);
    }
    None
}

/// Orders the keys so that each follows its direct and indirect dependencies. Members of a cycle come in any order; none is lost.
pub(crate) fn dependency_order(keys: Vec<ObjectKey>, all: &ObjectCache<Terraform>) -> Vec<ObjectKey> {
    topological_order(keys, |key| {
        all.get(key).map(|stack| targets(&stack)).unwrap_or_default()
    })
}

fn topological_order(keys: Vec<ObjectKey>, next: impl Fn(&ObjectKey) -> Vec<ObjectKey>) -> Vec<ObjectKey> {
    let requested: BTreeSet<_> = keys.iter().cloned().collect();
    let (mut done, mut order) = (BTreeSet::new(), Vec::new());
    for key in keys {
        // Depth first without recursion: a key is emitted after all its dependencies.
        let mut open = vec![(key, false)];
        while let Some((key, below)) = open.pop() {
            if below {
                if requested.contains(&key) {
                    order.push(key);
                }
            } else if done.insert(key.clone()) {
                let targets = next(&key);
                open.push((key, true));
                open.extend(targets.into_iter().map(|target| (target, false)));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey {
            namespace: "team".into(),
            name: name.into(),
        }
    }

    /// Parses edges: `a:b,c` means that a depends on b and c.
    fn graph(text: &str) -> impl Fn(&ObjectKey) -> Vec<ObjectKey> {
        let edges: BTreeMap<ObjectKey, Vec<ObjectKey>> = text
            .split_whitespace()
            .filter_map(|edge| edge.split_once(':'))
            .map(|(from, to)| (key(from), to.split(',').map(key).collect()))
            .collect();
        move |key| edges.get(key).cloned().unwrap_or_default()
    }

    fn found(start: &str, text: &str) -> Option<String> {
        let next = graph(text);
        let path = shortest_cycle(&key(start), next(&key(start)), next)?;
        Some(
            path.iter()
                .map(|key| key.name.clone())
                .collect::<Vec<_>>()
                .join(" "),
        )
    }

    #[test]
    fn a_cycle_is_reported_with_all_its_members() {
        assert_eq!(found("a", "a:b b:c"), None);
        assert_eq!(found("a", "a:a").unwrap(), "a a");
        assert_eq!(found("a", "a:b b:a").unwrap(), "a b a");
        assert_eq!(found("b", "a:b b:c c:d,a").unwrap(), "b c a b");
        assert_eq!(
            found("x", "x:a a:b b:a"),
            None,
            "it leads to the cycle but is not in it"
        );
        assert_eq!(found("a", "a:b,c b:d c:a d:a").unwrap(), "a c a", "the shortest");
    }

    #[test]
    fn cycle_members_exclude_stacks_outside_the_cycle() {
        let found = |start: &str, text: &str| {
            let all: BTreeSet<_> = text.replace([':', ','], " ").split(' ').map(key).collect();
            let edges = all
                .into_iter()
                .map(|key| (key.clone(), graph(text)(&key)))
                .collect();
            let names: Vec<_> = cycle_members(&key(start), &edges)
                .into_iter()
                .map(|key| key.name)
                .collect();
            names.join(" ")
        };
        assert_eq!(found("a", "a:b b:c"), "");
        assert_eq!(found("a", "a:a"), "a");
        assert_eq!(found("b", "a:b b:a,d c:a"), "a b");
        assert_eq!(found("c", "a:b b:a,d c:a"), "");
        assert_eq!(
            found("a", "a:b b:c c:a,d d:c"),
            "a b c d",
            "two cycles that share a stack"
        );
        let living = [(key("a"), vec![key("b")]), (key("c"), vec![key("a")])].into();
        assert!(cycle_members(&key("a"), &living).is_empty(), "b is not deleted");
    }

    #[test]
    fn stacks_follow_their_dependencies() {
        let order = |keys: &str, text: &str| {
            let keys = keys.split(' ').map(key).collect();
            let order: Vec<_> = topological_order(keys, graph(text))
                .into_iter()
                .map(|key| key.name)
                .collect();
            order.join(" ")
        };
        assert_eq!(order("a b c", "a:b b:c"), "c b a");
        assert_eq!(
            order("a c", "a:b b:c"),
            "c a",
            "by path of one that is not called"
        );
        assert_eq!(order("d a b c", "a:b,c b:d c:d"), "d c b a");
        let cycle = order("a b c", "a:b b:a c:a");
        assert_eq!(cycle.len(), 5, "{cycle}");
        assert!(cycle.ends_with('c'), "{cycle}");
    }
}
