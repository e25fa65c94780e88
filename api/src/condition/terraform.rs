//! Condition types of the Terraform controller.

use super::{ConditionType, MessageLimit, Polarity};
use crate::serialization::api_enum;

api_enum! {
    /// The condition types of Terraform objects.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    TerraformCondition {
        /// The stack matches its source and spec.
        Ready = "Ready",
        /// A reconciliation is in progress or will be retried.
        Reconciling = "Reconciling",
        /// The reconciliation cannot succeed until a user changes something.
        Stalled = "Stalled",
        /// Result of the last apply.
        Apply = "Apply",
        /// Result of the last plan.
        Plan = "Plan",
        /// Result of the health checks.
        HealthCheck = "HealthCheck",
        /// Result of writing the outputs.
        Output = "Output",
        /// Whether another process holds the state lock.
        StateLocked = "StateLocked",
    }
}

impl ConditionType for TerraformCondition {
    const OWNED: &'static [Self] = Self::ALL;
    const MESSAGE_LIMIT: MessageLimit = MessageLimit::Characters(20_000);

    fn as_str(self) -> &'static str {
        Self::as_str(self)
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
