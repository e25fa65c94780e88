//! What the steps of a run work with, and what they return. Every step imports this file, so it imports none of them.

use sluice_api::run::TerraformRun;
use sluice_api::terraform::Reason;
use sluice_tf_core::bundle::Bundle;

use crate::run::cli::Cli;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;

/// Everything that the steps of a run work with. It exists once the directory is prepared.
pub(crate) struct RunSession<'a> {
    pub(crate) context: &'a Context,
    pub(crate) run: &'a TerraformRun,
    /// The inputs. To apply a stored plan these are the inputs of the plan.
    pub(crate) bundle: Bundle,
    pub(crate) cli: Cli<'a>,
}

/// Reason and message of a run that succeeded.
pub(crate) struct Success {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Success {
    pub(crate) fn new(reason: Reason, message: &str) -> Self {
        Self {
            reason,
            message: message.to_owned(),
        }
    }
}

/// The result of the steps, and whether the working directory stays.
pub(crate) struct StepsOutcome {
    pub(crate) result: Result<Success, RunError>,
    /// A user may still work in the directory, or it holds the only copy of a state.
    pub(crate) keeps_directory: bool,
}

impl From<Result<Success, RunError>> for StepsOutcome {
    fn from(result: Result<Success, RunError>) -> Self {
        Self {
            result,
            keeps_directory: false,
        }
    }
}
