//! Why a run ended without success. Each variant knows its public reason and the phase that the run ends in.

use sluice_api::terraform::Reason;
use std::time::Duration;

use sluice_api::run::Phase;
use sluice_runtime::artifact::{FetchError, UnpackError};
use sluice_runtime::failure::{Class, Failure};

use crate::run::commands::raw_output::RawOutput;
use crate::run::plan::webhook::WebhookError;
use crate::run::post_apply::health::HealthError;
use crate::run::post_apply::inventory::InventoryError;
use crate::run::post_apply::outputs::OutputsError;
use sluice_tf_core::bundle::BundleError;
use sluice_tf_core::cli::output::OutputError;
use sluice_tf_core::cli::tool::ToolError;
use sluice_tf_core::last_applied::LastAppliedError;
use sluice_tf_core::plan::document::DocumentError;
use sluice_tf_core::plan::store::StoreError;
use sluice_tf_core::template::TemplateError;
use sluice_tf_core::workdir::DirectoryError;

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
    #[error(transparent)]
    Directory(#[from] DirectoryError),
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
        raw_output: RawOutput,
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
    Kept(LastAppliedError),
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
    pub(crate) const fn takes_the_lock(self) -> bool {
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
            Self::Version => Reason::TfExecNewFailed.as_str(),
            Self::Init | Self::Push | Self::Unlock => Reason::TfExecInitFailed.as_str(),
            Self::Workspace => Reason::SelectWorkspaceFailed.as_str(),
            Self::Plan | Self::Show => Reason::TfExecPlanFailed.as_str(),
            Self::Apply | Self::Destroy => Reason::TfExecApplyFailed.as_str(),
            Self::Output | Self::Inventory => Reason::TfExecOutputFailed.as_str(),
            Self::Health => Reason::HealthChecksFailed.as_str(),
        }
    }
}

impl RunError {
    /// Says which field of the spec the CLI's words are about, where they do not.
    #[must_use]
    pub(crate) fn naming_the_field(self) -> Self {
        match self {
            Self::Command {
                step: Step::Init,
                text,
                raw_output,
            } if raw_output.is(|said| said.contains(BAD_SUFFIX)) => Self::Command {
                step: Step::Init,
                raw_output,
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
            Self::Superseded(_) => Reason::Superseded.as_str(),
            Self::Webhook(_) => Reason::PostPlanningWebhookFailed.as_str(),
            Self::Stale { .. } => Reason::PlanStale.as_str(),
            Self::Fetch(_) | Self::Unpack(_) | Self::Path { .. } | Self::Kept(_) => {
                Reason::ArtifactFailed.as_str()
            }
            Self::Bundle(_)
            | Self::Api { .. }
            | Self::Unreported
            | Self::Directory(_)
            | Self::Busy { .. }
            | Self::Tool(_)
            | Self::Incomplete { .. } => Reason::TfExecNewFailed.as_str(),
            Self::Environment { .. } | Self::Mapped { .. } | Self::Push { .. } => {
                Reason::TfExecInitFailed.as_str()
            }
            Self::WorkspaceName { .. } => Step::Workspace.reason(),
            Self::Command { step, .. } | Self::Stopped { step, .. } => step.reason(),
            Self::VariableFile { .. }
            | Self::VariableDirectory { .. }
            | Self::Document(_)
            | Self::Save(_) => Reason::TfExecPlanFailed.as_str(),
            Self::Template(_) => Reason::TemplateGenerationFailed.as_str(),
            Self::Load(_) | Self::NotExact(_) => Reason::TfExecApplyFailed.as_str(),
            Self::Output(_) | Self::Inventory(_) => Reason::TfExecOutputFailed.as_str(),
            Self::Health(_) => Reason::HealthChecksFailed.as_str(),
            Self::Outputs(_) => Reason::OutputsWritingFailed.as_str(),
        }
    }
}
