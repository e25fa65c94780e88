//! States that could not be written, backends that cannot be reached, and states that were committed to the source.

pub(crate) mod committed_state;
pub(crate) mod errored_tfstate;
pub(crate) mod unreachable_backend;
