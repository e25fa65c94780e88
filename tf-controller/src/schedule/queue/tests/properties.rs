//! Properties of the queue over random histories.

use proptest::prelude::*;

use super::*;

/// The order of the queue by its definition, one stack after the other.
fn reference_order(queue: &RunQueue, now: Instant) -> Vec<ObjectKey> {
    let mut left: Vec<_> = queue.waiting.iter().collect();
    let mut totals = queue.totals.clone();
    let mut order = Vec::new();
    while !left.is_empty() {
        let best = (0..left.len()).min_by_key(|index| {
            let (stack, waiter) = left[*index];
            (
                waiter.urgency(now),
                totals.runs_of(&stack.namespace),
                waiter.ticket,
            )
        });
        let (stack, waiter) = left.remove(best.unwrap());
        totals.add(&stack.namespace, &waiter.usage);
        order.push(stack.clone());
    }
    order
}

/// One step of a random history: what happens, the stack, its priority, the values of its labels, its memory.
type RandomStep = (u8, (u8, u8), u8, (u8, u8), u64);

fn random_steps() -> impl Strategy<Value = Vec<RandomStep>> {
    let step = (
        0_u8..4,
        (0_u8..3, 0_u8..4),
        0_u8..3,
        (0_u8..3, 0_u8..2),
        0_u64..60,
    );
    proptest::collection::vec(step, 1..80)
}

/// Carries a step out.
fn step(
    queue: &mut RunQueue,
    (what, (namespace, name), priority, (account, team), memory): RandomStep,
    now: Instant,
) {
    let stack = key(&format!("n{namespace}/{name}"));
    match what {
        0 | 1 => {
            let labels = [("account", account), ("team", team)];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_string()));
            let usage = queue.limits().usage(&labels.into(), memory);
            queue.request(&stack, Priority::ALL[usize::from(priority)], usage, now);
        }
        2 => drop(queue.release(&stack, now)),
        _ => drop(queue.expire_grants(now)),
    }
}

proptest! {
    /// The limits hold after every sequence of steps, and each free slot that a stack may take is granted.
    #[test]
    fn limits_hold_and_no_slot_is_lost(
        steps in random_steps(), runs in 1_u16..4, per_namespace in 0_u16..3, account in 0_u16..3, team in 0_u16..3, memory in 0_u64..100,
    ) {
        let limits = RunLimits {
            runs,
            per_namespace,
            per_label: [("account".to_owned(), account), ("team".to_owned(), team)].into(),
            memory: MemoryQuantity::from_bytes(memory),
        };
        let (mut queue, mut now) = (RunQueue::new(limits.clone()), Instant::now());
        for random in steps {
            now += Duration::from_mins(1);
            step(&mut queue, random, now);
            let running: Vec<_> = queue.occupied.iter().collect();
            prop_assert!(running.len() <= usize::from(runs));
            let mut totals = UsageTotals::new();
            for (stack, usage) in &running {
                totals.add(&stack.namespace, usage);
                let of_namespace = running.iter().filter(|(other, _)| other.namespace == stack.namespace).count();
                prop_assert!(per_namespace == 0 || of_namespace <= usize::from(per_namespace));
                for (key, value) in &usage.labels {
                    let same = running.iter().filter(|(_, other)| other.labels.get(key) == Some(value)).count();
                    prop_assert!(same <= usize::from(limits.per_label[key]));
                }
            }
            let of_namespaces: Vec<u64> = (0..3).map(|number| totals.memory_of(&format!("n{number}"))).collect();
            let counted: u64 = of_namespaces.iter().map(|used| (*used).min(memory.div_ceil(2))).sum();
            prop_assert!(memory == 0 || counted <= memory && of_namespaces.iter().all(|used| *used <= memory));
            prop_assert_eq!(&totals, &queue.totals);
            prop_assert!(running.iter().all(|(stack, _)| !queue.waiting.contains_key(*stack)));
            let next = queue.admissible(now).stacks;
            prop_assert!(next.iter().all(|stack| queue.waiting[stack].granted.is_some()), "a slot is free and not granted");
            prop_assert!(!queue.occupied.is_empty() || queue.waiting.is_empty() || !next.is_empty(), "nothing runs and all wait");
        }
    }

    /// Half of the memory is for the stacks of one namespace whatever those of another one claim. A stack that has waited long starts
    /// whatever the stacks of another namespace do, once its own namespace runs nothing else.
    #[test]
    fn a_namespace_has_half_of_the_memory_whatever_another_one_claims(
        steps in proptest::collection::vec((0_u8..4, (0_u8..2, 0_u8..4), 0_u8..3, any::<u64>(), 0_u64..60), 1..80), half in 1_u64..50,
    ) {
        // There is a slot for each of the eight stacks.
        let (mut queue, mut now) = (queue_with_memory(9, 2 * half), Instant::now());
        for (what, place, priority, claimed, needed) in steps {
            now += Duration::from_mins(2);
            let memory = if place.0 == 0 { claimed } else { needed };
            step(&mut queue, (what, place, priority, (0, 0), memory), now);
            let next = queue.admissible(now).stacks;
            for namespace in ["n0", "n1"] {
                let mut order = queue.positions(now).map(|(_, ranked)| ranked);
                let Some(first) = order.find(|ranked| ranked.stack.namespace == namespace) else {
                    continue;
                };
                let needs_its_half = queue.totals.memory_of(namespace).saturating_add(first.waiter.usage.memory) <= half;
                let waited = first.waiter.is_aged(now) && queue.totals.runs_of(namespace) == 0;
                let must_start = needs_its_half || waited;
                prop_assert!(!must_start || next.contains(first.stack), "{namespace} is held back");
            }
        }
    }

    /// The order that is computed for all at once is the one that its definition gives.
    #[test]
    fn positions_are_those_of_the_definition(steps in random_steps(), runs in 1_u16..4) {
        let (mut queue, mut now) = (queue(runs, 0), Instant::now());
        for random in steps {
            now += Duration::from_mins(1);
            step(&mut queue, random, now);
            let order: Vec<_> = queue.positions(now).map(|(_, ranked)| ranked.stack.clone()).collect();
            prop_assert_eq!(order, reference_order(&queue, now));
        }
    }

    /// Without limits but that of all runs, the next stacks are the first ones.
    #[test]
    fn the_first_stacks_are_the_next(steps in random_steps(), runs in 1_u16..4, more in 0_u16..3) {
        let (mut queue, now) = (queue(runs, 0), Instant::now());
        for random in steps {
            step(&mut queue, random, now);
        }
        queue.limits.runs += more;
        let free = queue.limits.slots() - queue.occupied.len();
        let first: Vec<_> = reference_order(&queue, now).into_iter().take(free).collect();
        prop_assert_eq!(queue.admissible(now).stacks, first);
    }
}
