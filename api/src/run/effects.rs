//! The effects of a plan by class, for the guard rails and for drift. Contains no values.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serialization::is_zero;

/// Counts of a plan's effects. Each affected resource counts once, in the class of its most severe change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanEffects {
    /// Resources that are created.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub creates: i64,
    /// Resources that are destroyed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deletes: i64,
    /// Resources that are removed from the state without being destroyed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub forgets: i64,
    /// Number of these effects that ignoreDrift ignores.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ignored: i64,
    /// Resources that are imported without other changes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub imports: i64,
    /// Resources that get another address without other changes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moves: i64,
    /// Effects of unknown kinds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: i64,
    /// Outputs that change.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outputs: i64,
    /// Resources that are destroyed and created again, in either order.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replaces: i64,
    /// Types of the affected resources, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// Number of types beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub types_omitted: i64,
    /// Resources that are changed in place.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub updates: i64,
}

impl PlanEffects {
    /// Maximum number of listed types.
    pub const MAX_TYPES: usize = 200;

    /// Returns the number of affected resources, including effects of unknown kinds, without outputs.
    #[must_use]
    pub(crate) fn affected_resources(&self) -> i64 {
        let counts = [
            self.creates,
            self.deletes,
            self.forgets,
            self.imports,
            self.moves,
            self.others,
            self.replaces,
            self.updates,
        ];
        counts.into_iter().fold(0, i64::saturating_add)
    }
}

/// Formats drift: `1 delete, 2 replace, 3 in-place`, most severe first; `output-only` if no resource is affected.
impl fmt::Display for PlanEffects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = [
            (self.others, "of an unknown kind"),
            (self.deletes, "delete"),
            (self.replaces, "replace"),
            (self.forgets, "forget"),
            (self.updates, "in-place"),
            (self.creates, "create"),
            (self.imports, "import"),
            (self.moves, "move"),
        ];
        let mut parts: Vec<_> = classes
            .into_iter()
            .filter(|(count, _)| *count != 0)
            .map(|(count, class)| format!("{count} {class}"))
            .collect();
        if parts.is_empty() && self.outputs != 0 {
            parts.push(format!("{} output-only", self.outputs));
        }
        f.write_str(&parts.join(", "))?;
        if self.ignored != 0 {
            write!(f, "; {} of them ignored", self.ignored)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_listed_most_severe_first() {
        let mut effects = PlanEffects {
            updates: 2,
            deletes: 1,
            outputs: 4,
            ..PlanEffects::default()
        };
        assert_eq!(effects.to_string(), "1 delete, 2 in-place");
        effects.ignored = 1;
        assert_eq!(effects.to_string(), "1 delete, 2 in-place; 1 of them ignored");
        let outputs = PlanEffects {
            outputs: 4,
            ..PlanEffects::default()
        };
        assert_eq!(
            (outputs.to_string().as_str(), outputs.affected_resources()),
            ("4 output-only", 0)
        );
        assert_eq!(PlanEffects::default().to_string(), "");
    }
}
