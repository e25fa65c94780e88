//! The flow of module paths through names. A path may be stored in a local value, an argument, an output or an attribute before
//! `replace()` or `split()` changes it. So names are followed through all modules of a stack, without distinction of modules.

use std::collections::{BTreeMap, BTreeSet};

/// Names that are not iterators of `dynamic` blocks.
const ROOTS: [&str; 5] = ["local", "var", "module", "data", "ephemeral"];

/// The names in the scanned files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathFlow {
    definitions: BTreeMap<String, Definition>,
    split_calls: Vec<SplitCall>,
    /// A file has the JSON syntax, whose names are not followed.
    pub(super) is_opaque: bool,
}

/// The definition of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Definition {
    /// Whether its value contains the path of a module.
    has_path: bool,
    /// Names in its expression.
    uses: BTreeSet<String>,
}

/// A call of a splitting function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SplitCall {
    /// The function.
    pub(super) function: String,
    /// Names in its arguments.
    pub(super) uses: BTreeSet<String>,
    /// The name whose definition contains the call.
    pub(super) definition: String,
    /// The file.
    pub(super) file: String,
}

impl PathFlow {
    /// Records that the value of a name contains the path of a module.
    pub(super) fn add_path(&mut self, name: &str) {
        self.definitions.entry(name.to_owned()).or_default().has_path = true;
    }

    /// Records that the definition of a name uses another name.
    pub(super) fn add_use(&mut self, name: &str, used: &str) {
        let definition = self.definitions.entry(name.to_owned()).or_default();
        definition.uses.insert(used.to_owned());
    }

    /// Records a call.
    pub(super) fn add_split_call(&mut self, call: SplitCall) {
        if !call.uses.is_empty() {
            self.split_calls.push(call);
        }
    }

    /// Adds the flow of a file.
    pub fn add(&mut self, other: Self, file: &str) {
        for (name, definition) in other.definitions {
            let merged = self.definitions.entry(name).or_default();
            merged.has_path |= definition.has_path;
            merged.uses.extend(definition.uses);
        }
        self.split_calls
            .extend(other.split_calls.into_iter().map(|call| SplitCall {
                file: file.to_owned(),
                ..call
            }));
        self.is_opaque |= other.is_opaque;
    }

    /// Returns the file and the function that may split the path of a module.
    #[must_use]
    pub fn find_split_path(&self) -> Option<String> {
        if self.split_calls.is_empty() {
            return None;
        }
        let paths = self.paths();
        let may_split = |call: &&SplitCall| {
            let is_iterator = |name: &str| {
                let root = name.split('.').next().unwrap_or_default();
                !ROOTS.contains(&root) && !self.is_defined(name)
            };
            let in_definition = || is_path(&paths, &call.definition);
            let has_path = |name: &String| is_path(&paths, name) || is_iterator(name) && in_definition();
            self.is_opaque && !paths.is_empty() || call.uses.iter().any(has_path)
        };
        let call = self.split_calls.iter().find(may_split)?;
        let function = &call.function;
        Some(format!(
            "{}: {function}() may split the path of a module",
            call.file
        ))
    }

    fn is_defined(&self, name: &str) -> bool {
        self.definitions.contains_key(name) || has_member(self.definitions.keys(), name)
    }

    /// Returns the names whose values may contain the path of a module.
    fn paths(&self) -> BTreeSet<&str> {
        let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, definition) in &self.definitions {
            for used in &definition.uses {
                users.entry(used).or_default().push(name);
            }
        }
        let sources = self
            .definitions
            .iter()
            .filter(|(_, definition)| definition.has_path);
        let mut pending: Vec<&str> = sources.map(|(name, _)| name.as_str()).collect();
        let mut paths: BTreeSet<&str> = pending.iter().copied().collect();
        while let Some(name) = pending.pop() {
            let members = format!("{name}.");
            let below = users.range(members.as_str()..);
            let below = below.take_while(|(used, _)| used.starts_with(&members));
            let above = prefixes(name).filter_map(|prefix| users.get_key_value(prefix));
            for (_, reached) in below.chain(above) {
                pending.extend(reached.iter().filter(|user| paths.insert(user)));
            }
        }
        paths
    }
}

/// Whether a name, its parent or one of its members contains a path.
fn is_path(paths: &BTreeSet<&str>, name: &str) -> bool {
    prefixes(name).any(|prefix| paths.contains(prefix)) || {
        let members = format!("{name}.");
        let next = paths.range(members.as_str()..).next();
        next.is_some_and(|path| path.starts_with(&members))
    }
}

fn has_member<'a>(mut names: impl Iterator<Item = &'a String>, name: &str) -> bool {
    let members = format!("{name}.");
    names.any(|other| other.starts_with(&members) || name.starts_with(&format!("{other}.")))
}

/// Returns the name and its parents: `a.b.c`, `a.b`, `a`.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    let ends = name.match_indices('.').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| &name[..end])
}
