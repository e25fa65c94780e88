//! Plans after the CLI has created them: effect digest, summary, readable forms and storage.

pub mod document;
pub mod effect;
mod exact_numbers;
mod hidden_inputs;
pub mod ignored_drift;
pub mod readable;
pub mod redact;
pub mod store;
pub mod summary;
pub mod unsaved;
