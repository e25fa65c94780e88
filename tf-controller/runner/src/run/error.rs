//! Why a run ended without success. Each variant knows its public reason and the phase that the run ends in.

use std::time::Duration;

use sluice_api::run::Phase;
use sluice_runtime::artifact::{FetchError, UnpackError};
use sluice_runtime::failure::{Class, Failure};

use super::health::HealthError;
use super::inventory::InventoryError;
use super::outputs::OutputsError;
use super::unshown::Unshown;
use super::webhook::WebhookError;
use crate::applied::AppliedError;
use crate::bundle::BundleError;
use crate::cli::output::OutputError;
use crate::cli::tool::ToolError;
use crate::plan::document::DocumentError;
use crate::plan::store::StoreError;
use crate::template::TemplateError;

/// Terraform's words for a suffix that it does not take.
const BAD_SUFFIX: &str = "secret_suffix must not end with";

/// Why a run ended without success.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The bundle cannot be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// What the run was decided for is not what it finds.
    #[error("{0}")]
    Superseded(String),
    /// The API did not answer for as long as the run was willing to wait.
    #[error("cannot {doing}: {source}")]
    Api {
        /// What was attempted.
        doing: &'static str,
        /// The last answer.
        #[source]
        source: kube::Error,
    },
    /// The status could not be written where the run depends on it.
    #[error("the run's status could not be written, so nothing was applied")]
    Unreported,
    /// The artifact cannot be had.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The artifact cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// `spec.path` names no directory of the artifact.
    #[error("terraform path not found: {path:?} is no directory of the artifact")]
    Path {
        /// The path.
        path: String,
    },
    /// A variable file is not in the artifact.
    #[error("error running plan: tfvars file's path does not exist: {path}")]
    VariableFile {
        /// The path.
        path: String,
    },
    /// A variable file is a directory.
    #[error("error running plan: tfvars file's path is a directory: {path}")]
    VariableDirectory {
        /// The path.
        path: String,
    },
    /// `main.tf.tpl` cannot be rendered.
    #[error("cannot make main.tf of main.tf.tpl: {0}")]
    Template(#[from] TemplateError),
    /// The working directory cannot be used.
    #[error("cannot use the working directory: {doing}: {source}")]
    Directory {
        /// What was attempted.
        doing: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// An earlier run's CLI still works in the stack's directory.
    #[error("another process still works on this stack (waited {waited:?})")]
    Busy {
        /// How long was waited.
        waited: Duration,
    },
    /// No CLI.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The environment sets a name that would change the run.
    #[error("error setting env for Terraform: manual setting of env var {name:?} detected")]
    Environment {
        /// The name.
        name: String,
    },
    /// A mapped file cannot be written.
    #[error("cannot write the mapped file {path:?}: {why}")]
    Mapped {
        /// Its path.
        path: String,
        /// Why.
        why: String,
    },
    /// The workspace has a name that the CLI does not take for one.
    #[error("{name:?} is no name of a workspace")]
    WorkspaceName {
        /// The name.
        name: String,
    },
    /// A command failed.
    #[error("error running {}: {text}", step.title())]
    Command {
        /// Which one.
        step: Step,
        /// Its error output, fit to be shown.
        text: String,
        /// What it said, to be decided on.
        unshown: Unshown,
    },
    /// The CLI calls the stored plan stale; nothing was applied.
    #[error("the state has changed since the plan was made, nothing was applied: {text}")]
    Stale {
        /// The CLI's words.
        text: String,
    },
    /// The run was told to stop, or its deadline passed, while a command ran.
    #[error("{} {why}{}{text}", step.title(), if text.is_empty() { "" } else { ". " })]
    Stopped {
        /// During which command.
        step: Step,
        /// Who stopped it.
        why: String,
        /// The command's error output, fit to be shown; empty when it was not started, or may not be shown.
        text: String,
    },
    /// The plan's JSON cannot be read.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A webhook does not let the plan go on.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// The plan cannot be stored.
    #[error("error saving plan secret: {0}")]
    Save(#[source] StoreError),
    /// The stored plan cannot be loaded.
    #[error(transparent)]
    Load(StoreError),
    /// What is applied cannot be kept, or what was kept cannot be read.
    #[error(transparent)]
    Kept(AppliedError),
    /// What the plan was made with is not there any more.
    #[error("{0}")]
    NotExact(String),
    /// The outputs cannot be read.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The outputs cannot be written.
    #[error(transparent)]
    Outputs(#[from] OutputsError),
    /// The state that an earlier run could not write could not be pushed either.
    #[error("the state that an earlier run could not write is kept, but cannot be pushed: {text}")]
    Push {
        /// The CLI's words.
        text: String,
    },
    /// The state cannot be listed.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// A health check failed.
    #[error(transparent)]
    Health(#[from] HealthError),
    /// The run does not say what its action works on.
    #[error("a run of the action {action} needs {what}")]
    Incomplete {
        /// The action.
        action: &'static str,
        /// What is missing.
        what: &'static str,
    },
}

/// The commands of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `version`
    Version,
    /// `init`
    Init,
    /// `workspace`
    Workspace,
    /// `state push`
    Push,
    /// `plan`
    Plan,
    /// `show`
    Show,
    /// `apply`
    Apply,
    /// `apply` of a plan to destroy
    Destroy,
    /// `output`
    Output,
    /// `force-unlock`
    Unlock,
    /// `state pull`
    Inventory,
    /// The health checks, which are no command.
    Health,
}

impl Step {
    /// As upstream's messages name it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Version => "Version",
            Self::Init => "Init",
            Self::Workspace => "Select Workspace",
            Self::Push => "State Push",
            Self::Plan => "Plan",
            Self::Show => "Show",
            Self::Apply => "Apply",
            Self::Destroy => "Destroy",
            Self::Output => "Output",
            Self::Unlock => "Force Unlock",
            Self::Inventory => "State Pull",
            Self::Health => "Health Checks",
        }
    }

    /// Whether such a command takes the lock of a state.
    pub(super) const fn takes_the_lock(self) -> bool {
        match self {
            Self::Init
            | Self::Workspace
            | Self::Push
            | Self::Plan
            | Self::Apply
            | Self::Destroy
            | Self::Unlock => true,
            Self::Version | Self::Show | Self::Output | Self::Inventory | Self::Health => false,
        }
    }

    /// The reason of its failure.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Version => "TFExecNewFailed",
            Self::Init | Self::Push | Self::Unlock => "TFExecInitFailed",
            Self::Workspace => "SelectWorkspaceFailed",
            Self::Plan | Self::Show => "TFExecPlanFailed",
            Self::Apply | Self::Destroy => "TFExecApplyFailed",
            Self::Output | Self::Inventory => "TFExecOutputFailed",
            Self::Health => "HealthChecksFailed",
        }
    }
}

impl RunError {
    /// Says which field of the spec the CLI's words are about, where they do not.
    #[must_use]
    pub(super) fn naming_the_field(self) -> Self {
        match self {
            Self::Command {
                step: Step::Init,
                text,
                unshown,
            } if unshown.is(|said| said.contains(BAD_SUFFIX)) => Self::Command {
                step: Step::Init,
                unshown,
                text: format!(
                    "spec.backendConfig.secretSuffix (without it, the object's name) may not end in a hyphen and a number \
                     with Terraform, which names the parts of large states so; set another suffix, or use OpenTofu. {text}"
                ),
            },
            other => other,
        }
    }

    /// The phase that a run ends in.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self {
            Self::Superseded(_) => Phase::Superseded,
            _ => Phase::Failed,
        }
    }
}

impl Failure for RunError {
    fn class(&self) -> Class {
        match self {
            Self::Fetch(error) => error.class(),
            Self::Unpack(error) => error.class(),
            // A run is never retried by itself: the controller decides by the object's retry settings.
            _ => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Superseded(_) => "Superseded",
            Self::Webhook(_) => "PostPlanningWebhookFailed",
            Self::Stale { .. } => "PlanStale",
            Self::Fetch(_) | Self::Unpack(_) | Self::Path { .. } | Self::Kept(_) => "ArtifactFailed",
            Self::Bundle(_)
            | Self::Api { .. }
            | Self::Unreported
            | Self::Directory { .. }
            | Self::Busy { .. }
            | Self::Tool(_)
            | Self::Incomplete { .. } => "TFExecNewFailed",
            Self::Environment { .. } | Self::Mapped { .. } | Self::Push { .. } => "TFExecInitFailed",
            Self::WorkspaceName { .. } => Step::Workspace.reason(),
            Self::Command { step, .. } | Self::Stopped { step, .. } => step.reason(),
            Self::VariableFile { .. }
            | Self::VariableDirectory { .. }
            | Self::Document(_)
            | Self::Save(_) => "TFExecPlanFailed",
            Self::Template(_) => "TemplateGenerationFailed",
            Self::Load(_) | Self::NotExact(_) => "TFExecApplyFailed",
            Self::Output(_) | Self::Inventory(_) => "TFExecOutputFailed",
            Self::Health(_) => "HealthChecksFailed",
            Self::Outputs(_) => "OutputsWritingFailed",
        }
    }
}
