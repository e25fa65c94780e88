//! Carries out one run. The steps in their order:
//!
//! 1. `lifecycle::claim`: takes the run by compare-and-swap on its status; from then on `status` reports.
//! 2. `lifecycle::prepare::RunInputs`: loads the bundle, and for an apply the stored plan.
//! 3. `workdir`: locks the stack's directory; `state::errored_tfstate` stores a state that an earlier run left in it.
//! 4. `lifecycle::prepare::prepare_session`: prepares the directory (`workdir::prepare`): artifact or last applied files,
//!    generated files, program. The steps work with its result, `lifecycle::session::RunSession`.
//! 5. `apply::restore`: the files of a stored plan.
//! 6. `lifecycle::steps::record_version`, `state::labels` and `workdir::providers`: the version of the CLI, whether it finds the
//!    state, and `init`. A run of the action `Unlock`
//!    ends with `state_lock::release`, one of `BreakTheGlass` with `lifecycle::break_glass`.
//! 7. `plan::module_reads`: what the downloaded modules may read of the artifact.
//! 8. `state::select_workspace`.
//! 9. `state::errored_tfstate`: pushes the errored state of an earlier run.
//! 10. With a stored plan: `apply::verify`, then `lifecycle::approval`.
//! 11. Without: `state::committed_state` adopts a committed state, `plan` creates a plan, `state::identity` compares
//!     its state with that of the last apply, `plan::webhook` calls the webhooks,
//!     `plan` stores the plan, and `lifecycle::approval` decides whether the plan is applied.
//! 12. `apply::last_applied`: stores the inputs of the apply; `state::state_copy` a copy of the state.
//! 13. `apply`: applies the plan; `state::errored_tfstate` stores a state that the CLI could not write.
//! 14. `post_apply`: outputs, inventory, health checks.
//! 15. `log`: collects and stores the output of the commands. `lifecycle` reports the end, then cleans up the directory.
//!
//! A request to end before step 9 ends the run at once, and the next run does all of it (`lifecycle::stop`).
//!
//! `lifecycle` has the order of steps 1 to 4 and 15, `lifecycle::steps` that of the others. In each command, `state_lock` releases
//! dead state locks. `log` prints their output in a pod. `local` prepares a plan outside of a run.

mod apply;
mod cli;
mod lifecycle;
mod local;
mod log;
mod plan;
mod post_apply;
mod state;
mod state_lock;
mod status;
mod workdir;

pub use lifecycle::claim::ClaimError;
pub use lifecycle::context::{Context, ProviderCacheSettings, Settings};
pub use lifecycle::identity::Identity;
pub use lifecycle::stop::RunStop;
pub use lifecycle::{RunOutcome, execute};
pub use local::{LocalModule, LocalModuleError, prepare_local_module};
pub use log::pod_log::PodLog;
