//! The gauges, computed for each request of the page: a stack that is gone is in none of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use sluice_api::run::{Action, Phase};
use sluice_runtime::clock::Clock;
use sluice_runtime::sync::lock;

use super::Stacks;
use super::stack::{BlockReason, ReadyStatus, StackState};
use crate::schedule::{Priority, QueueSummary, RunSlots, WaitReason};

/// Computes the gauges while the controller works. One that has lost its Lease serves the page until its runs have ended: the next
/// leader has the gauges then.
pub(super) struct StackGauges {
    pub(super) stacks: Weak<Stacks>,
    pub(super) run_slots: Weak<RunSlots>,
    pub(super) clock: Arc<dyn Clock>,
}

impl fmt::Debug for StackGauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StackGauges")
    }
}

/// Returns one number of a namespace.
type Count = fn(&NamespaceSummary) -> usize;

/// The stacks of one namespace in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NamespaceSummary {
    pub(super) ready: BTreeMap<ReadyStatus, usize>,
    pub(super) blocked: BTreeMap<BlockReason, usize>,
    pub(super) failing: usize,
    pub(super) drifted: usize,
    pub(super) locked: usize,
    pub(super) overdue: usize,
    pub(super) plans_pending: usize,
    pub(super) oldest_plan: Option<Timestamp>,
}

impl NamespaceSummary {
    /// Adds a stack.
    fn add(&mut self, state: &StackState, now: Timestamp) {
        *self.ready.entry(state.ready).or_default() += 1;
        if let Some(reason) = state.blocked {
            *self.blocked.entry(reason).or_default() += 1;
        }
        self.failing += usize::from(state.failing);
        self.drifted += usize::from(state.drifted);
        self.locked += usize::from(state.locked);
        let due = state.active.and_then(|active| active.due);
        self.overdue += usize::from(due.is_some_and(|due| due < now));
        if let Some(since) = state.plan_waits_since {
            self.plans_pending += 1;
            self.oldest_plan = Some(self.oldest_plan.map_or(since, |oldest| oldest.min(since)));
        }
    }
}

/// All stacks in numbers.
#[derive(Debug, Default)]
struct Summary {
    namespaces: BTreeMap<String, NamespaceSummary>,
    active: BTreeMap<(&'static str, &'static str), usize>,
    /// When the oldest run was created that no runner has claimed.
    oldest_unclaimed: Option<Timestamp>,
}

impl Stacks {
    fn summary(&self, now: Timestamp) -> Summary {
        let mut summary = Summary::default();
        // The usual series exist always, so that a graph shows 0 and not a gap.
        for action in [Action::Plan, Action::Apply, Action::PlanAndApply] {
            for phase in [Phase::Pending, Phase::Planning, Phase::Applying] {
                summary.active.insert((action.as_str(), phase.as_str()), 0);
            }
        }
        for (key, record) in &*lock(&self.0) {
            let Some(state) = &record.state else { continue };
            let namespace = summary.namespaces.entry(key.namespace.clone());
            namespace.or_default().add(state, now);
            if let Some(active) = state.active {
                let labels = (active.action.as_str(), active.phase.as_str());
                *summary.active.entry(labels).or_default() += 1;
                if active.phase == Phase::Pending {
                    let oldest = summary.oldest_unclaimed.unwrap_or(active.created);
                    summary.oldest_unclaimed = Some(oldest.min(active.created));
                }
            }
        }
        summary
    }
}

impl Collector for StackGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (Some(stacks), Some(run_slots)) = (self.stacks.upgrade(), self.run_slots.upgrade()) else {
            return Ok(());
        };
        let now = self.clock.now();
        let Summary {
            namespaces,
            active,
            oldest_unclaimed,
        } = stacks.summary(now);
        encode_stacks(&mut encoder, &namespaces)?;
        encode_plans(&mut encoder, &namespaces, now)?;
        let series = active
            .into_iter()
            .map(|((action, phase), count)| ([("action", action), ("phase", phase)], count));
        let help = "Runs that have not ended, by action and phase";
        encode_gauge(&mut encoder, "sluice_terraform_runs_active", help, series)?;
        let name = "sluice_terraform_run_unclaimed_oldest_seconds";
        let help = "Age of the oldest run that no runner has claimed; 0 without one";
        encode_value(&mut encoder, name, help, &age(oldest_unclaimed, now))?;
        encode_queue(&mut encoder, &run_slots.summary())
    }
}

fn encode_stacks(
    encoder: &mut DescriptorEncoder<'_>,
    namespaces: &BTreeMap<String, NamespaceSummary>,
) -> fmt::Result {
    let by_ready = namespaces.iter().flat_map(|(namespace, summary)| {
        let count = |ready| summary.ready.get(&ready).copied().unwrap_or(0);
        ReadyStatus::ALL.map(|ready| {
            let labels = [("stack_namespace", namespace.as_str()), ("ready", ready.as_str())];
            (labels, count(ready))
        })
    });
    let help = "Terraform objects by the status of their condition Ready";
    encode_gauge(encoder, "sluice_terraform_stacks", help, by_ready)?;
    let by_reason = namespaces.iter().flat_map(|(namespace, summary)| {
        let count = |reason| summary.blocked.get(&reason).copied().unwrap_or(0);
        BlockReason::ALL.map(|reason| {
            let labels = [
                ("stack_namespace", namespace.as_str()),
                ("reason", reason.as_str()),
            ];
            (labels, count(reason))
        })
    });
    let help = "Terraform objects of which no run can start, by reason";
    encode_gauge(encoder, "sluice_terraform_stacks_blocked", help, by_reason)?;
    let counts: [(_, _, Count); 4] = [
        (
            "sluice_terraform_stacks_failing",
            "Terraform objects whose last run failed or was lost",
            |summary| summary.failing,
        ),
        (
            "sluice_terraform_stacks_drifted",
            "Terraform objects with drift in their pending plan",
            |summary| summary.drifted,
        ),
        (
            "sluice_terraform_stacks_locked",
            "Terraform objects that a state lock blocks",
            |summary| summary.locked,
        ),
        (
            "sluice_terraform_runs_overdue",
            "Runs that should have ended by their deadline",
            |summary| summary.overdue,
        ),
    ];
    for (name, help, count) in counts {
        encode_gauge(encoder, name, help, by_namespace(namespaces, count))?;
    }
    Ok(())
}

fn encode_plans(
    encoder: &mut DescriptorEncoder<'_>,
    namespaces: &BTreeMap<String, NamespaceSummary>,
    now: Timestamp,
) -> fmt::Result {
    let help = "Plans that wait for an approval";
    let counts = by_namespace(namespaces, |summary| summary.plans_pending);
    encode_gauge(encoder, "sluice_terraform_plans_pending", help, counts)?;
    let ages = by_namespace(namespaces, |summary| age(summary.oldest_plan, now));
    let help = "Age of the oldest plan that waits for an approval; 0 without one";
    encode_gauge(
        encoder,
        "sluice_terraform_plan_pending_oldest_seconds",
        help,
        ages,
    )
}

fn encode_queue(encoder: &mut DescriptorEncoder<'_>, queue: &QueueSummary) -> fmt::Result {
    let every = Priority::ALL
        .into_iter()
        .flat_map(|priority| WaitReason::ALL.map(|reason| (priority, reason)));
    let series = every.map(|(priority, reason)| {
        let labels = [
            ("priority", priority_label(priority)),
            ("reason", reason_label(reason)),
        ];
        (
            labels,
            queue.waiting.get(&(priority, reason)).copied().unwrap_or(0),
        )
    });
    let help = "Runs that wait in the queue, by priority and reason";
    encode_gauge(encoder, "sluice_terraform_runs_queued", help, series)?;
    let help = "How long the first run in the queue has waited; 0 if none waits";
    let longest = queue.longest_wait.as_secs_f64();
    encode_value(
        encoder,
        "sluice_terraform_run_queue_oldest_seconds",
        help,
        &longest,
    )?;
    let (slots, occupied) = (
        "sluice_terraform_run_slots",
        "sluice_terraform_run_slots_occupied",
    );
    encode_value(encoder, slots, "Maximum number of concurrent runs", &queue.slots)?;
    encode_value(encoder, occupied, "Occupied slots for runs", &queue.occupied)
}

const fn priority_label(priority: Priority) -> &'static str {
    match priority {
        Priority::Manual => "Manual",
        Priority::Change => "Change",
        Priority::Timer => "Timer",
    }
}

const fn reason_label(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Slots => "Slots",
        WaitReason::NamespaceSlots => "NamespaceSlots",
        WaitReason::LabelSlots => "LabelSlots",
        WaitReason::Memory => "Memory",
    }
}

fn by_namespace<V>(
    namespaces: &BTreeMap<String, NamespaceSummary>,
    value: impl Fn(&NamespaceSummary) -> V,
) -> impl Iterator<Item = ([(&str, &str); 1], V)> {
    namespaces
        .iter()
        .map(move |(namespace, summary)| ([("stack_namespace", namespace.as_str())], value(summary)))
}

/// Returns the seconds since a time; 0 without one.
fn age(since: Option<Timestamp>, now: Timestamp) -> f64 {
    since.map_or(0.0, |since| now.duration_since(since).as_secs_f64().max(0.0))
}

/// Writes a gauge without labels.
fn encode_value(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: &impl EncodeGaugeValue,
) -> fmt::Result {
    encoder
        .encode_descriptor(name, help, None, MetricType::Gauge)?
        .encode_gauge(value)
}

/// Writes a gauge with one series for each set of labels.
fn encode_gauge<L: EncodeLabelSet, V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (L, V)>,
) -> fmt::Result {
    let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in series {
        gauge.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}
