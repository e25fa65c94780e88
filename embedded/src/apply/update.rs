//! Ownership after a write, and the merge of server-side apply (structured-merge-diff's `merge/update.go`). Pure.

use serde_json::Value;

use super::compare::Comparison;
use super::field_set::{FieldSet, Path};
use super::fields_of::field_set;
use super::managers::{Identity, Managers, Owned};
use super::merge::{merge, remove};
use super::path::display;
use super::shape::Shape;

/// A field that another manager owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) owner: Identity,
    pub(super) path: Path,
}

/// The error of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UpdateError {
    /// Other managers own fields with other values.
    Conflicts(Vec<Conflict>),
    /// The lists of an object cannot be merged.
    Merge(String),
}

impl From<String> for UpdateError {
    fn from(text: String) -> Self {
        Self::Merge(text)
    }
}

/// What does not change between the writes to one endpoint.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) shape: &'a Shape,
    /// Version of the write.
    pub(super) api_version: &'a str,
    /// Whether the endpoint stores a top-level field (upstream's `resetFields`).
    pub(super) stores: fn(&str) -> bool,
}

impl Rules<'_> {
    /// Takes the changed fields from other managers, and removed ones from all of them. Without `force`, a changed field of another
    /// manager is a conflict.
    fn take(
        self,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
        writer: &Identity,
        force: bool,
    ) -> Result<Comparison, UpdateError> {
        let all = Comparison::of(self.shape, live, new)?;
        let stored = all.filter_top(self.stores);
        let changed = stored.modified.union(&stored.added);
        let mut conflicts = Vec::new();
        for (owner, owned) in managers.iter().filter(|(owner, _)| *owner != writer) {
            let paths = owned.set.intersection(&changed).paths().into_iter();
            conflicts.extend(paths.map(|path| Conflict {
                owner: owner.clone(),
                path,
            }));
        }
        if !force && !conflicts.is_empty() {
            return Err(UpdateError::Conflicts(conflicts));
        }
        for (_, owned) in managers.iter_mut().filter(|(owner, _)| *owner != writer) {
            owned.set = owned.set.difference(&changed).difference(&stored.removed);
        }
        managers.retain(|_, owned| !owned.set.is_empty());
        Ok(all)
    }

    /// Records the changes of a write other than apply: its fields belong to `writer`.
    ///
    /// # Errors
    /// If the lists of the objects cannot be compared.
    pub(super) fn update(
        self,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
        writer: &Identity,
    ) -> Result<(), UpdateError> {
        let changes = self.take(live, new, managers, writer, true)?;
        let before = managers.remove(writer);
        let owned = before
            .as_ref()
            .map_or_else(FieldSet::default, |owned| owned.set.clone());
        let owned = owned.difference(&changes.removed);
        let set = owned.union(&changes.modified).union(&changes.added);
        let set = set.filter_top(self.stores);
        if !set.is_empty() {
            let owned = Owned {
                set,
                api_version: self.api_version.into(),
                time: before.and_then(|owned| owned.time),
            };
            managers.insert(writer.clone(), owned);
        }
        Ok(())
    }

    /// Merges an applied configuration. Returns the new object.
    ///
    /// # Errors
    /// If there are conflicts and no `force`, or the lists of the objects cannot be merged.
    pub(super) fn apply(
        self,
        live: &Value,
        config: &Value,
        managers: &mut Managers,
        writer: &Identity,
        force: bool,
    ) -> Result<Value, UpdateError> {
        let merged = merge(self.shape, live, config)?;
        let last = managers.remove(writer);
        let owned = Owned {
            set: field_set(self.shape, config).filter_top(self.stores),
            api_version: self.api_version.into(),
            time: last.as_ref().and_then(|last| last.time.clone()),
        };
        managers.insert(writer.clone(), owned);
        let new = match last {
            Some(last) if !last.set.is_empty() => self.prune(&merged, managers, &last.set),
            _ => merged,
        };
        self.take(live, &new, managers, writer, force)?;
        Ok(new)
    }

    /// Removes the fields that the writer applied last time and not now, unless another manager owns them.
    fn prune(self, merged: &Value, managers: &Managers, last: &FieldSet) -> Value {
        let named = |set: &FieldSet| set.with_named_fields(self.shape);
        let fields = |object: &Value| named(&field_set(self.shape, object));
        let all = fields(merged);
        let pruned = remove(self.shape, merged, &named(last));
        // Restores the fields of other managers, with the fields that contain them.
        let owned = managers
            .values()
            .fold(FieldSet::default(), |set, owned| set.union(&owned.set));
        let kept = fields(&pruned).union(&named(&owned));
        let pruned = remove(self.shape, merged, &all.difference(&kept));
        // Restore fields without managers too: the writer removes only fields that it had applied.
        let removed = all.difference(&fields(&pruned)).intersection(&named(last));
        remove(self.shape, merged, &removed)
    }
}

/// Returns upstream's message for conflicts.
pub(super) fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.owner,
            display(&one.path)
        );
    }
    let mut lines: Vec<String> = Vec::new();
    let mut owner = None;
    for conflict in conflicts {
        if owner != Some(&conflict.owner) {
            lines.push(format!("conflicts with {}:", conflict.owner));
            owner = Some(&conflict.owner);
        }
        lines.push(format!("- {}", display(&conflict.path)));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}
