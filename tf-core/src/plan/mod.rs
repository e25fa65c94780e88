//! What a plan is once the CLI has made it: its effect digest, its summary, its readable forms, and how it is stored.

pub mod document;
mod drawn;
pub mod effect;
mod exact;
pub mod ignored;
pub mod masked;
pub mod readable;
pub mod shown;
pub mod store;
pub mod summary;
