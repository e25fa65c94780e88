//! API types and pure rules of Sluice, without a client, an async runtime or a clock.

pub mod annotation;
pub mod condition;
pub mod crd;
pub mod definition;
pub mod digest;
pub mod interval;
pub mod reference;
pub mod repo;
pub mod revision;
pub mod run;
mod serialization;
pub mod source;
pub mod terraform;

pub use crd::{crds, optional_crds};
