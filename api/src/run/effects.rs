//! What a plan does, by class: what the guard rails decide on, and how drift is ranked. No values, sensitive or not.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shape::is_zero;

/// Counts of a plan's effects. Each touched resource counts once, in the class of its most far-reaching change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanEffects {
    /// Resources that are made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub creates: i64,
    /// Resources that are destroyed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deletes: i64,
    /// Resources that leave the state and stay in the world.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub forgets: i64,
    /// Of all these, effects that ignoreDrift tells to ignore.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ignored: i64,
    /// Resources that are imported and otherwise left as they are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub imports: i64,
    /// Resources that get another address and are otherwise left as they are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moves: i64,
    /// Effects of a kind that this version does not know.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others: i64,
    /// Outputs that change.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outputs: i64,
    /// Resources that are destroyed and made anew, in either order.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replaces: i64,
    /// Types of the touched resources, sorted.
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
    /// Most types that are listed.
    pub const TYPES: usize = 200;

    /// How many resources the plan touches; effects of unknown kinds count too, outputs do not.
    #[must_use]
    pub fn touched(&self) -> i64 {
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

/// As drift is told: `1 delete, 2 replace, 3 in-place`, the worst first; `output-only` where no resource is touched.
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
        let mut told: Vec<_> = classes
            .into_iter()
            .filter(|(count, _)| *count != 0)
            .map(|(count, class)| format!("{count} {class}"))
            .collect();
        if told.is_empty() && self.outputs != 0 {
            told.push(format!("{} output-only", self.outputs));
        }
        f.write_str(&told.join(", "))?;
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
    fn classes_are_told_the_worst_first() {
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
            (outputs.to_string().as_str(), outputs.touched()),
            ("4 output-only", 0)
        );
        assert_eq!(PlanEffects::default().to_string(), "");
    }
}
