//! Where a text with the path of a module goes by name, and which functions take it apart (pure). A path that is stored in a
//! local, an argument, an output or an attribute is not seen where `replace()` or `split()` makes another one of it: so
//! names are followed through all modules of a stack, without regard to which module a name belongs to.

use std::collections::{BTreeMap, BTreeSet};

/// Names that are never the iterator of a `dynamic` block.
const ROOTS: [&str; 5] = ["local", "var", "module", "data", "ephemeral"];

/// What goes by which name in the files that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    definitions: BTreeMap<String, Definition>,
    cuts: Vec<Cut>,
    /// Some of it is written in JSON, whose names are not followed.
    pub(super) is_opaque: bool,
}

/// What one name stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Definition {
    /// It holds a text with the path of a module.
    holds_path: bool,
    /// Names that it refers to.
    uses: BTreeSet<String>,
}

/// A call of a function that takes texts apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// The function.
    pub(super) function: String,
    /// Names in its arguments.
    pub(super) uses: BTreeSet<String>,
    /// The name that it is part of.
    pub(super) definition: String,
    /// The file.
    pub(super) place: String,
}

impl Flow {
    /// Notes that this name holds a text with the path of a module.
    pub(super) fn holds_path(&mut self, name: &str) {
        self.definitions.entry(name.to_owned()).or_default().holds_path = true;
    }

    /// Notes that what this name stands for refers to another.
    pub(super) fn refers(&mut self, name: &str, used: &str) {
        let definition = self.definitions.entry(name.to_owned()).or_default();
        definition.uses.insert(used.to_owned());
    }

    /// Notes a call.
    pub(super) fn cuts(&mut self, cut: Cut) {
        if !cut.uses.is_empty() {
            self.cuts.push(cut);
        }
    }

    /// Adds what another file says; `place` is its name.
    pub fn add(&mut self, other: Self, place: &str) {
        for (name, definition) in other.definitions {
            let held = self.definitions.entry(name).or_default();
            held.holds_path |= definition.holds_path;
            held.uses.extend(definition.uses);
        }
        self.cuts.extend(other.cuts.into_iter().map(|cut| Cut {
            place: place.to_owned(),
            ..cut
        }));
        self.is_opaque |= other.is_opaque;
    }

    /// Where a path of a module may be taken apart: the file and what is wrong in it.
    #[must_use]
    pub fn taken_apart(&self) -> Option<String> {
        if self.cuts.is_empty() {
            return None;
        }
        let paths = self.paths();
        let may_hold = |cut: &&Cut| {
            let is_iterator = |name: &str| {
                let root = name.split('.').next().unwrap_or_default();
                !ROOTS.contains(&root) && !self.is_defined(name)
            };
            let own = || is_path(&paths, &cut.definition);
            let holds = |name: &String| is_path(&paths, name) || is_iterator(name) && own();
            self.is_opaque && !paths.is_empty() || cut.uses.iter().any(holds)
        };
        let cut = self.cuts.iter().find(may_hold)?;
        let function = &cut.function;
        Some(format!(
            "{}: {function}() may take apart the path of a module",
            cut.place
        ))
    }

    fn is_defined(&self, name: &str) -> bool {
        self.definitions.contains_key(name) || has_member(self.definitions.keys(), name)
    }

    /// The names whose values may hold the path of a module.
    fn paths(&self) -> BTreeSet<&str> {
        let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, definition) in &self.definitions {
            for used in &definition.uses {
                users.entry(used).or_default().push(name);
            }
        }
        let holders = self.definitions.iter().filter(|(_, held)| held.holds_path);
        let mut open: Vec<&str> = holders.map(|(name, _)| name.as_str()).collect();
        let mut paths: BTreeSet<&str> = open.iter().copied().collect();
        while let Some(name) = open.pop() {
            let members = format!("{name}.");
            let below = users.range(members.as_str()..);
            let below = below.take_while(|(used, _)| used.starts_with(&members));
            let above = prefixes(name).filter_map(|prefix| users.get_key_value(prefix));
            for (_, reached) in below.chain(above) {
                open.extend(reached.iter().filter(|user| paths.insert(user)));
            }
        }
        paths
    }
}

/// Whether one of the names, its whole or a member of it holds a path.
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

/// The name itself and what it is a member of: `a.b.c`, `a.b`, `a`.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    let ends = name.match_indices('.').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| &name[..end])
}
