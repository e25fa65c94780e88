//! Which state copies exist, and which are deleted. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::terraform::run_sequence;

use super::{COUNT, SERIAL, TIME, id_of, label_of};
use crate::plan::store::{RUN, annotation_of};

/// A copy, by the metadata of its Secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCopy {
    /// Its id.
    pub id: String,
    /// The serial of the state.
    pub serial: String,
    /// The names of its Secrets, sorted.
    pub names: Vec<String>,
    /// Number of its Secrets when it is complete.
    count: usize,
    /// When a run needed it last, and the number of a run for copies of the same time.
    copied: (Option<Timestamp>, Option<u64>),
}

impl StoredCopy {
    /// Returns whether all of its Secrets exist.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.names.len() == self.count
    }
}

/// Groups the Secrets of a stack and workspace by copy, newest first.
#[must_use]
pub fn stored_copies<'m>(secrets: impl IntoIterator<Item = &'m ObjectMeta>) -> Vec<StoredCopy> {
    let mut copies: Vec<StoredCopy> = Vec::new();
    for secret in secrets {
        let id = id_of(secret);
        let position = copies.iter().position(|copy| copy.id == id).unwrap_or_else(|| {
            copies.push(StoredCopy {
                id: id.to_owned(),
                serial: label_of(secret, SERIAL).to_owned(),
                names: Vec::new(),
                count: annotation_of(secret, COUNT).parse().unwrap_or(0),
                copied: (None, None),
            });
            copies.len() - 1
        });
        let copy = &mut copies[position];
        copy.names.extend(secret.name.clone());
        // A run that needs a copy again may have been stopped between two of its Secrets.
        copy.copied = copy
            .copied
            .max((copied_at(secret), run_sequence(annotation_of(secret, RUN))));
    }
    for copy in &mut copies {
        copy.names.sort_unstable();
    }
    copies.sort_by_key(|copy| std::cmp::Reverse(copy.copied));
    copies
}

/// Returns when a run copied the state or found it copied already. That is not before the Secret was created, but the clock of the run's
/// node may be slow.
fn copied_at(secret: &ObjectMeta) -> Option<Timestamp> {
    let recorded = annotation_of(secret, TIME).parse().ok();
    recorded.max(secret.creation_timestamp.as_ref().map(|time| time.0))
}

/// Returns the copies to delete, so that `count` remain. The copy with the id `newest` remains, whatever its Secrets record.
/// Incomplete copies do not count, and only that one of them remains.
#[must_use]
pub fn outdated<'c>(copies: &'c [StoredCopy], newest: &str, count: usize) -> Vec<&'c StoredCopy> {
    let mut others = count.saturating_sub(1);
    let mut is_outdated = |copy: &&StoredCopy| {
        if copy.id == newest {
            return false;
        }
        let remains = copy.is_complete() && others > 0;
        others -= usize::from(remains);
        !remains
    };
    copies.iter().filter(|copy| is_outdated(copy)).collect()
}
