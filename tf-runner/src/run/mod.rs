//! One run from claim to end: claim, prepare, init, plan, apply, outputs, finish. Each step patches the status of the run. The
//! order of the steps is in `lifecycle::execute` (around the directory) and `lifecycle::steps` (inside it), and nowhere else.

mod apply;
mod commands;
mod lifecycle;
mod plan;
mod post_apply;
mod state_lock;
mod state_rescue;
mod status;
mod workdir;

pub use commands::raw_output::RawOutput;
pub use lifecycle::claim::ClaimError;
pub use lifecycle::context::{Context, ProviderCacheSettings, Settings};
pub use lifecycle::error::RunError;
pub use lifecycle::execute::{Ending, execute};
pub use lifecycle::identity::Identity;
pub use plan::webhook::WebhookError;
pub use status::writer::ReportError;
