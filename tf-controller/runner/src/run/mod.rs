//! One run from claim to end: claim, prepare, init, plan, apply, outputs, finish. Each step patches the run's status; the
//! order of the steps stands in `execute` (around the directory) and `steps` (in it), and nowhere else.

mod apply;
mod claim;
mod context;
mod error;
mod errored;
mod execute;
mod gate;
mod given;
mod glass;
mod health;
mod identity;
mod inventory;
mod kept;
mod lasting;
mod lock_file;
mod made;
mod modules;
mod outputs;
mod patience;
mod plan;
mod prepare;
mod release;
mod remembered;
mod rendered;
mod report;
mod standing;
mod steps;
mod stored;
mod surroundings;
mod unlock;
mod unsaved;
mod version;
mod webhook;
mod within;
mod workdir;
mod workspace;

pub use claim::ClaimError;
pub use context::{Context, Settings};
pub use error::RunError;
pub use errored::selector as errored_state_selector;
pub use execute::{Ending, execute};
pub use identity::Identity;
pub use report::ReportError;
pub use webhook::WebhookError;
pub use workdir::is_locked;
