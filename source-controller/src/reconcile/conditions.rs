//! The conditions of a `GitRepository` during a reconciliation. Pure; the API crate defines the vocabulary.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::condition::{
    ConditionStatus, ConditionType as _, ConditionUpdate, SourceCondition, merge_conditions, ready_condition,
};

/// Returns the names of all condition types that this controller owns.
#[must_use]
pub(super) fn owned() -> Vec<&'static str> {
    SourceCondition::OWNED.iter().map(|kind| kind.as_str()).collect()
}

/// A set of conditions under construction. Untouched conditions keep their status and observed generation.
#[derive(Clone, Debug)]
pub(super) struct ConditionSet {
    existing: Vec<Condition>,
    updates: Vec<ConditionUpdate<SourceCondition>>,
}

impl ConditionSet {
    /// Creates a set from the conditions in the status.
    pub(super) fn new(existing: &[Condition]) -> Self {
        let carried = SourceCondition::OWNED
            .iter()
            .filter_map(|kind| ConditionUpdate::retained(*kind, existing));
        Self {
            existing: existing.to_vec(),
            updates: carried.collect(),
        }
    }

    /// Returns the current condition of a type.
    pub(super) fn get(&self, kind: SourceCondition) -> Option<&ConditionUpdate<SourceCondition>> {
        self.updates.iter().find(|update| update.kind == kind)
    }

    /// Sets a condition.
    pub(super) fn set(
        &mut self,
        kind: SourceCondition,
        status: ConditionStatus,
        reason: &str,
        message: &str,
    ) {
        self.delete(kind);
        self.updates
            .push(ConditionUpdate::new(kind, status, reason, message));
    }

    /// Sets a condition to `True`.
    pub(super) fn set_true(&mut self, kind: SourceCondition, reason: &str, message: &str) {
        self.set(kind, ConditionStatus::True, reason, message);
    }

    /// Removes a condition.
    pub(super) fn delete(&mut self, kind: SourceCondition) {
        self.updates.retain(|update| update.kind != kind);
    }

    /// Computes `Ready` from the other conditions; keeps it if there are none.
    pub(super) fn set_ready(&mut self) {
        if let Some(ready) = ready_condition(&self.updates) {
            self.delete(SourceCondition::Ready);
            self.updates.push(ready);
        }
    }

    /// Returns the conditions for the status. Sets `generation` on changed verdicts and `now` on status transitions.
    pub(super) fn into_conditions(self, generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
        merge_conditions(&self.existing, &self.updates, generation, now)
    }
}
