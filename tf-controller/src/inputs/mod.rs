//! What a stack is made of: the files it reads, its variables and its backend, and one digest over all of it.
//!
//! Pure but for [`closure`], which reads an unpacked artifact. Fetching Secrets and artifacts is `reconcile::resolve`'s.

mod backend;
pub mod closure;
mod digest;
mod refused;
mod variables;

pub use backend::{Place, kubernetes_backend};
pub use digest::digest;
pub use refused::refused;
pub use variables::{Pairs, PairsError, Selected, generate, select};
