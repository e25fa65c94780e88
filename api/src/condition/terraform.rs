//! Condition types of the Terraform controller.

use super::{ConditionType, MessageLimit, Polarity};

/// The condition types of Terraform objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TerraformCondition {
    /// The stack matches its source and spec.
    Ready,
    /// A reconciliation is in progress or will be retried.
    Reconciling,
    /// The reconciliation cannot succeed until a user changes something.
    Stalled,
    /// Result of the last apply.
    Apply,
    /// Result of the last plan.
    Plan,
    /// Result of the health checks.
    HealthCheck,
    /// Result of writing the outputs.
    Output,
    /// Whether another process holds the state lock.
    StateLocked,
}

impl ConditionType for TerraformCondition {
    const OWNED: &'static [Self] = &[
        Self::Ready,
        Self::Reconciling,
        Self::Stalled,
        Self::Apply,
        Self::Plan,
        Self::HealthCheck,
        Self::Output,
        Self::StateLocked,
    ];
    const MESSAGE_LIMIT: MessageLimit = MessageLimit::Characters(20_000);

    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::Apply => "Apply",
            Self::Plan => "Plan",
            Self::HealthCheck => "HealthCheck",
            Self::Output => "Output",
            Self::StateLocked => "StateLocked",
        }
    }

    fn polarity(self) -> Polarity {
        match self {
            Self::Reconciling | Self::Stalled => Polarity::Abnormal,
            // A released lock is shown as False until the next plan, so StateLocked is not abnormal.
            Self::Ready | Self::Apply | Self::Plan | Self::HealthCheck | Self::Output | Self::StateLocked => {
                Polarity::Normal
            }
        }
    }
}
