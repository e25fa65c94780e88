//! What a stack is made of: the files it reads, its variables and its backend, and one digest over all of it.
//!
//! Pure but for [`closure`], which reads an unpacked artifact. Fetching Secrets and artifacts is `reconcile::resolve`'s.

mod backend;
pub mod closure;
mod digest;
mod plan_keys;
mod reads;
mod refused;
mod state_place;
mod typed;
mod values;
mod variables;
mod webhooks;
mod widen;

pub use backend::{Backend, DefaultBackend, Named, Place, backend, default_suffix};
pub use digest::digest;
pub use plan_keys::{Holder, PlanKeyError, SecretPlace, file_keys, plan_keys};
pub use reads::{read, reads};
pub use refused::{foreign_account, refused};
pub use state_place::{former_state_place, state_place};
pub use typed::{InputsError, typed};
pub use values::{ValuesError, render_values};
pub use variables::{Pairs, PairsError, Selected, generate, select};
pub use webhooks::webhooks;
pub use widen::{widen, widen_by_values};
