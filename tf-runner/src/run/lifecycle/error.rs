//! Errors of a run. Each variant has a public reason, and a phase that the run ends in.

use std::time::Duration;

use sluice_api::run::Phase;
use sluice_api::terraform::Reason;
use sluice_runtime::artifact::{FetchError, UnpackError};
use sluice_runtime::failure::{Class, Failure, chain};
use sluice_tf_core::bundle::BundleError;
use sluice_tf_core::cli::output::OutputError;
use sluice_tf_core::cli::tool::ToolError;
use sluice_tf_core::disruption::Disruption;
use sluice_tf_core::last_applied::LastAppliedError;
use sluice_tf_core::plan::document::DocumentError;
use sluice_tf_core::plan::store::StoreError;
use sluice_tf_core::process_lock::Holder;
use sluice_tf_core::state_copy::StateCopyError;
use sluice_tf_core::state_summary::StateError;
use sluice_tf_core::template::TemplateError;
use sluice_tf_core::workdir::DirectoryError;

use crate::run::cli::raw_output::RawOutput;
use crate::run::post_apply::health::HealthError;
use crate::run::post_apply::inventory::InventoryError;
use crate::run::post_apply::outputs::OutputsError;

/// Terraform's error for a suffix that it refuses.
const INVALID_SUFFIX: &str = "secret_suffix must not end with";

/// The error that a run ended with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The spec of the run does not match its inputs or the object any more.
    #[error("{0}")]
    Superseded(String),
    #[error("cannot {action}: {source}")]
    Api {
        action: &'static str,
        #[source]
        source: kube::Error,
    },
    /// The start of the apply could not be recorded.
    #[error("the run's status could not be written, so nothing was applied")]
    Unreported,
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error("terraform path not found: {path:?} is not a directory of the artifact")]
    Path { path: String },
    #[error("error running plan: tfvars file's path does not exist: {path}")]
    VariableFile { path: String },
    #[error("error running plan: tfvars file's path is a directory: {path}")]
    VariableDirectory { path: String },
    #[error("cannot render main.tf from main.tf.tpl: {0}")]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Another runner, or the CLI of an earlier run, holds the lock of the stack's directory.
    #[error("{holder} still works on this stack (waited {waited:?})")]
    Busy { holder: Holder, waited: Duration },
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The image of the run's pod does not have the CLI of `spec.tool`.
    #[error(
        "the image {image} of this run: {source}. Select an image that has it with spec.runnerPodTemplate.spec.image, or request \
         another version"
    )]
    ToolNotInImage {
        image: String,
        #[source]
        source: ToolError,
    },
    /// The environment sets a variable that would change the run.
    #[error("error setting env for Terraform: manual setting of env var {name:?} detected")]
    Environment { name: String },
    #[error("cannot write the mapped file {path:?}: {why}")]
    MappedFile { path: String, why: String },
    #[error("{name:?} is not a valid workspace name")]
    WorkspaceName { name: String },
    #[error("error running {}: {text}", step.title())]
    Command {
        step: Step,
        /// The redacted error output.
        text: String,
        /// Whether the kernel killed a process of the CLI for the memory limit.
        is_out_of_memory: bool,
        raw_output: RawOutput,
    },
    /// The CLI reports the stored plan as stale; nothing was applied.
    #[error("nothing was applied, the state has changed since the plan: {text}")]
    StalePlan { text: String },
    /// The run was stopped, or its deadline passed, before or during a command.
    #[error("{} {why}{}{text}", step.title(), if text.is_empty() { "" } else { ". " })]
    Stopped {
        step: Step,
        why: String,
        /// The redacted error output. Empty if the command was not started or its output cannot be redacted.
        text: String,
    },
    /// The run was stopped, because Kubernetes ends its pod.
    #[error("{stopped}; {disruption}")]
    Disrupted {
        stopped: Box<Self>,
        disruption: Disruption,
    },
    /// The run failed, and the disk of its working directory was full: no command could write its error either.
    #[error("the disk of the working directory is full: {}", chain(error))]
    DiskFull { error: Box<Self> },
    /// The run was asked to end while it was prepared.
    #[error("the preparation was stopped, because the runner was terminated")]
    PreparationStopped,
    /// The run was asked to end before its plan or apply began: the next one does all of it.
    #[error(
        "the run was asked to end before its work began, and is repeated: {}",
        chain(error)
    )]
    Interrupted { error: Box<Self> },
    /// The run was stopped, because a user cancelled it.
    #[error("the run was cancelled: {0}")]
    Cancelled(Box<Self>),
    #[error(transparent)]
    PlanDocument(#[from] DocumentError),
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    #[error("error saving plan secret: {0}")]
    StorePlan(#[source] StoreError),
    #[error(transparent)]
    LoadPlan(StoreError),
    /// The last applied record cannot be written or read.
    #[error(transparent)]
    LastApplied(LastAppliedError),
    /// Something that the approved plan depends on has changed.
    #[error("{0}")]
    PlanMismatch(String),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Outputs(#[from] OutputsError),
    /// The errored state of an earlier run cannot be pushed.
    #[error("the state that an earlier run could not write is stored, but cannot be pushed: {text}")]
    PushState { text: String },
    /// The copy of the state before the apply cannot be made.
    #[error("no copy of the state can be made before the apply, so nothing was applied: {0}")]
    StateCopy(#[from] StateCopyError),
    /// The copy of the state before the apply cannot be stored.
    #[error(
        "the copy of the state before the apply cannot be stored, so nothing was applied (--state-copies=0 applies without \
         copies): {source}"
    )]
    StoreStateCopy {
        #[source]
        source: kube::Error,
    },
    #[error(transparent)]
    State(#[from] StateError),
    /// Terraform would not find the state of the stack, and would replace it.
    #[error(
        "Terraform finds a state by its labels, and the Secret {secret} does not have {missing} (labels of spec.backendConfig): \
         it would find no state and replace this one by an empty one, so nothing was done. Undo the edit, or add the labels \
         to all Secrets of the state (kubectl label secret {secret} {missing} --overwrite)"
    )]
    StateLabels { secret: String, missing: String },
    /// The destroy of a deletion finds nothing, and the last apply left resources in another state.
    #[error(
        "nothing was destroyed, and the object stays: {difference}. Move the state, restore it, or undo the change; \
         deletionPolicy: Retain releases the object and leaves resources and state"
    )]
    OtherState { difference: String },
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    #[error(transparent)]
    Health(#[from] HealthError),
    /// The spec of the run lacks a field that its action needs.
    #[error("a run with the action {action} requires {what}")]
    IncompleteSpec {
        action: &'static str,
        what: &'static str,
    },
}

/// The reason why a webhook stopped the run. Only [`WebhookError::Rejected`] quotes the answer of the service.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookError {
    #[error("webhook {index}: its url is not an http or https URL")]
    Address {
        /// The index in `spec.webhooks` among the enabled ones.
        index: usize,
    },
    #[error(
        "webhook {host}: plans are sent over plain http only if DISABLE_WEBHOOK_TLS_VERIFY=1 is set in the runner's environment"
    )]
    PlainHttp { host: String },
    #[error("webhook {host}: payloadType {payload:?} is not SpecAndPlan, SpecOnly or PlanOnly")]
    Payload { host: String, payload: String },
    #[error("webhook {host}: the CLI has no JSON of an unsaved plan; use payloadType SpecOnly")]
    NoPlanJson { host: String },
    #[error(
        "webhook {host}: the plan's JSON has {size} bytes, more than the limit of {limit}; use payloadType SpecOnly"
    )]
    PlanTooLarge { host: String, size: u64, limit: u64 },
    #[error("webhook {host}: cannot use the certificates in {directory}: {text}")]
    Certificates {
        host: String,
        directory: String,
        text: String,
    },
    #[error("webhook {host}: request failed: {text}")]
    Unreachable { host: String, text: String },
    #[error("webhook {host}: no response within {limit:?}")]
    Timeout { host: String, limit: Duration },
    #[error("webhook {host}: HTTP status {status} instead of 200")]
    Status { host: String, status: u16 },
    #[error("webhook {host}: its response has more than {limit} bytes")]
    AnswerTooLong { host: String, limit: usize },
    #[error("webhook {host}: its response is not a JSON object")]
    NotJsonObject { host: String },
    #[error("webhook {host}: {field}: {source}")]
    Template {
        host: String,
        /// `testExpression` or `errorMessageTemplate`.
        field: &'static str,
        source: TemplateError,
    },
    #[error("webhook {host}: testExpression does not render true, yes, false or no")]
    InvalidVerdict { host: String },
    /// The service rejected the plan. The text is that of `errorMessageTemplate`.
    #[error("{0}")]
    Rejected(String),
}

/// The commands of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Version,
    Init,
    Workspace,
    /// `state push`
    Push,
    Plan,
    Show,
    Apply,
    /// `apply` of a plan to destroy
    Destroy,
    Output,
    /// `force-unlock`
    Unlock,
    /// `state pull`
    Inventory,
    /// The health checks, which run no command.
    Health,
}

impl Step {
    /// The name in upstream's messages.
    pub(crate) const fn title(self) -> &'static str {
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

    /// Whether the command takes the state lock.
    pub(crate) const fn takes_state_lock(self) -> bool {
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

    /// The reason of a failure of this command.
    pub(crate) const fn reason(self) -> &'static str {
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
    /// The error for an API call that failed, for `map_err`.
    pub(crate) const fn api(action: &'static str) -> impl Fn(kube::Error) -> Self + Copy {
        move |source| Self::Api { action, source }
    }

    /// Adds the field of the spec to an error of the CLI that does not name it.
    pub(crate) fn with_field_name(self) -> Self {
        match self {
            Self::Command {
                step: Step::Init,
                text,
                is_out_of_memory,
                raw_output,
            } if raw_output.errors_match(|text| text.contains(INVALID_SUFFIX)) => Self::Command {
                step: Step::Init,
                is_out_of_memory,
                raw_output,
                text: format!(
                    "spec.backendConfig.secretSuffix (without it, the object's name) may not end in a hyphen and a number \
                     with Terraform, which names the parts of large states so; set another suffix, or use OpenTofu. {text}"
                ),
            },
            other => other,
        }
    }

    /// The phase that a run with this error ends in.
    pub(crate) const fn phase(&self) -> Phase {
        match self {
            Self::Superseded(_) | Self::Interrupted { .. } => Phase::Superseded,
            _ => Phase::Failed,
        }
    }
}

impl Failure for RunError {
    fn class(&self) -> Class {
        match self {
            Self::Fetch(error) => error.class(),
            Self::Unpack(error) => error.class(),
            // A run does not retry itself: the controller decides by the retry settings of the object.
            _ => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Superseded(_) => Reason::Superseded.as_str(),
            Self::Webhook(_) => Reason::PostPlanningWebhookFailed.as_str(),
            Self::StalePlan { .. } => Reason::PlanStale.as_str(),
            Self::Fetch(_) | Self::Unpack(_) | Self::Path { .. } | Self::LastApplied(_) => {
                Reason::ArtifactFailed.as_str()
            }
            Self::Interrupted { .. } => Reason::Interrupted.as_str(),
            Self::Bundle(_)
            | Self::Api { .. }
            | Self::PreparationStopped
            | Self::Unreported
            | Self::Directory(_)
            | Self::Busy { .. }
            | Self::Tool(_)
            | Self::IncompleteSpec { .. } => Reason::TfExecNewFailed.as_str(),
            Self::ToolNotInImage { .. } => Reason::ToolNotInstalled.as_str(),
            Self::Environment { .. }
            | Self::MappedFile { .. }
            | Self::PushState { .. }
            | Self::StateLabels { .. } => Reason::TfExecInitFailed.as_str(),
            Self::WorkspaceName { .. } => Step::Workspace.reason(),
            Self::Command {
                is_out_of_memory: true,
                ..
            } => Reason::OomKilled.as_str(),
            Self::Command { step, .. } | Self::Stopped { step, .. } => step.reason(),
            Self::Disrupted { disruption, .. } => disruption.reason.as_str(),
            Self::DiskFull { error } => error.reason(),
            Self::Cancelled(stopped) => stopped.reason(),
            Self::VariableFile { .. }
            | Self::VariableDirectory { .. }
            | Self::PlanDocument(_)
            | Self::OtherState { .. }
            | Self::StorePlan(_) => Reason::TfExecPlanFailed.as_str(),
            Self::Template(_) => Reason::TemplateGenerationFailed.as_str(),
            Self::LoadPlan(_) | Self::PlanMismatch(_) | Self::StateCopy(_) | Self::StoreStateCopy { .. } => {
                Reason::TfExecApplyFailed.as_str()
            }
            Self::Output(_) | Self::Inventory(_) | Self::State(_) => Reason::TfExecOutputFailed.as_str(),
            Self::Health(_) => Reason::HealthChecksFailed.as_str(),
            Self::Outputs(_) => Reason::OutputsWritingFailed.as_str(),
        }
    }
}
