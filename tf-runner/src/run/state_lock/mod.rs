//! State locks that a dead run or a failed command left behind, and their release.

pub(crate) mod holder_pod;
pub(crate) mod leftover;
pub(crate) mod release;
pub(crate) mod unlock;
