//! Which names a definition gets, after the naming controller of apiextensions-apiserver. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::meta;
use crate::resource::{Registry, Resource, Strategy};

/// The names of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DefinitionNames {
    plural: String,
    singular: String,
    kind: String,
    list_kind: String,
    short_names: Vec<String>,
    categories: Vec<String>,
}

/// The names that other kinds of the group have.
#[derive(Debug, Default)]
pub(super) struct UsedNames {
    /// Plural, singular and short names.
    resources: BTreeSet<String>,
    /// Kinds and kinds of lists.
    kinds: BTreeSet<String>,
}

impl DefinitionNames {
    /// Returns the names in the spec.
    pub(super) fn requested(definition: &Value) -> Self {
        Self::of(&definition["spec"]["names"])
    }

    /// Returns the names that were accepted before; empty for a new definition.
    pub(super) fn accepted(definition: &Value) -> Self {
        Self::of(&definition["status"]["acceptedNames"])
    }

    fn of(names: &Value) -> Self {
        let text = |field: &str| names[field].as_str().unwrap_or_default().to_owned();
        let list = |field: &str| {
            meta::strings(&names[field])
                .into_iter()
                .map(str::to_owned)
                .collect()
        };
        Self {
            plural: text("plural"),
            singular: text("singular"),
            kind: text("kind"),
            list_kind: text("listKind"),
            short_names: list("shortNames"),
            categories: list("categories"),
        }
    }

    /// Returns the fields of a definition, without empty ones that may be absent.
    pub(super) fn to_value(&self) -> Value {
        let mut value = json!({"plural": self.plural, "kind": self.kind});
        for (field, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                value[field] = text.as_str().into();
            }
        }
        for (field, list) in [
            ("shortNames", &self.short_names),
            ("categories", &self.categories),
        ] {
            if !list.is_empty() {
                value[field] = json!(list);
            }
        }
        value
    }

    /// Accepts requested names that no other definition has; the others stay as they were. Returns the reason and the message of a
    /// conflict too, the last one if there are several.
    pub(super) fn accept(
        &self,
        requested: &Self,
        used: &UsedNames,
    ) -> (Self, Option<(&'static str, String)>) {
        let mut names = Self {
            categories: requested.categories.clone(),
            ..self.clone()
        };
        let (mut conflict, in_use) = (None, |name: &str| format!("{name:?} is already in use"));
        let fields = [
            (
                "PluralConflict",
                &requested.plural,
                &mut names.plural,
                &used.resources,
            ),
            (
                "SingularConflict",
                &requested.singular,
                &mut names.singular,
                &used.resources,
            ),
            ("KindConflict", &requested.kind, &mut names.kind, &used.kinds),
            (
                "ListKindConflict",
                &requested.list_kind,
                &mut names.list_kind,
                &used.kinds,
            ),
        ];
        for (reason, requested, accepted, used) in fields {
            if requested != accepted && used.contains(requested) {
                conflict = Some((reason, in_use(requested)));
            } else {
                accepted.clone_from(requested);
            }
        }
        let is_taken = |name: &&String| !self.short_names.contains(name) && used.resources.contains(*name);
        let taken: Vec<String> = requested
            .short_names
            .iter()
            .filter(is_taken)
            .map(|name| in_use(name))
            .collect();
        match taken.as_slice() {
            [] => names.short_names.clone_from(&requested.short_names),
            [one] => conflict = Some(("ShortNamesConflict", one.clone())),
            many => conflict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
        }
        (names, conflict)
    }
}

impl UsedNames {
    /// Returns the names of the group of a definition that the program and other definitions have.
    pub(super) fn beside(
        definition: &Value,
        own: &Registry,
        accepted: &BTreeMap<String, DefinitionNames>,
    ) -> Self {
        let (name, group) = (meta::name(definition), definition["spec"]["group"].as_str());
        let group = group.unwrap_or_default();
        let mut used = Self::default();
        let in_group = |resource: &&Arc<Resource>| resource.group == group;
        for resource in own.all().iter().filter(in_group) {
            // A definition that the program no longer contains may have the same name.
            if resource.strategy == Strategy::Custom && resource.group_resource() == name {
                continue;
            }
            used.resources.extend(resource.short_names.iter().cloned());
            used.resources
                .extend([resource.plural.clone(), resource.singular.clone()]);
            used.kinds
                .extend([resource.kind.clone(), resource.list_kind.clone()]);
        }
        let is_other =
            |other: &str| other != name && other.split_once('.').is_some_and(|(_, of)| of == group);
        for (_, names) in accepted.iter().filter(|(other, _)| is_other(other)) {
            used.resources.extend(names.short_names.iter().cloned());
            used.resources
                .extend([names.plural.clone(), names.singular.clone()]);
            used.kinds.extend([names.kind.clone(), names.list_kind.clone()]);
        }
        // A definition without accepted names has empty ones.
        used.resources.remove("");
        used.kinds.remove("");
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &str) -> Value {
        json!({
            "metadata": {"name": format!("{plural}.example.dev")},
            "spec": {"group": "example.dev", "names": {
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
                "shortNames": [short],
            }},
        })
    }

    #[test]
    fn a_name_belongs_to_the_first_definition() {
        let first = definition("tools", "Tool", "tl");
        let accepted = BTreeMap::from([("tools.example.dev".to_owned(), DefinitionNames::requested(&first))]);
        let accept = |second: &Value| {
            let used = UsedNames::beside(second, &Registry::builtin(), &accepted);
            DefinitionNames::accepted(second).accept(&DefinitionNames::requested(second), &used)
        };
        let free = definition("gears", "Gear", "gr");
        assert_eq!(accept(&free), (DefinitionNames::requested(&free), None));
        let (names, conflict) = accept(&definition("gears", "Tool", "gr"));
        assert_eq!(names.kind, "", "the kind is not accepted");
        assert_eq!(names.plural, "gears");
        let expected = ("ListKindConflict", "\"ToolList\" is already in use".to_owned());
        assert_eq!(conflict, Some(expected));
        let (_, conflict) = accept(&definition("gears", "Gear", "tl"));
        let expected = ("ShortNamesConflict", "\"tl\" is already in use".to_owned());
        assert_eq!(conflict, Some(expected));
        assert_eq!(accept(&first).1, None, "its own names");
    }
}
