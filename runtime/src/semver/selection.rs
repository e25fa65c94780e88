//! Selection of the best tag for a constraint, in constant memory.

use std::cmp::Ordering;

use super::{Constraint, Version};

/// The tags with the highest version that the constraint admits. There are several if they differ in build metadata or in the
/// spelling of the same numbers.
#[derive(Debug)]
pub struct Selection<'a, T> {
    constraint: &'a Constraint,
    best: Option<(Version, Vec<T>)>,
}

impl<'a, T> Selection<'a, T> {
    /// Creates an empty selection.
    #[must_use]
    pub const fn new(constraint: &'a Constraint) -> Self {
        Self {
            constraint,
            best: None,
        }
    }

    /// Considers a tag with this short name.
    pub fn consider(&mut self, name: &str, tag: T) {
        let Some(version) = Version::from_tag(name).filter(|version| self.constraint.admits(version)) else {
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

    /// Returns the best tags in the order in which they were considered; empty if no tag satisfies the constraint.
    #[must_use]
    pub fn best(self) -> Vec<T> {
        self.best.map(|(_, tied)| tied).unwrap_or_default()
    }
}
