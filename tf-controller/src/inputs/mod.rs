//! The inputs of a stack: the files that it reads, its variables, its backend, and their digest.
//!
//! Pure except [`closure`], which reads an unpacked artifact. `reconcile::resolve` fetches Secrets and artifacts.

mod backend;
pub mod closure;
mod digest;
mod plan_keys;
mod references;
mod state_labels;
mod state_location;
mod typed;
mod unsupported;
mod values;
mod variables;
mod widen;

pub(crate) use backend::{Backend, backend};
pub use backend::{CliLocation, DefaultBackend, default_suffix};
pub(crate) use digest::digest;
pub(crate) use plan_keys::{file_keys, key_secret, plan_keys, state_copy_keys};
pub(crate) use references::{is_referenced, referenced_objects};
pub use state_labels::labelled_states;
pub(crate) use state_labels::state_secrets;
pub(crate) use state_location::{former_state_location, state_fields, state_location};
pub(crate) use typed::{InputsError, decode_inputs};
pub(crate) use unsupported::{unsupported_account, unsupported_field};
pub(crate) use values::{ValuesError, render_values};
pub(crate) use variables::{Pairs, PairsError, Variables, select_variables, variables_file};
pub(crate) use widen::{widen, widen_by_values};
