//! Metrics of stacks and runs. Reconciliations record what they know already, so the metrics cost no requests. No series has
//! a label of an object: gauges are sums over the stacks of a namespace.

mod counts;
mod gauges;
mod stack;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use counts::{CountedRuns, EndedRun, LockEvent, NewRuns, duration_seconds};
use gauges::StackGauges;
use jiff::Timestamp;
use kube::ResourceExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use sluice_api::run::{Action, Phase, TerraformRun, Trigger};
use sluice_api::terraform::Terraform;
use sluice_runtime::clock::Clock;
use sluice_runtime::metrics::Metrics;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use stack::StackState;

use super::report::phase;
use crate::decide::{Facts, Step};
use crate::schedule::RunSlots;

/// The kind whose objects are counted.
const KIND: &str = "Terraform";
/// Bounds in seconds, from a plan without resources to the longest usual deadline.
const DURATION_BOUNDS: [f64; 12] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0,
];
/// Bounds in resources. The first counts the plans without any.
const CHANGE_BOUNDS: [f64; 10] = [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];
/// Bounds in bytes: 32 MiB to 8 GiB.
const MEMORY_BOUNDS: [f64; 9] = [
    33_554_432.0,
    67_108_864.0,
    134_217_728.0,
    268_435_456.0,
    536_870_912.0,
    1_073_741_824.0,
    2_147_483_648.0,
    4_294_967_296.0,
    8_589_934_592.0,
];
/// What a plan does with resources.
const OPERATIONS: [&str; 3] = ["add", "change", "destroy"];
const FINAL_PHASES: [Phase; 4] = [Phase::Succeeded, Phase::Failed, Phase::Superseded, Phase::Lost];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CreatedLabels {
    action: &'static str,
    trigger: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndedLabels {
    action: &'static str,
    trigger: &'static str,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    action: &'static str,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabel {
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    event: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The stacks that were reconciled, in the order in which the page shows their namespaces.
#[derive(Debug, Default)]
struct Stacks(Mutex<BTreeMap<ObjectKey, StackRecord>>);

/// What is recorded about one stack.
#[derive(Clone, Debug, Default)]
struct StackRecord {
    counted: Option<CountedRuns>,
    state: Option<StackState>,
}

/// The metrics of stacks and runs.
#[derive(Debug)]
pub(crate) struct StackMetrics {
    start: Timestamp,
    stacks: Arc<Stacks>,
    created: Family<CreatedLabels, Counter>,
    ended: Family<EndedLabels, Counter>,
    duration: Histograms<DurationLabels>,
    peak_memory: Histograms<ActionLabel>,
    plan_changes: Histograms<OperationLabel>,
    lock_events: Family<EventLabel, Counter>,
}

impl Stacks {
    /// Forgets the state of a stack that is not reconciled any more. Its runs stay counted: it may get the labels of this controller
    /// again.
    fn forget_state(&self, key: &ObjectKey) {
        if let Some(record) = lock(&self.0).get_mut(key) {
            record.state = None;
        }
    }
}

impl StackMetrics {
    /// Registers the metrics of a controller that starts now.
    pub(crate) fn new(metrics: &Metrics, clock: Arc<dyn Clock>, run_slots: &Arc<RunSlots>) -> Self {
        let stacks = Arc::new(Stacks::default());
        let series = Self {
            start: clock.now(),
            stacks: Arc::clone(&stacks),
            created: Family::default(),
            ended: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BOUNDS)),
            peak_memory: Family::new_with_constructor(|| Histogram::new(MEMORY_BOUNDS)),
            plan_changes: Family::new_with_constructor(|| Histogram::new(CHANGE_BOUNDS)),
            lock_events: Family::default(),
        };
        series.register(metrics);
        series.create_series();
        let gauges = StackGauges {
            stacks: Arc::downgrade(&stacks),
            run_slots: Arc::downgrade(run_slots),
            clock,
        };
        metrics.register_collector(gauges);
        let stacks = Arc::downgrade(&stacks);
        metrics.on_forget(move |kind, key| {
            if kind == KIND
                && let Some(stacks) = stacks.upgrade()
            {
                stacks.forget_state(key);
            }
        });
        series
    }

    fn register(&self, metrics: &Metrics) {
        // The encoder appends `_total` to counters.
        let help = "TerraformRuns created, by action and trigger";
        metrics.register("sluice_terraform_runs_created", help, self.created.clone());
        let help = "TerraformRuns ended, by action, trigger and final phase";
        metrics.register("sluice_terraform_runs_ended", help, self.ended.clone());
        metrics.register(
            "sluice_terraform_run_duration_seconds",
            "Duration of runs from their claim to their end",
            self.duration.clone(),
        );
        metrics.register(
            "sluice_terraform_run_peak_memory_bytes",
            "Peak memory of the CLI in a run",
            self.peak_memory.clone(),
        );
        metrics.register(
            "sluice_terraform_plan_changes",
            "Resources that a plan adds, changes or destroys",
            self.plan_changes.clone(),
        );
        metrics.register(
            "sluice_terraform_state_lock_events",
            "Runs that met a state lock, released one or got past one",
            self.lock_events.clone(),
        );
    }

    /// Creates the series of all counters and histograms, so that their first increase is visible.
    fn create_series(&self) {
        for action in Action::ALL {
            drop(self.peak_memory.get_or_create(&action_label(*action)));
            for phase in FINAL_PHASES {
                drop(self.duration.get_or_create(&duration_labels(*action, phase)));
            }
            for trigger in Trigger::ALL {
                drop(self.created.get_or_create(&created_labels(*action, *trigger)));
                for phase in FINAL_PHASES {
                    let labels = ended_labels(*action, *trigger, phase);
                    drop(self.ended.get_or_create(&labels));
                }
            }
        }
        for event in [LockEvent::Met, LockEvent::Unlocked, LockEvent::Passed] {
            drop(self.lock_events.get_or_create(&event_label(event)));
        }
        for operation in OPERATIONS {
            drop(self.plan_changes.get_or_create(&OperationLabel { operation }));
        }
    }

    /// Counts the runs that were created or have ended since the last call for the stack, and returns those that have ended; `started`
    /// is the run that this reconciliation created.
    pub(super) fn count_runs<'a>(
        &self,
        stack: &Terraform,
        runs: &'a [TerraformRun],
        started: Option<&'a TerraformRun>,
    ) -> Vec<&'a TerraformRun> {
        let uid = stack.uid().unwrap_or_default();
        let mut stacks = lock(&self.stacks.0);
        let record = stacks.entry(ObjectKey::of(stack)).or_default();
        let (counted, new) = CountedRuns::count(record.counted.as_ref(), &uid, runs, started, self.start);
        record.counted = Some(counted);
        drop(stacks);
        self.observe(&new);
        new.ended.iter().map(|ended| ended.run).collect()
    }

    fn observe(&self, new: &NewRuns<'_>) {
        for run in &new.created {
            let labels = created_labels(run.spec.action, run.spec.trigger);
            self.created.get_or_create(&labels).inc();
        }
        for ended in &new.ended {
            self.observe_end(ended);
        }
    }

    fn observe_end(&self, ended: &EndedRun<'_>) {
        let (spec, phase) = (&ended.run.spec, phase(ended.run));
        let labels = ended_labels(spec.action, spec.trigger, phase);
        self.ended.get_or_create(&labels).inc();
        if let Some(seconds) = duration_seconds(ended.run) {
            self.duration
                .get_or_create(&duration_labels(spec.action, phase))
                .observe(seconds);
        }
        if let Some(event) = ended.lock {
            self.lock_events.get_or_create(&event_label(event)).inc();
        }
        let Some(status) = &ended.run.status else { return };
        if let Some(bytes) = status.peak_memory_bytes {
            self.peak_memory
                .get_or_create(&action_label(spec.action))
                .observe(to_f64(bytes));
        }
        // An apply of a stored plan makes no plan.
        if status.has_changes.is_some() && spec.action != Action::Apply {
            let counts = status.summary.unwrap_or_default();
            for (operation, count) in OPERATIONS
                .into_iter()
                .zip([counts.add, counts.change, counts.destroy])
            {
                self.plan_changes
                    .get_or_create(&OperationLabel { operation })
                    .observe(to_f64(count));
            }
        }
    }

    /// Sets the state of a stack after a reconciliation; `started` is the run that it created.
    pub(super) fn set_state(
        &self,
        stack: &Terraform,
        facts: &Facts,
        step: &Step,
        runs: &[TerraformRun],
        started: Option<&TerraformRun>,
    ) {
        let state = StackState::of(stack, facts, step, runs, started);
        let mut stacks = lock(&self.stacks.0);
        stacks.entry(ObjectKey::of(stack)).or_default().state = Some(state);
    }

    /// Removes all that is recorded about a stack that is deleted.
    pub(super) fn remove(&self, stack: &Terraform) {
        lock(&self.stacks.0).remove(&ObjectKey::of(stack));
    }
}

fn created_labels(action: Action, trigger: Trigger) -> CreatedLabels {
    CreatedLabels {
        action: action.as_str(),
        trigger: trigger.as_str(),
    }
}

fn ended_labels(action: Action, trigger: Trigger, phase: Phase) -> EndedLabels {
    EndedLabels {
        action: action.as_str(),
        trigger: trigger.as_str(),
        phase: phase.as_str(),
    }
}

fn duration_labels(action: Action, phase: Phase) -> DurationLabels {
    DurationLabels {
        action: action.as_str(),
        phase: phase.as_str(),
    }
}

fn action_label(action: Action) -> ActionLabel {
    ActionLabel {
        action: action.as_str(),
    }
}

const fn event_label(event: LockEvent) -> EventLabel {
    EventLabel {
        event: match event {
            LockEvent::Met => "Met",
            LockEvent::Unlocked => "Unlocked",
            LockEvent::Passed => "Passed",
        },
    }
}

/// Converts a count or a size. A run writes its status itself, so a negative number is possible; the sum of a histogram must not
/// decrease.
#[expect(clippy::cast_precision_loss, reason = "histograms have wider bounds")]
fn to_f64(value: i64) -> f64 {
    value.max(0) as f64
}
