//! How the protocol reaches a server. So far: http and https.

mod answer;
mod http;
mod redirect;

pub(super) use answer::Packets;
pub use http::{Transport, TransportError};
