//! Sets of field paths, as in structured-merge-diff, and their JSON form `fieldsV1`. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::path::Element;
use super::shape::Shape;

/// Maximum nesting of a set: that of an object.
const MAX_DEPTH: usize = 128;

/// A path from the root of an object.
pub(super) type Path = Vec<Element>;

/// A set of paths. A path can be in the set without its ancestors, and with or without its descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    /// Paths of one element.
    members: BTreeSet<Element>,
    /// Longer paths by their first element. No child is empty.
    children: BTreeMap<Element, Self>,
}

impl FieldSet {
    /// Creates a set of these paths.
    pub(super) fn of(paths: impl IntoIterator<Item = Path>) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(&path);
        }
        set
    }

    /// Parses `fieldsV1`; `None` if it is malformed or too deep.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        Self::from_fields(value.as_object()?, MAX_DEPTH)
    }

    fn from_fields(fields: &Map<String, Value>, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let mut set = Self::default();
        // The path of the whole object has no manager, so "." counts only below an element.
        for (key, value) in fields.iter().filter(|(key, _)| key.as_str() != ".") {
            let element = Element::parse(key)?;
            let inner = value.as_object()?;
            let child = Self::from_fields(inner, depth)?;
            if inner.is_empty() || inner.contains_key(".") {
                set.members.insert(element.clone());
            }
            if !child.is_empty() {
                set.children.insert(element, child);
            }
        }
        Some(set)
    }

    /// Returns `fieldsV1`.
    pub(super) fn to_json(&self) -> Value {
        let mut fields = Map::new();
        for member in &self.members {
            fields.insert(member.to_key(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            let mut inner = child.to_json();
            if self.members.contains(element) {
                inner["."] = Value::Object(Map::new());
            }
            fields.insert(element.to_key(), inner);
        }
        Value::Object(fields)
    }

    /// Adds a path. The empty path is never in a set.
    pub(super) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Whether a path is in the set.
    pub(super) fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.has(rest)),
        }
    }

    /// Whether a path of one element is in the set.
    pub(super) fn has_member(&self, element: &Element) -> bool {
        self.members.contains(element)
    }

    /// Returns the paths below an element, without it.
    pub(super) fn child(&self, element: &Element) -> Option<&Self> {
        self.children.get(element)
    }

    /// Whether the set has no path.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Returns the paths of both sets.
    pub(super) fn union(&self, other: &Self) -> Self {
        let mut set = self.clone();
        set.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            let union = set
                .children
                .get(element)
                .map_or_else(|| child.clone(), |own| own.union(child));
            set.children.insert(element.clone(), union);
        }
        set
    }

    /// Returns the paths that are in both sets.
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            let common = child.intersection(other.children.get(element)?);
            (!common.is_empty()).then(|| (element.clone(), common))
        });
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Returns the paths that are not in the other set.
    pub(super) fn difference(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            let rest = match other.children.get(element) {
                Some(removed) => child.difference(removed),
                None => child.clone(),
            };
            (!rest.is_empty()).then(|| (element.clone(), rest))
        });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Returns the paths whose top-level field passes the filter.
    pub(super) fn filter_top(&self, keeps: impl Fn(&str) -> bool) -> Self {
        let is_kept = |element: &Element| match element {
            Element::Field(name) => keeps(name),
            _ => true,
        };
        let members = self.members.iter().filter(|member| is_kept(member));
        let children = self.children.iter().filter(|(element, _)| is_kept(element));
        Self {
            members: members.cloned().collect(),
            children: children.map(|(e, child)| (e.clone(), child.clone())).collect(),
        }
    }

    /// Returns the set with the declared fields above its paths: removing the last path of such a field removes the field.
    pub(super) fn with_named_fields(&self, shape: &Shape) -> Self {
        let mut set = Self {
            members: self.members.clone(),
            children: BTreeMap::new(),
        };
        for (element, child) in &self.children {
            let shape = match element {
                Element::Field(name) => {
                    if shape.declares(name) {
                        set.members.insert(element.clone());
                    }
                    shape.field(name)
                }
                Element::Key(_) => shape.items(),
                _ => None,
            };
            let named = child.with_named_fields(shape.unwrap_or(&Shape::Deduced));
            set.children.insert(element.clone(), named);
        }
        set
    }

    /// Returns all paths, a path before its descendants' siblings.
    pub(super) fn paths(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.collect(&mut Vec::new(), &mut found);
        found
    }

    fn collect(&self, prefix: &mut Path, found: &mut Vec<Path>) {
        for member in &self.members {
            let mut path = prefix.clone();
            path.push(member.clone());
            found.push(path);
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect(prefix, found);
            prefix.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn element() -> impl Strategy<Value = Element> {
        prop_oneof![
            "[a-c]".prop_map(|name| Element::field(&name)),
            (0_i64..3).prop_map(Element::Index),
            "[a-c]".prop_map(|text| Element::Value(super::super::path::Scalar::Text(text))),
        ]
    }

    fn set() -> impl Strategy<Value = FieldSet> {
        let path = proptest::collection::vec(element(), 1..4);
        proptest::collection::vec(path, 0..12).prop_map(FieldSet::of)
    }

    /// Any JSON value, with keys that look like those of `fieldsV1`.
    fn hostile() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!({})),
            any::<i64>().prop_map(|n| json!(n))
        ];
        leaf.prop_recursive(8, 64, 4, |inner| {
            let key = prop_oneof![Just(".".to_owned()), "[fkvix]:[a-z0-9{}\":]{0,6}", ".{0,4}"];
            proptest::collection::vec((key, inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect()))
        })
    }

    proptest! {
        #[test]
        fn the_json_form_is_reversible(set in set()) {
            prop_assert_eq!(FieldSet::from_json(&set.to_json()), Some(set));
        }

        #[test]
        fn operations_agree_with_their_paths(a in set(), b in set()) {
            for path in a.paths().iter().chain(&b.paths()) {
                let (in_a, in_b) = (a.has(path), b.has(path));
                prop_assert_eq!(a.union(&b).has(path), in_a || in_b);
                prop_assert_eq!(a.intersection(&b).has(path), in_a && in_b);
                prop_assert_eq!(a.difference(&b).has(path), in_a && !in_b);
            }
            prop_assert!(a.difference(&a).is_empty());
        }

        #[test]
        fn any_json_is_parsed_or_rejected(value in hostile()) {
            if let Some(set) = FieldSet::from_json(&value) {
                prop_assert_eq!(FieldSet::from_json(&set.to_json()), Some(set));
            }
        }
    }

    #[test]
    fn a_dot_stands_for_the_element_itself() {
        let fields = json!({"f:spec": {".": {}, "f:a": {}}, "f:b": {}});
        let set = FieldSet::from_json(&fields).unwrap();
        assert!(set.has(&[Element::field("spec")]) && set.has(&[Element::field("b")]));
        assert!(set.has(&[Element::field("spec"), Element::field("a")]));
        assert_eq!(set.to_json(), fields);
    }

    #[test]
    fn a_deep_set_is_rejected() {
        let mut fields = json!({});
        for _ in 0..=MAX_DEPTH {
            fields = json!({ "f:a": fields });
        }
        assert_eq!(FieldSet::from_json(&fields), None);
    }
}
