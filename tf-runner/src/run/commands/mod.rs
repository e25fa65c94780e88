//! Commands of the CLI: the prepared workspace that they run in, their output, and what is redacted from it.

pub(crate) mod raw_output;
pub(crate) mod state_secrets;
pub(crate) mod version;
pub(crate) mod workspace;
