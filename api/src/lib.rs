//! Types and pure rules of Sluice: no client, no async runtime, no clock.

pub mod annotation;
pub mod condition;
pub mod crd;
pub mod definition;
pub mod digest;
pub mod interval;
pub mod reference;
pub mod revision;
pub mod run;
mod shape;
pub mod source;
pub mod terraform;

pub use crd::crds;
