//! What must hold of an object's status after every write, whatever the pass was about. Every pass of a [`World`] is
//! judged by it, write for write.
//!
//! [`World`]: super::World

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::condition::{Polarity, SourceCondition, Vocabulary as _, find};
use sluice_api::source::{GitRepository, GitRepositoryStatus};

/// Where in a pass an object was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reconcile::tests) enum Moment {
    /// The pass goes on, or was broken off.
    Midway,
    /// The pass is over.
    Rest,
}

/// What a client that waits for an object concludes, by the rules of kstatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reconcile::tests) enum Verdict {
    /// Done.
    Current,
    /// Not yet.
    InProgress,
    /// Not without an edit.
    Failed,
}

/// The rules of kstatus for kinds with `Ready`, `Reconciling` and `Stalled`.
pub(in crate::reconcile::tests) fn kstatus(object: &GitRepository) -> Verdict {
    let status = status(object);
    let is_true = |kind| holds(&status, kind, "True");
    if object.metadata.generation != status.observed_generation || is_true(SourceCondition::Reconciling) {
        Verdict::InProgress
    } else if is_true(SourceCondition::Stalled) {
        Verdict::Failed
    } else if is_true(SourceCondition::Ready) {
        Verdict::Current
    } else {
        Verdict::InProgress
    }
}

/// Panics unless the status obeys the rules, naming the rule.
pub(in crate::reconcile::tests) fn assert_conforms(object: &GitRepository, moment: Moment) {
    let status = status(object);
    if status.conditions.is_empty() {
        // Nothing was reported yet: new, or suspended from the start.
        assert!(
            status.observed_generation.unwrap_or(-1) <= 0,
            "handled without a condition: {status:#?}"
        );
        return;
    }
    let mut broken = form(&status).or_else(|| generations(object, &status));
    // Who waits for an object that is being deleted waits for its end, whatever it says.
    if object.metadata.deletion_timestamp.is_none() {
        broken = broken.or_else(|| meaning(&status)).or_else(|| match moment {
            Moment::Midway => midway(&status),
            Moment::Rest => rest(object, &status),
        });
    }
    if let Some(rule) = broken {
        panic!("{moment:?}: {rule}: {:#?}", object.status);
    }
}

/// Panics unless the second status may follow the first in one pass.
pub(in crate::reconcile::tests) fn assert_follows(
    before: &GitRepository,
    after: &GitRepository,
    moment: Moment,
) {
    let (old, new) = (status(before), status(after));
    for condition in &new.conditions {
        let Some(held) = old.conditions.iter().find(|held| held.type_ == condition.type_) else {
            continue;
        };
        let same = said(held) == said(condition);
        let kept = held.last_transition_time == condition.last_transition_time;
        assert!(
            kept || !same,
            "the time of {} moves though nothing else does",
            condition.type_
        );
        assert!(
            same || held.last_transition_time <= condition.last_transition_time,
            "the time of {} runs backwards",
            condition.type_
        );
    }
    if moment == Moment::Midway {
        assert_eq!(
            (old.last_handled_reconcile_at, old.observed_generation),
            (new.last_handled_reconcile_at, new.observed_generation),
            "a request and a generation are handled at the end of a pass, not before"
        );
    }
}

fn said(condition: &Condition) -> (&str, &str, &str) {
    (&condition.status, &condition.reason, &condition.message)
}

fn status(object: &GitRepository) -> GitRepositoryStatus {
    object.status.clone().unwrap_or_default()
}

fn holds(status: &GitRepositoryStatus, kind: SourceCondition, truth: &str) -> bool {
    find(&status.conditions, kind).is_some_and(|condition| condition.status == truth)
}

fn owned(condition: &Condition) -> Option<SourceCondition> {
    SourceCondition::OWNED
        .iter()
        .copied()
        .find(|kind| kind.as_str() == condition.type_)
}

/// The form of each condition, and their order.
fn form(status: &GitRepositoryStatus) -> Option<String> {
    let word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let rank = |kind: &str| {
        ["Stalled", "Reconciling", "Ready"]
            .iter()
            .position(|first| *first == kind)
    };
    let place = |c: &Condition| {
        let generation = std::cmp::Reverse(c.observed_generation);
        (rank(&c.type_).unwrap_or(3), generation, c.type_.clone())
    };
    if !status.conditions.is_sorted_by_key(place) {
        return Some("conditions stand in their order".to_owned());
    }
    status.conditions.iter().find_map(|condition| {
        let kind = &condition.type_;
        let abnormal = owned(condition).is_some_and(|kind| kind.polarity() == Polarity::Abnormal);
        let twins = status
            .conditions
            .iter()
            .filter(|other| other.type_ == *kind)
            .count();
        let broken = [
            (twins > 1, "there is one of a kind"),
            (
                abnormal && condition.status != "True",
                "an abnormal condition is there only while it is True",
            ),
            (!word(&condition.reason), "a reason is one word"),
            (condition.message.is_empty(), "a message says something"),
            (condition.message.len() > 32768, "a message is cut to 32768 bytes"),
            (
                condition.last_transition_time.0.subsec_nanosecond() != 0,
                "times are whole seconds",
            ),
        ];
        let (_, rule) = broken.into_iter().find(|(broken, _)| *broken)?;
        Some(format!("{kind}: {rule}"))
    })
}

/// No generation is ahead of the object's.
fn generations(object: &GitRepository, status: &GitRepositoryStatus) -> Option<String> {
    let ahead = |seen: Option<i64>| seen > object.metadata.generation;
    if ahead(status.observed_generation) {
        return Some("observedGeneration is not ahead".to_owned());
    }
    let condition = status.conditions.iter().find(|c| ahead(c.observed_generation))?;
    Some(format!("{}: its generation is not ahead", condition.type_))
}

/// What conditions say together.
fn meaning(status: &GitRepositoryStatus) -> Option<String> {
    use SourceCondition::{ArtifactInStorage, Ready, Reconciling, Stalled};
    let is_true = |kind| holds(status, kind, "True");
    let broken = [
        (find(&status.conditions, Ready).is_none(), "Ready is always there"),
        (
            is_true(Reconciling) && is_true(Stalled),
            "never both Reconciling and Stalled",
        ),
        (
            status.artifact.is_some() != is_true(ArtifactInStorage),
            "ArtifactInStorage stands for the artifact",
        ),
        (
            status.artifact.is_some() && status.included_artifacts.len() != status.observed_include.len(),
            "each include has its artifact",
        ),
    ];
    let (_, rule) = broken.into_iter().find(|(broken, _)| *broken)?;
    Some(rule.to_owned())
}

/// While a pass goes on.
fn midway(status: &GitRepositoryStatus) -> Option<String> {
    use SourceCondition::{Ready, Reconciling};
    let (ready, reconciling) = (
        find(&status.conditions, Ready)?,
        find(&status.conditions, Reconciling),
    );
    let Some(reconciling) = reconciling else {
        return Some("a pass under way shows Reconciling".to_owned());
    };
    let unknown = ready.status == "Unknown";
    let same = (&ready.reason, &ready.message) == (&reconciling.reason, &reconciling.message);
    (unknown && !same).then(|| "Ready=Unknown says what Reconciling says".to_owned())
}

/// When it is over.
fn rest(object: &GitRepository, status: &GitRepositoryStatus) -> Option<String> {
    use SourceCondition::{Ready, Reconciling, Stalled};
    let is_true = |kind| holds(status, kind, "True");
    let ready = is_true(Ready);
    let bad = SourceCondition::OWNED
        .iter()
        .copied()
        .filter(|kind| kind.polarity() == Polarity::Abnormal)
        .any(is_true);
    let lags = |generation: Option<i64>| generation != object.metadata.generation;
    // A suspended pass sets Ready alone anew.
    let some_lag = status
        .conditions
        .iter()
        .filter(|c| owned(c).is_some_and(|kind| kind == Ready || !object.spec.suspend))
        .any(|c| lags(c.observed_generation));
    let expected = if is_true(Stalled) {
        Verdict::Failed
    } else if ready {
        Verdict::Current
    } else {
        Verdict::InProgress
    };
    let broken = [
        (ready && bad, "nothing abnormal while Ready"),
        (
            (is_true(Reconciling) || is_true(Stalled)) && !holds(status, Ready, "False"),
            "Ready=False beside Reconciling or Stalled",
        ),
        (
            holds(status, Ready, "Unknown"),
            "Ready=Unknown is for passes under way",
        ),
        (
            !ready && !is_true(Reconciling) && !is_true(Stalled),
            "what is not ready says whether it is tried again",
        ),
        (
            ready && (lags(status.observed_generation) || some_lag),
            "nothing lags while Ready",
        ),
        (kstatus(object) != expected, "kstatus says the same"),
    ];
    let (_, rule) = broken.into_iter().find(|(broken, _)| *broken)?;
    Some(rule.to_owned())
}
