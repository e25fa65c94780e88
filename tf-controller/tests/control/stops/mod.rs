//! Exhaustive interruption: each story is told once undisturbed, and each of its steps is written down: the writes of the
//! controller, of the runners and of the CLI, the commands, the watch events. Then it is told again, and at one step the
//! program dies before it or after it, the whole machine stops, the answer is lost, an event is late or lost. Whatever it was,
//! the story ends in the same state, and no law was broken on the way.
//!
//! Controller, runners and CLI are processes, killed with SIGKILL; the provider is the suites' own. A run takes a sample of all
//! that can go wrong, chosen by a seed of the commit and the day that is printed: `SLUICE_SEED=number` takes another one,
//! `SLUICE_STOPS=number` a larger one, `SLUICE_STOPS=all` everything (hours), `SLUICE_STOPS=2/5` the second of five parts of everything, `SLUICE_STOP=text` what
//! is printed with this text in it; `SLUICE_AT_ONCE=number` tells more of them at once.

mod bell;
pub(crate) mod controller;
mod fate;
mod gate;
pub(crate) mod laws;
mod outcome;
mod stage;
mod stories;

use crate::world::DEADLINE;
use fate::{Cut, Side};
use futures::{StreamExt as _, stream};
use sluice_harness::sample::Numbers;
use stage::Stage;
use std::time::Duration;
use stories::Story;

/// Interruptions of each story, unless the environment says otherwise.
const SAMPLE: usize = 10;
/// How often a story is told for one interruption: two writes may be one this time, and then its step does not come.
const TELLINGS: usize = 3;
/// Tellings at once, unless the environment says otherwise: they wait much of the time.
const AT_ONCE: u64 = 3;

/// What came of a telling.
struct Told {
    steps: Vec<String>,
    outcome: String,
    happened: bool,
    /// Laws that were broken, and what is not as wanted in the end.
    wrong: Vec<String>,
}

/// Tells a story; `wanted` is how it ends.
async fn tell(story: Story, cut: Option<Cut>, wanted: Option<&str>) -> Told {
    let stage = Stage::new(cut.clone()).await;
    Box::pin(story.tell(&stage)).await;
    let steps = stage.fate.steps();
    story.look(&stage).await;
    let outcome = settled(&stage, wanted).await;
    let happened = stage.fate.happened();
    let (log, repeated) = (stage.log(), story.repeated(&stage));
    let violations = [stage.close().await, repeated].concat();
    let mut wrong = violations;
    if let Some(wanted) = wanted {
        wrong.extend(differences(wanted, &outcome));
    }
    if !wrong.is_empty() {
        eprintln!("{story:?} {cut:?}\n{}\n{log}", steps.join("\n"));
    }
    Told {
        steps,
        outcome,
        happened,
        wrong,
    }
}

/// The lines that one has more often than the other.
fn differences(wanted: &str, found: &str) -> Vec<String> {
    let more = |sign: char, here: &str, there: &str| {
        let mut rest: Vec<_> = there.lines().map(str::to_owned).collect();
        let mut more = Vec::new();
        for line in here.lines() {
            match rest.iter().position(|other| other == line) {
                Some(at) => drop(rest.swap_remove(at)),
                None => more.push(format!("{sign} {line}")),
            }
        }
        more
    };
    [more('-', wanted, found), more('+', found, wanted)].concat()
}

#[test]
fn a_second_object_of_a_kind_is_a_difference() {
    assert_eq!(differences("a\nb\nb", "b\na\nb"), Vec::<String>::new());
    assert_eq!(differences("a\nb", "a\nb\nb"), ["+ b"]);
    assert_eq!(differences("a\na\nb", "a\nc"), ["- a", "- b", "+ c"]);
}

/// The outcome once it is as wanted, or does not change any more.
async fn settled(stage: &Stage, wanted: Option<&str>) -> String {
    let mut last = stage.outcome().await;
    let mut same = 0;
    let patience = if wanted.is_some() { DEADLINE / 4 } else { DEADLINE };
    let settling = async {
        loop {
            if wanted.is_some_and(|wanted| wanted == last) || wanted.is_none() && same == 10 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = stage.outcome().await;
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
    };
    // What is not as wanted then is shown by who compares.
    drop(tokio::time::timeout(patience, settling).await);
    last
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The part of everything that is wished for, from 1, and how many parts there are.
fn part() -> Option<(usize, usize)> {
    let wish = std::env::var("SLUICE_STOPS").ok()?;
    if wish == "all" {
        return Some((1, 1));
    }
    let (part, parts) = wish.split_once('/')?;
    let (part, parts) = (part.parse().ok()?, parts.parse().ok()?);
    assert!((1..=parts).contains(&part), "SLUICE_STOPS={wish}");
    Some((part, parts))
}

/// All that can go wrong in a story, or a sample of it.
fn cuts(steps: &[String]) -> Vec<Cut> {
    let mut all: Vec<_> = steps
        .iter()
        .flat_map(|step| {
            Side::of(step).iter().map(|side| Cut {
                step: step.clone(),
                side: *side,
            })
        })
        .collect();
    if let Ok(step) = std::env::var("SLUICE_STOP") {
        all.retain(|cut| format!("{cut:?}").contains(&step));
        return all;
    }
    if let Some((part, parts)) = part() {
        let mut places = (1..=parts).cycle();
        all.retain(|_| places.next() == Some(part));
        // Deaths first: who stops half way has tried those.
        all.sort_by_key(|cut| matches!(cut.side, Side::Late | Side::Lost));
        return all;
    }
    let mut numbers = Numbers::of_today("interruptions");
    let wanted = number("SLUICE_STOPS").map_or(SAMPLE, |wish| usize::try_from(wish).unwrap());
    while all.len() > wanted {
        all.swap_remove(numbers.below(all.len()));
    }
    all
}

async fn undisturbed(story: Story) -> Told {
    let told = Box::pin(tell(story, None, None)).await;
    assert!(told.outcome.contains(story.ends_with()), "{}", told.outcome);
    assert_eq!(told.wrong, Vec::<String>::new());
    eprintln!("{}\n{}", told.steps.join("\n"), told.outcome);
    told
}

/// Tells the story until the interruption has happened, at most [`TELLINGS`] times. What was wrong in any telling counts.
async fn interrupt(story: Story, cut: &Cut, wanted: &str) -> Told {
    let mut tellings = 0;
    loop {
        tellings += 1;
        let told = Box::pin(tell(story, Some(cut.clone()), Some(wanted))).await;
        eprintln!("{story:?} {cut:?} happened {} {:#?}", told.happened, told.wrong);
        if told.happened || !told.wrong.is_empty() || tellings == TELLINGS {
            return told;
        }
    }
}

async fn interrupted(story: Story) {
    let undisturbed = undisturbed(story).await;
    let cuts = cuts(&undisturbed.steps);
    let (count, wanted) = (cuts.len(), undisturbed.outcome.as_str());
    let at_once = number("SLUICE_AT_ONCE").unwrap_or(AT_ONCE);
    let told: Vec<_> = stream::iter(cuts)
        .map(|cut| async move {
            let told = interrupt(story, &cut, wanted).await;
            (cut, told)
        })
        .buffer_unordered(usize::try_from(at_once).unwrap())
        .collect()
        .await;
    let missed: Vec<_> = told.iter().filter(|(_, told)| !told.happened).collect();
    let missed: Vec<_> = missed.iter().map(|(cut, _)| cut).collect();
    eprintln!("{story:?}: {count} interruptions, without an occasion: {missed:?}");
    let wrong: Vec<_> = told.iter().filter(|(_, told)| !told.wrong.is_empty()).collect();
    let wrong: Vec<_> = wrong.iter().map(|(cut, told)| (cut, &told.wrong)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        missed.len() * 10 <= count,
        "less than nine tenths of {count} happened; not: {missed:#?}"
    );
}

/// The lock that an apply took and did not hear of is its own: it is released, and the apply is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_does_not_hear_that_it_has_the_lock_is_repeated() {
    let undisturbed = undisturbed(Story::FirstApply).await;
    let mut steps = undisturbed.steps.iter();
    assert!(steps.any(|step| step == "command apply #1"));
    let step = steps.find(|step| step.starts_with("cli PUT leases")).unwrap();
    let cut = Cut {
        step: step.clone(),
        side: Side::CutAfter,
    };
    let told = Box::pin(tell(Story::FirstApply, Some(cut), Some(&undisturbed.outcome))).await;
    assert!(told.happened, "{step}");
    assert_eq!(told.wrong, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_apply_interrupted_anywhere_ends_the_same() {
    interrupted(Story::FirstApply).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_interrupted_anywhere_end_the_same() {
    interrupted(Story::Approve).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_interrupted_anywhere_is_corrected() {
    interrupted(Story::Drift).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_that_needs_an_approval_interrupted_anywhere_is_corrected_by_it() {
    interrupted(Story::DriftApproved).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_apply_interrupted_anywhere_is_finished() {
    interrupted(Story::FailedApply).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_interrupted_anywhere_is_released_when_named() {
    interrupted(Story::LockHeld).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_interrupted_anywhere_ends_the_same() {
    interrupted(Story::Destroy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_with_dependants_interrupted_anywhere_ends_the_same() {
    interrupted(Story::DeleteWithDependants).await;
}
