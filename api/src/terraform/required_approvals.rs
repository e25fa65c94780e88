//! `spec.approval`: how many users must approve a plan by a [`PlanApproval`], and which. Pure, and the only implementation of these rules;
//! [`super::approval::evaluate`] applies them, and for stacks without `spec.approval` [`judge_without_rules`]. An approval counts for the effect
//! of a plan, as `approvePlan` does, and only if it was created after a run planned this effect.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use jiff::civil;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan_id::{EffectDigest, PlanId};
use crate::run::{PlanApproval, RecordedApproval, RunStatusLimit};
use crate::serialization::{api_enum, is_false};

mod verdict;

pub use verdict::Verdict;

/// Approvals that do not count and that a message names.
const MAX_IGNORED: usize = 3;
/// Minutes of a day.
const DAY: i32 = 24 * 60;

/// The approvals that a plan needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequiredApprovals {
    /// Number of users who must approve. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub count: Option<i32>,
    /// Groups of which each of these users must be in one. Empty: any user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// When an approval must be created. Absent: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<ApprovalHours>,
    /// Whether the author of the planned commit cannot approve. The name or address of the author must be that of the user.
    #[serde(default, skip_serializing_if = "is_false")]
    pub not_by_author: bool,
}

/// The hours in which an approval must be created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalHours {
    /// Days of the week. Empty: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Weekday>,
    /// The first minute, e.g. 09:00.
    #[schemars(extend("pattern" = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub from: String,
    /// Name of the time zone in the IANA database, e.g. Europe/Berlin. Absent: UTC.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time_zone: String,
    /// The end, later than from; 24:00 is the end of the day. This minute does not count.
    #[schemars(extend("pattern" = "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"))]
    pub to: String,
}

api_enum! {
    /// A day of the week.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[schemars(inline)]
    Weekday {
        /// Monday.
        Monday = "Monday",
        /// Tuesday.
        Tuesday = "Tuesday",
        /// Wednesday.
        Wednesday = "Wednesday",
        /// Thursday.
        Thursday = "Thursday",
        /// Friday.
        Friday = "Friday",
        /// Saturday.
        Saturday = "Saturday",
        /// Sunday.
        Sunday = "Sunday",
    }
}

impl From<civil::Weekday> for Weekday {
    fn from(day: civil::Weekday) -> Self {
        match day {
            civil::Weekday::Monday => Self::Monday,
            civil::Weekday::Tuesday => Self::Tuesday,
            civil::Weekday::Wednesday => Self::Wednesday,
            civil::Weekday::Thursday => Self::Thursday,
            civil::Weekday::Friday => Self::Friday,
            civil::Weekday::Saturday => Self::Saturday,
            civil::Weekday::Sunday => Self::Sunday,
        }
    }
}

/// What is known of the approvals of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ApprovalEvidence<'a> {
    /// The approvals that name the stack ([`crate::run::approvals_of`]), in any order.
    pub approvals: &'a [PlanApproval],
    /// Author of the planned commit, as `Name <address>`; empty: not known.
    pub author: &'a str,
    /// Creation of the first run in a row that planned this effect. `None`: not known; then no approval counts.
    pub since: Option<Timestamp>,
}

/// An approval, and whether it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedApproval<'a> {
    /// The approval.
    pub approval: &'a PlanApproval,
    /// Whether it counts.
    pub verdict: Verdict,
}

/// Which approvals of a plan are missing, for a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct MissingApprovals {
    /// Number of required approvals.
    pub required: usize,
    /// The users whose approvals count.
    pub given: Vec<String>,
    /// What else is required of an approval; empty: nothing.
    pub rules: String,
    /// The newest approvals that do not count, each with its reason.
    pub ignored: Vec<String>,
}

impl fmt::Display for MissingApprovals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (given, required) = (self.given.len(), self.required);
        write!(f, "{given} of {required} approvals")?;
        if !self.given.is_empty() {
            write!(f, " ({})", self.given.join(", "))?;
        }
        write!(f, ", {} missing", required.saturating_sub(given))?;
        if !self.rules.is_empty() {
            write!(f, " ({})", self.rules)?;
        }
        self.ignored
            .iter()
            .try_for_each(|ignored| write!(f, "; {ignored}"))
    }
}

impl RequiredApprovals {
    /// Returns the approvals that count if they suffice for the plan with this id.
    ///
    /// # Errors
    /// Which approvals are missing.
    pub fn evaluate(
        &self,
        pending: &PlanId,
        evidence: ApprovalEvidence<'_>,
    ) -> Result<Vec<RecordedApproval>, MissingApprovals> {
        let judged = self.judge(pending, evidence);
        let (counted, others): (Vec<_>, Vec<_>) = judged
            .iter()
            .partition(|judged| judged.verdict == Verdict::Counted);
        let required = self.required();
        if counted.len() >= required {
            return Ok(recorded(&judged));
        }
        let ignored = others.iter().rev().take(MAX_IGNORED).map(|judged| {
            let (name, approver) = (
                judged.approval.metadata.name.as_deref(),
                &judged.approval.spec.approver,
            );
            let name = name.unwrap_or_default();
            format!(
                "PlanApproval {name} of {approver} does not count: {}",
                judged.verdict
            )
        });
        Err(MissingApprovals {
            required,
            given: counted
                .iter()
                .map(|judged| judged.approval.spec.approver.clone())
                .collect(),
            rules: self.rules(),
            ignored: ignored.collect(),
        })
    }

    /// Returns for each approval whether it counts, oldest first. Of several approvals of a user, the oldest counts.
    #[must_use]
    pub fn judge<'a>(&self, pending: &PlanId, evidence: ApprovalEvidence<'a>) -> Vec<JudgedApproval<'a>> {
        judge_each(evidence, |approval| self.check(approval, pending, evidence))
    }

    /// Returns whether an approval counts, without regard to the others.
    fn check(&self, approval: &PlanApproval, pending: &PlanId, evidence: ApprovalEvidence<'_>) -> Verdict {
        let spec = &approval.spec;
        if approval.metadata.deletion_timestamp.is_some() {
            return Verdict::Withdrawn;
        }
        match named_effect(&spec.plan_id) {
            None => return Verdict::Incomplete,
            Some(effect) if effect != *pending.effect() => return Verdict::OtherPlan,
            Some(_) => {}
        }
        let created = match (created(approval), evidence.since) {
            (Some(created), Some(since)) if created >= since => created,
            _ => return Verdict::BeforePlan,
        };
        if !self.groups.is_empty() && !self.groups.iter().any(|group| spec.groups.contains(group)) {
            return Verdict::NotInGroups(self.groups.join(", "));
        }
        if let Some(hours) = &self.hours {
            match hours.contain(created) {
                Ok(true) => {}
                Ok(false) => return Verdict::OutsideHours(hours.to_string()),
                Err(error) => return Verdict::UnusableHours(error),
            }
        }
        match evidence.author {
            _ if !self.not_by_author => Verdict::Counted,
            "" => Verdict::UnknownAuthor,
            author if is_author(&spec.approver, author) => Verdict::ByAuthor(author.to_owned()),
            _ => Verdict::Counted,
        }
    }

    /// Returns the number of required approvals, at least 1.
    fn required(&self) -> usize {
        let count = self.count.and_then(|count| usize::try_from(count).ok());
        count.unwrap_or(1).max(1)
    }

    /// Describes what is required of each approval.
    fn rules(&self) -> String {
        let groups = (!self.groups.is_empty()).then(|| format!("of a user in {}", self.groups.join(" or ")));
        let author = self
            .not_by_author
            .then(|| "not of the author of the commit".to_owned());
        let hours = self.hours.as_ref().map(|hours| format!("created {hours}"));
        let rules: Vec<String> = groups.into_iter().chain(author).chain(hours).collect();
        rules.join(", ")
    }
}

/// Returns for each approval whether it counts for a stack without `spec.approval`, oldest first. The approval of any user counts, unless
/// earlier rules of the stack refused it: the removal of the rules must approve no plan.
#[must_use]
pub fn judge_without_rules<'a>(pending: &PlanId, evidence: ApprovalEvidence<'a>) -> Vec<JudgedApproval<'a>> {
    let one_user = RequiredApprovals::default();
    judge_each(evidence, |approval| {
        match one_user.check(approval, pending, evidence) {
            Verdict::Counted if verdict::was_refused_by_rules(approval) => Verdict::GivenUnderOtherRules,
            verdict => verdict,
        }
    })
}

/// Judges each approval by itself, oldest first. Of several approvals of a user that count, the oldest does.
fn judge_each(
    evidence: ApprovalEvidence<'_>,
    check: impl Fn(&PlanApproval) -> Verdict,
) -> Vec<JudgedApproval<'_>> {
    let mut ordered: Vec<&PlanApproval> = evidence.approvals.iter().collect();
    ordered.sort_by_key(|approval| (created(approval), approval.metadata.name.clone()));
    let mut users = BTreeSet::new();
    let judged = ordered.into_iter().map(|approval| {
        let verdict = match check(approval) {
            Verdict::Counted if !users.insert(approval.spec.approver.as_str()) => Verdict::Repeated,
            verdict => verdict,
        };
        JudgedApproval { approval, verdict }
    });
    judged.collect()
}

/// Returns the approvals that count, for the status of a run.
pub(super) fn recorded(judged: &[JudgedApproval<'_>]) -> Vec<RecordedApproval> {
    let counted = judged.iter().filter(|judged| judged.verdict == Verdict::Counted);
    let recorded = counted.map(|judged| RecordedApproval::from(judged.approval));
    recorded.take(RunStatusLimit::APPROVALS).collect()
}

/// Returns when the API server created the approval.
fn created(approval: &PlanApproval) -> Option<Timestamp> {
    approval.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// Returns the effect that a text names: a whole plan id, or its effect digest.
pub(crate) fn named_effect(text: &str) -> Option<EffectDigest> {
    let of_id = text.parse::<PlanId>().map(|id| id.effect().clone());
    of_id.or_else(|_| text.parse::<EffectDigest>()).ok()
}

/// Returns whether a user is the author of a commit, `Name <address>`: if name, address or the part of the address before `@` is the name
/// of the user, or the last part of this name after `:`, `/` or `#`. Upper and lower case are equal.
fn is_author(user: &str, author: &str) -> bool {
    let (name, address) = author.rsplit_once('<').unwrap_or((author, ""));
    let address = address.trim_end().trim_end_matches('>');
    let local = address.split('@').next().unwrap_or_default();
    let last = user.rsplit([':', '/', '#']).next().unwrap_or_default();
    let plain = |text: &str| text.trim().to_lowercase();
    let names = [name, address, local].map(plain);
    [user, last]
        .map(plain)
        .iter()
        .any(|user| !user.is_empty() && names.contains(user))
}

impl fmt::Display for ApprovalHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {} to {} {}", self.from, self.to, self.zone_name())?;
        if self.days.is_empty() {
            return Ok(());
        }
        let days: Vec<&str> = self.days.iter().map(|day| day.as_str()).collect();
        write!(f, " on {}", days.join(", "))
    }
}

impl ApprovalHours {
    fn zone_name(&self) -> &str {
        if self.time_zone.is_empty() {
            "UTC"
        } else {
            &self.time_zone
        }
    }

    /// Returns whether the time is within the hours.
    ///
    /// # Errors
    /// The time zone is not known, or the hours are no times in order.
    fn contain(&self, at: Timestamp) -> Result<bool, String> {
        let (Some(from), Some(to)) = (minute_of_day(&self.from), minute_of_day(&self.to)) else {
            return Err(format!("{:?} and {:?} are not both times", self.from, self.to));
        };
        if from >= to {
            return Err(format!("{} is not earlier than {}", self.from, self.to));
        }
        let zone = TimeZone::get(self.zone_name())
            .map_err(|_| format!("the time zone {:?} is not known", self.zone_name()))?;
        let local = at.to_zoned(zone);
        let minute = i32::from(local.hour()) * 60 + i32::from(local.minute());
        let is_day = self.days.is_empty() || self.days.contains(&Weekday::from(local.weekday()));
        Ok(is_day && (from..to).contains(&minute))
    }
}

/// Parses `hh:mm` to a minute of the day, at most 24:00.
fn minute_of_day(text: &str) -> Option<i32> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute): (u8, u8) = (hour.parse().ok()?, minute.parse().ok()?);
    let total = i32::from(hour) * 60 + i32::from(minute);
    (minute < 60 && total <= DAY).then_some(total)
}

#[cfg(test)]
mod tests;
