//! The rules for an object's status after every write. Every reconciliation of a [`TestEnvironment`] is checked.
//!
//! [`TestEnvironment`]: super::TestEnvironment

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::condition::{ConditionType as _, Polarity, SourceCondition, find};
use sluice_api::source::{GitRepository, GitRepositoryStatus};

/// The point of a reconciliation at which an object was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reconcile::tests) enum Moment {
    /// During the reconciliation, or after it was interrupted.
    During,
    /// After the reconciliation.
    After,
}

/// The status of an object according to kstatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reconcile::tests) enum Verdict {
    /// Reconciled.
    Current,
    /// In progress.
    InProgress,
    /// Failed until it is edited.
    Failed,
}

/// Applies the rules of kstatus for kinds with `Ready`, `Reconciling` and `Stalled`.
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

/// Panics with the violated rule if the status does not conform.
pub(in crate::reconcile::tests) fn assert_conforms(object: &GitRepository, moment: Moment) {
    let status = status(object);
    if status.conditions.is_empty() {
        // Nothing was reported yet: the object is new, or suspended from the start.
        assert!(
            status.observed_generation.unwrap_or(-1) <= 0,
            "handled without a condition: {status:#?}"
        );
        return;
    }
    let mut broken = form(&status).or_else(|| generations(object, &status));
    // For an object being deleted, clients only wait for its removal.
    if object.metadata.deletion_timestamp.is_none() {
        broken = broken.or_else(|| meaning(&status)).or_else(|| match moment {
            Moment::During => midway(&status),
            Moment::After => rest(object, &status),
        });
    }
    if let Some(rule) = broken {
        panic!("{moment:?}: {rule}: {:#?}", object.status);
    }
}

/// Panics if the second status must not follow the first within one reconciliation.
pub(in crate::reconcile::tests) fn assert_follows(
    before: &GitRepository,
    after: &GitRepository,
    moment: Moment,
) {
    let (old, new) = (status(before), status(after));
    for condition in &new.conditions {
        let Some(previous) = old
            .conditions
            .iter()
            .find(|previous| previous.type_ == condition.type_)
        else {
            continue;
        };
        let same = transition_of(previous) == transition_of(condition);
        let is_same_time = previous.last_transition_time == condition.last_transition_time;
        assert!(
            is_same_time || !same,
            "{}: lastTransitionTime changed without a transition",
            condition.type_
        );
        assert!(
            same || previous.last_transition_time <= condition.last_transition_time,
            "{}: lastTransitionTime decreased",
            condition.type_
        );
    }
    if moment == Moment::During {
        assert_eq!(
            (old.last_handled_reconcile_at, old.observed_generation),
            (new.last_handled_reconcile_at, new.observed_generation),
            "requests and generations are handled at the end of a reconciliation"
        );
    }
}

fn transition_of(condition: &Condition) -> (&str, &str, &str) {
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

/// Checks the format of each condition, and their order.
fn form(status: &GitRepositoryStatus) -> Option<String> {
    let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let rank = |kind: &str| {
        ["Stalled", "Reconciling", "Ready"]
            .iter()
            .position(|first| *first == kind)
    };
    let sort_key = |c: &Condition| {
        let generation = std::cmp::Reverse(c.observed_generation);
        (rank(&c.type_).unwrap_or(3), generation, c.type_.clone())
    };
    if !status.conditions.is_sorted_by_key(sort_key) {
        return Some("conditions are sorted".to_owned());
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
            (twins > 1, "types are unique"),
            (
                abnormal && condition.status != "True",
                "abnormal conditions are True",
            ),
            (!is_word(&condition.reason), "the reason is CamelCase"),
            (condition.message.is_empty(), "the message is not empty"),
            (
                condition.message.len() > 32768,
                "the message has at most 32768 bytes",
            ),
            (
                condition.last_transition_time.0.subsec_nanosecond() != 0,
                "times are whole seconds",
            ),
        ];
        let (_, rule) = broken.into_iter().find(|(broken, _)| *broken)?;
        Some(format!("{kind}: {rule}"))
    })
}

/// Checks that no observed generation is ahead of the object's.
fn generations(object: &GitRepository, status: &GitRepositoryStatus) -> Option<String> {
    let ahead = |cached: Option<i64>| cached > object.metadata.generation;
    if ahead(status.observed_generation) {
        return Some("observedGeneration is not ahead".to_owned());
    }
    let condition = status.conditions.iter().find(|c| ahead(c.observed_generation))?;
    Some(format!("{}: its generation is not ahead", condition.type_))
}

/// Checks combinations of conditions.
fn meaning(status: &GitRepositoryStatus) -> Option<String> {
    use SourceCondition::{ArtifactInStorage, Ready, Reconciling, Stalled};
    let is_true = |kind| holds(status, kind, "True");
    let broken = [
        (find(&status.conditions, Ready).is_none(), "Ready exists"),
        (
            is_true(Reconciling) && is_true(Stalled),
            "not both Reconciling and Stalled",
        ),
        (
            status.artifact.is_some() != is_true(ArtifactInStorage),
            "ArtifactInStorage matches the artifact",
        ),
        (
            status.artifact.is_some() && status.included_artifacts.len() != status.observed_include.len(),
            "each include has an artifact",
        ),
    ];
    let (_, rule) = broken.into_iter().find(|(broken, _)| *broken)?;
    Some(rule.to_owned())
}

/// Checks a status during a reconciliation.
fn midway(status: &GitRepositoryStatus) -> Option<String> {
    use SourceCondition::{Ready, Reconciling};
    let (ready, reconciling) = (
        find(&status.conditions, Ready)?,
        find(&status.conditions, Reconciling),
    );
    let Some(reconciling) = reconciling else {
        return Some("Reconciling is True during a reconciliation".to_owned());
    };
    let unknown = ready.status == "Unknown";
    let same = (&ready.reason, &ready.message) == (&reconciling.reason, &reconciling.message);
    (unknown && !same).then(|| "Ready=Unknown has the message of Reconciling".to_owned())
}

/// Checks a status after a reconciliation.
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
    // A suspended object only updates Ready.
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
        (ready && bad, "no abnormal condition while Ready"),
        (
            (is_true(Reconciling) || is_true(Stalled)) && !holds(status, Ready, "False"),
            "Ready=False with Reconciling or Stalled",
        ),
        (
            holds(status, Ready, "Unknown"),
            "Ready=Unknown only during a reconciliation",
        ),
        (
            !ready && !is_true(Reconciling) && !is_true(Stalled),
            "Reconciling or Stalled unless Ready",
        ),
        (
            ready && (lags(status.observed_generation) || some_lag),
            "no outdated generation while Ready",
        ),
        (kstatus(object) != expected, "kstatus agrees"),
    ];
    let (_, rule) = broken.into_iter().find(|(broken, _)| *broken)?;
    Some(rule.to_owned())
}
