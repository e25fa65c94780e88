//! Whether an approval counts for a plan, and why not.

use crate::run::PlanApproval;

const BY_AUTHOR: &str = "ByAuthor";
const GIVEN_UNDER_OTHER_RULES: &str = "GivenUnderOtherRules";
const NOT_IN_GROUPS: &str = "NotInGroups";
const OUTSIDE_HOURS: &str = "OutsideHours";
const UNKNOWN_AUTHOR: &str = "UnknownAuthor";
const UNUSABLE_HOURS: &str = "UnusableHours";
/// Earlier versions gave it to each approval of a stack without `spec.approval`.
const NO_POLICY: &str = "NoPolicy";

/// Returns whether the reason in the status of an approval is that rules refused it.
fn is_refused_by_rules(reason: &str) -> bool {
    matches!(
        reason,
        BY_AUTHOR
            | GIVEN_UNDER_OTHER_RULES
            | NOT_IN_GROUPS
            | OUTSIDE_HOURS
            | UNKNOWN_AUTHOR
            | UNUSABLE_HOURS
            | NO_POLICY
    )
}

/// Returns whether rules refused the approval when it was judged last. An approval that nothing judged yet was refused by none.
pub(super) fn was_refused_by_rules(approval: &PlanApproval) -> bool {
    let status = approval.status.as_ref();
    status.is_some_and(|status| !status.accepted && is_refused_by_rules(&status.reason))
}

/// Whether an approval counts for a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Verdict {
    /// It counts.
    #[error("it counts for the pending plan")]
    Counted,
    /// It is being deleted.
    #[error("it is withdrawn")]
    Withdrawn,
    /// Its plan id is not complete.
    #[error("planID is not a complete plan id")]
    Incomplete,
    /// It names a plan with another effect.
    #[error("it names another plan")]
    OtherPlan,
    /// It was created before this plan.
    #[error("it was created before a run planned this")]
    BeforePlan,
    /// It names none of the groups.
    #[error("its user is in none of the groups {0}")]
    NotInGroups(String),
    /// It was created outside of the hours.
    #[error("it was created outside of the hours {0}")]
    OutsideHours(String),
    /// The hours cannot be evaluated.
    #[error("spec.approval.hours of the Terraform object cannot be used: {0}")]
    UnusableHours(String),
    /// Its user is the author of the commit.
    #[error("its user is the author of the planned commit, {0}")]
    ByAuthor(String),
    /// The author of the commit is not known.
    #[error("the source does not say who is the author of the planned commit")]
    UnknownAuthor,
    /// Another approval of the user counts.
    #[error("another approval of the same user counts")]
    Repeated,
    /// Rules of `spec.approval`, which the stack does not have any more, refused it.
    #[error("spec.approval, which is removed since, refused it: delete it and approve again")]
    GivenUnderOtherRules,
}

impl Verdict {
    /// Returns the verdict as one word, for the status of the approval.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Counted => "Counted",
            Self::Withdrawn => "Withdrawn",
            Self::Incomplete => "IncompletePlanID",
            Self::OtherPlan => "OtherPlan",
            Self::BeforePlan => "BeforePlan",
            Self::NotInGroups(_) => NOT_IN_GROUPS,
            Self::OutsideHours(_) => OUTSIDE_HOURS,
            Self::UnusableHours(_) => UNUSABLE_HOURS,
            Self::ByAuthor(_) => BY_AUTHOR,
            Self::UnknownAuthor => UNKNOWN_AUTHOR,
            Self::Repeated => "Repeated",
            Self::GivenUnderOtherRules => GIVEN_UNDER_OTHER_RULES,
        }
    }
}
