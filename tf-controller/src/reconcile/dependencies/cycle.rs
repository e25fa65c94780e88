//! The graph of `dependsOn`: circles by name, and the order in which stacks are called. Pure over the watch's cache.

use kube::ResourceExt;
use sluice_api::terraform::Terraform;
use sluice_runtime::{schedule::ObjectKey, watch::Objects};
use std::collections::{BTreeMap, BTreeSet};

/// More stacks than any chain has; beyond it nothing is said about a circle.
const STEPS: usize = 10_000;

/// The stacks that a stack names, whether or not it may.
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

/// Names the circle that leads from the stack back to it.
pub(super) fn of(stack: &Terraform, all: &Objects<Terraform>) -> Option<String> {
    let start = ObjectKey::of(stack);
    let circle = circle(&start, targets(stack), |key| {
        all.get(key).map(|stack| targets(&stack)).unwrap_or_default()
    })?;
    let names: Vec<_> = circle.iter().map(ToString::to_string).collect();
    Some(format!(
        "dependsOn forms a cycle: {}; none of them can be first, so remove one of these dependencies",
        names.join(" -> ")
    ))
}

/// The stacks that are deleted and build on each other in circles, this one among them, in the order in which they go; empty where
/// there is no such circle.
pub(super) fn deleted_together(stack: &Terraform, all: &Objects<Terraform>) -> BTreeSet<ObjectKey> {
    let is_deleted = |stack: &Terraform| stack.metadata.deletion_timestamp.is_some();
    if !is_deleted(stack) || stack.spec.depends_on.is_empty() {
        return BTreeSet::new();
    }
    let deleted = all.filter(|other| is_deleted(other));
    let edges = deleted
        .iter()
        .map(|other| (ObjectKey::of(&**other), targets(other)));
    together(&ObjectKey::of(stack), &edges.collect())
}

/// Those that `start` leads to and that lead back to it, `start` among them; empty where there are none (pure).
fn together(start: &ObjectKey, edges: &BTreeMap<ObjectKey, Vec<ObjectKey>>) -> BTreeSet<ObjectKey> {
    let mut back: BTreeMap<ObjectKey, Vec<ObjectKey>> = BTreeMap::new();
    for (from, targets) in edges {
        for to in targets.iter().filter(|to| edges.contains_key(to)) {
            back.entry(to.clone()).or_default().push(from.clone());
        }
    }
    let behind = reached(start, edges);
    let before = reached(start, &back);
    behind.intersection(&before).cloned().collect()
}

/// What can be reached from `start` in at least one step.
fn reached(start: &ObjectKey, edges: &BTreeMap<ObjectKey, Vec<ObjectKey>>) -> BTreeSet<ObjectKey> {
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

/// A shortest way from `start` back to it, both ends named.
fn circle(
    start: &ObjectKey,
    first: Vec<ObjectKey>,
    next: impl Fn(&ObjectKey) -> Vec<ObjectKey>,
) -> Option<Vec<ObjectKey>> {
    let mut from: BTreeMap<ObjectKey, ObjectKey> = BTreeMap::new();
    let mut open: std::collections::VecDeque<_> = first.into_iter().map(|key| (start.clone(), key)).collect();
    for _ in 0..STEPS {
        let (before, key) = open.pop_front()?;
        if key == *start {
            let mut way = vec![start.clone(), before.clone()];
            let mut at = &before;
            while let Some(earlier) = from.get(at) {
                way.push(earlier.clone());
                at = earlier;
            }
            way.reverse();
            return Some(way);
        }
        if from.contains_key(&key) {
            continue;
        }
        open.extend(next(&key).into_iter().map(|target| (key.clone(), target)));
        from.insert(key, before);
    }
    None
}

/// The keys so that each stands behind those of them that it builds on, directly or by way of others. Members of a circle
/// come in some order, and none is lost.
pub(crate) fn in_order(keys: Vec<ObjectKey>, all: &Objects<Terraform>) -> Vec<ObjectKey> {
    sorted(keys, |key| {
        all.get(key).map(|stack| targets(&stack)).unwrap_or_default()
    })
}

fn sorted(keys: Vec<ObjectKey>, next: impl Fn(&ObjectKey) -> Vec<ObjectKey>) -> Vec<ObjectKey> {
    let wanted: BTreeSet<_> = keys.iter().cloned().collect();
    let (mut done, mut order) = (BTreeSet::new(), Vec::new());
    for key in keys {
        // Depth first without recursion: a key is put down when all below it are.
        let mut open = vec![(key, false)];
        while let Some((key, below)) = open.pop() {
            if below {
                if wanted.contains(&key) {
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

    /// `a:b,c` means that a builds on b and c.
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
        let way = circle(&key(start), next(&key(start)), next)?;
        Some(
            way.iter()
                .map(|key| key.name.clone())
                .collect::<Vec<_>>()
                .join(" "),
        )
    }

    #[test]
    fn a_circle_is_named_by_all_its_members() {
        assert_eq!(found("a", "a:b b:c"), None);
        assert_eq!(found("a", "a:a").unwrap(), "a a");
        assert_eq!(found("a", "a:b b:a").unwrap(), "a b a");
        assert_eq!(found("b", "a:b b:c c:d,a").unwrap(), "b c a b");
        assert_eq!(
            found("x", "x:a a:b b:a"),
            None,
            "it stands before the circle, not in it"
        );
        assert_eq!(found("a", "a:b,c b:d c:a d:a").unwrap(), "a c a", "the shortest");
    }

    #[test]
    fn those_of_one_circle_are_together_and_those_around_it_are_not() {
        let found = |start: &str, text: &str| {
            let all: BTreeSet<_> = text.replace([':', ','], " ").split(' ').map(key).collect();
            let edges = all
                .into_iter()
                .map(|key| (key.clone(), graph(text)(&key)))
                .collect();
            let names: Vec<_> = together(&key(start), &edges)
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
            "two circles that share a stack"
        );
        let living = [(key("a"), vec![key("b")]), (key("c"), vec![key("a")])].into();
        assert!(together(&key("a"), &living).is_empty(), "b is not deleted");
    }

    #[test]
    fn stacks_are_called_behind_what_they_build_on() {
        let order = |keys: &str, text: &str| {
            let keys = keys.split(' ').map(key).collect();
            let order: Vec<_> = sorted(keys, graph(text))
                .into_iter()
                .map(|key| key.name)
                .collect();
            order.join(" ")
        };
        assert_eq!(order("a b c", "a:b b:c"), "c b a");
        assert_eq!(order("a c", "a:b b:c"), "c a", "by way of one that is not called");
        assert_eq!(order("d a b c", "a:b,c b:d c:d"), "d c b a");
        let circle = order("a b c", "a:b b:a c:a");
        assert_eq!(circle.len(), 5, "{circle}");
        assert!(circle.ends_with('c'), "{circle}");
    }
}
