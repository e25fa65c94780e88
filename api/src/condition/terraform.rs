//! The vocabulary of the apply controller.

use super::{Limit, Polarity, Vocabulary};

/// The condition types of Terraform objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TerraformCondition {
    /// The stack is what its source and spec ask for.
    Ready,
    /// Work is going on, or is tried again.
    Reconciling,
    /// Only an edit can help.
    Stalled,
    /// What became of the last apply.
    Apply,
    /// What became of the last plan.
    Plan,
    /// What became of the health checks.
    HealthCheck,
    /// What became of the outputs.
    Output,
    /// Whether the state is locked by another.
    StateLocked,
}

impl Vocabulary for TerraformCondition {
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
    const LIMIT: Limit = Limit::Characters(20_000);

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
            // A released lock is shown as False until the next plan, so StateLocked is not taken as abnormal.
            Self::Ready | Self::Apply | Self::Plan | Self::HealthCheck | Self::Output | Self::StateLocked => {
                Polarity::Normal
            }
        }
    }
}
