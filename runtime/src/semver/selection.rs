//! Which of many tags a constraint picks, in the memory of one.

use std::cmp::Ordering;

use super::{Constraint, Version};

/// Tags that were offered, of which only the best remain: those of the highest version that the constraint admits.
/// There are several if they differ in build metadata or in how they write the same numbers.
#[derive(Debug)]
pub struct Selection<'a, T> {
    constraint: &'a Constraint,
    best: Option<(Version, Vec<T>)>,
}

impl<'a, T> Selection<'a, T> {
    /// Without any tag yet.
    #[must_use]
    pub const fn new(constraint: &'a Constraint) -> Self {
        Self {
            constraint,
            best: None,
        }
    }

    /// Looks at a tag by its short name.
    pub fn offer(&mut self, name: &str, tag: T) {
        let Some(version) = Version::of_tag(name).filter(|version| self.constraint.admits(version)) else {
            return;
        };
        match &mut self.best {
            Some((best, tied)) => match version.cmp(best) {
                Ordering::Less => {}
                Ordering::Equal => tied.push(tag),
                Ordering::Greater => self.best = Some((version, vec![tag])),
            },
            None => self.best = Some((version, vec![tag])),
        }
    }

    /// The best tags, in the order in which they were offered; none if no tag satisfies the constraint.
    #[must_use]
    pub fn best(self) -> Vec<T> {
        self.best.map(|(_, tied)| tied).unwrap_or_default()
    }
}
