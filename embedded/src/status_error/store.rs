//! Errors of the store.

use super::StatusError;

impl StatusError {
    /// 409 for a write that can succeed when it is repeated.
    pub(crate) fn try_again(resource: &str, name: &str, reason: &str) -> Self {
        Self::not_stored(resource, name, &format!("{reason}; please try again"))
    }

    /// 409 for a write that the store refuses for this reason.
    pub(crate) fn not_stored(resource: &str, name: &str, reason: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {reason}");
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        Self::new(409, "Conflict", message).with_details(group, plural, name, &[])
    }
}
