//! The conditions of a `GitRepository` while a pass works on them: taken over, set, removed, summed up. Pure; vocabulary
//! and form are the API's.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::condition::{SourceCondition, Truth, Verdict, Vocabulary as _, settle, summarise};

/// Names of all condition types that this controller owns.
#[must_use]
pub(super) fn owned() -> Vec<&'static str> {
    SourceCondition::OWNED.iter().map(|kind| kind.as_str()).collect()
}

/// Conditions being worked on. What is not touched stays as it was, with the generation it was set at.
#[derive(Clone, Debug)]
pub(super) struct Board {
    held: Vec<Condition>,
    verdicts: Vec<Verdict<SourceCondition>>,
}

impl Board {
    /// Begins with what the object shows.
    pub(super) fn new(held: &[Condition]) -> Self {
        let carried = SourceCondition::OWNED
            .iter()
            .filter_map(|kind| Verdict::carried(*kind, held));
        Self {
            held: held.to_vec(),
            verdicts: carried.collect(),
        }
    }

    /// The condition as it stands.
    pub(super) fn get(&self, kind: SourceCondition) -> Option<&Verdict<SourceCondition>> {
        self.verdicts.iter().find(|verdict| verdict.kind == kind)
    }

    /// Sets a condition.
    pub(super) fn set(&mut self, kind: SourceCondition, truth: Truth, reason: &str, message: &str) {
        self.delete(kind);
        self.verdicts.push(Verdict::new(kind, truth, reason, message));
    }

    /// Sets a condition to `True`.
    pub(super) fn yes(&mut self, kind: SourceCondition, reason: &str, message: &str) {
        self.set(kind, Truth::True, reason, message);
    }

    /// Removes a condition.
    pub(super) fn delete(&mut self, kind: SourceCondition) {
        self.verdicts.retain(|verdict| verdict.kind != kind);
    }

    /// Computes `Ready` from the others; without any, it stays.
    pub(super) fn sum_up(&mut self) {
        if let Some(ready) = summarise(&self.verdicts) {
            self.delete(SourceCondition::Ready);
            self.verdicts.push(ready);
        }
    }

    /// The conditions as status shows them; what was set is stamped with `generation` and, where it changed, with `now`.
    pub(super) fn into_conditions(self, generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
        settle(&self.held, &self.verdicts, generation, now)
    }
}
