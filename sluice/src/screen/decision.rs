//! What the user can decide about a plan that waits.

use kube::{Client, ResourceExt as _};
use sluice_api::terraform::Terraform;
use sluice_cli::CliError;
use sluice_cli::cluster::Cluster;
use sluice_cli::command::{ApprovalRecord, approve_plan, plan_to_approve, plan_to_reject, reject_plan};

/// A decision about a plan. The user is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// As `sluice approve`.
    Approve,
    /// As `sluice reject`, without a comment.
    Reject,
}

impl Decision {
    /// Returns the id of the plan of a stack that waits for the decision.
    ///
    /// # Errors
    /// No plan waits, or the decision about it is not possible.
    pub(super) fn plan_of(self, stack: &Terraform) -> Result<&str, CliError> {
        match self {
            Self::Approve => plan_to_approve(stack, None),
            Self::Reject => plan_to_reject(stack, None),
        }
    }

    /// Returns the word that begins the question.
    pub(super) const fn question(self) -> &'static str {
        match self {
            Self::Approve => "Approve",
            Self::Reject => "Reject",
        }
    }

    /// Returns the word for what is being done.
    pub(super) const fn progress(self) -> &'static str {
        match self {
            Self::Approve => "Approving",
            Self::Reject => "Rejecting",
        }
    }

    /// Returns the word for what was done.
    pub(super) const fn result(self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::Reject => "rejected",
        }
    }

    /// Writes the decision, and returns the result for the user.
    pub(super) async fn carry_out(self, client: Client, stack: &Terraform, plan: &str) -> String {
        let cluster = Cluster::new(client, stack.namespace().unwrap_or_default());
        let written = match self {
            Self::Approve => {
                let record = approve_plan(&cluster, stack, plan).await;
                record.map(|record| approved(stack, plan, record))
            }
            Self::Reject => {
                let rejected = reject_plan(&cluster, stack, plan).await;
                rejected.map(|()| format!("Rejected {plan}. `sluice replan` makes a new plan."))
            }
        };
        written.unwrap_or_else(|error| format!("{plan} was not {}: {error}", self.result()))
    }
}

/// Returns the result of an approval for the user.
fn approved(stack: &Terraform, plan: &str, record: ApprovalRecord) -> String {
    if record == ApprovalRecord::ApprovePlan && stack.spec.approve_plan == "auto" {
        format!("Approved {plan}. It was held: set approvePlan back to \"auto\" after its apply.")
    } else {
        format!("Approved {plan}.")
    }
}
