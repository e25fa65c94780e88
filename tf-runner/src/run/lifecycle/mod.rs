//! A run from its claim to its end: claim, inputs, the order of the steps, approval, retries of API calls.

pub(crate) mod api_retry;
pub(crate) mod approval;
pub(crate) mod break_glass;
pub(crate) mod claim;
pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod execute;
pub(crate) mod identity;
pub(crate) mod inputs;
pub(crate) mod steps;
