//! Tests of the metrics page.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use sluice_api::terraform::Terraform;

use super::*;
use crate::decide::{Idle, Pending, facts_of_a_new_stack};
use crate::schedule::{Priority, RunLimits, SlotState};

/// The time of the tests.
struct TestClock;

const NOW: &str = "2026-01-02T00:00:00Z";

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        NOW.parse().unwrap()
    }
}

struct Fixture {
    metrics: Metrics,
    stacks: StackMetrics,
    run_slots: Arc<RunSlots>,
}

impl Fixture {
    fn new() -> Self {
        let metrics = Metrics::new();
        let limits = RunLimits {
            per_namespace: 1,
            per_label: [("account".to_owned(), 1)].into(),
            ..RunLimits::of_runs(2)
        };
        let run_slots = Arc::new(RunSlots::new(limits).0);
        let stacks = StackMetrics::new(&metrics, Arc::new(TestClock), &run_slots);
        Self {
            metrics,
            stacks,
            run_slots,
        }
    }

    fn assert_lines(&self, lines: &[&str]) {
        let text = self.metrics.text();
        for line in lines {
            let line = format!("sluice_terraform_{line}\n");
            assert!(text.contains(&line), "{line} is missing in\n{text}");
        }
    }
}

fn stack(name: &str, status: &Value) -> Terraform {
    let stack = json!({
        "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": { "name": name, "namespace": "team", "uid": "u1", "generation": 1 },
        "spec": { "interval": "10m", "runnerTerminationGracePeriodSeconds": 30, "sourceRef": { "kind": "GitRepository", "name": "code" } },
        "status": status,
    });
    serde_json::from_value(stack).unwrap()
}

fn run(number: u32, action: &str, status: &Value) -> TerraformRun {
    let run = json!({
        "metadata": { "name": format!("net-u1-{number}"), "namespace": "team", "creationTimestamp": NOW },
        "spec": { "action": action, "attempt": 1, "deadline": "2h", "trigger": "Revision",
            "source": { "kind": "GitRepository", "name": "code", "namespace": "team" },
            "terraform": { "name": "net", "uid": "u1", "generation": 1 } },
        "status": status,
    });
    serde_json::from_value(run).unwrap()
}

#[test]
fn all_counters_and_histograms_are_present_before_the_first_run() {
    let fixture = Fixture::new();
    fixture.assert_lines(&[
        "runs_created_total{action=\"PlanAndApply\",trigger=\"Revision\"} 0",
        "runs_ended_total{action=\"Apply\",trigger=\"Drift\",phase=\"Lost\"} 0",
        "state_lock_events_total{event=\"Met\"} 0",
        "runs_active{action=\"Plan\",phase=\"Pending\"} 0",
        "runs_queued{priority=\"Manual\",reason=\"Slots\"} 0",
        "run_queue_oldest_seconds 0.0",
        "run_unclaimed_oldest_seconds 0.0",
        "run_slots 2",
        "run_slots_occupied 0",
        "run_duration_seconds_count{action=\"Plan\",phase=\"Lost\"} 0",
        "run_peak_memory_bytes_count{action=\"Apply\"} 0",
        "plan_changes_count{operation=\"destroy\"} 0",
    ]);
}

#[test]
fn ended_runs_are_counted_once_and_measured() {
    let fixture = Fixture::new();
    let ended = |phase: &str| {
        json!({ "phase": phase, "startedAt": "2026-01-02T00:00:01Z", "finishedAt": "2026-01-02T00:00:26Z",
            "hasChanges": true, "summary": { "add": 3, "change": 0, "destroy": 120 }, "peakMemoryBytes": 100_000_000 })
    };
    let runs = [
        run(1, "Plan", &ended("Succeeded")),
        run(2, "Apply", &ended("Failed")),
    ];
    let started = run(3, "Plan", &json!({}));
    let net = stack("net", &Value::Null);
    fixture.stacks.count_runs(&net, &runs, Some(&started));
    let [first, second] = runs;
    fixture.stacks.count_runs(&net, &[first, second, started], None);
    fixture.assert_lines(&[
        "runs_created_total{action=\"Plan\",trigger=\"Revision\"} 2",
        "runs_ended_total{action=\"Plan\",trigger=\"Revision\",phase=\"Succeeded\"} 1",
        "runs_ended_total{action=\"Apply\",trigger=\"Revision\",phase=\"Failed\"} 1",
        "run_duration_seconds_bucket{le=\"20.0\",action=\"Plan\",phase=\"Succeeded\"} 0",
        "run_duration_seconds_bucket{le=\"30.0\",action=\"Plan\",phase=\"Succeeded\"} 1",
        "run_peak_memory_bytes_bucket{le=\"67108864.0\",action=\"Apply\"} 0",
        "run_peak_memory_bytes_bucket{le=\"134217728.0\",action=\"Apply\"} 1",
        // The apply made no plan.
        "plan_changes_count{operation=\"destroy\"} 1",
        "plan_changes_bucket{le=\"0.0\",operation=\"change\"} 1",
        "plan_changes_bucket{le=\"100.0\",operation=\"destroy\"} 0",
        "plan_changes_bucket{le=\"200.0\",operation=\"destroy\"} 1",
    ]);
}

/// Returns a status with this `Ready`, and with a state lock if it is `False`.
fn ready(status: &str) -> Value {
    json!({ "conditions": [{ "type": "Ready", "status": status, "reason": "X", "message": "",
        "lastTransitionTime": NOW }], "lock": { "pending": if status == "False" { "l1" } else { "" } } })
}

fn pending(drift: bool, planned: &str) -> Pending {
    Pending {
        plan_id: "aa".into(),
        run: "net-u1-1".into(),
        drift,
        held: false,
        rejection: None,
        planned: planned.parse().unwrap(),
    }
}

/// Sets the states of four stacks: one applies, two wait for an approval, one has no source.
fn set_four_states(stacks: &StackMetrics) {
    let mut facts = facts_of_a_new_stack();
    let applying = run(1, "Apply", &json!({ "phase": "Applying" }));
    let a = stack("a", &ready("True"));
    stacks.set_state(&a, &facts, &Step::Follow, &[], Some(&applying));
    let source = Step::Idle(Idle::Source);
    stacks.set_state(&stack("d", &ready("False")), &facts, &source, &[], None);
    let awaits = Step::Idle(Idle::AwaitApproval);
    facts.history.pending = Some(pending(true, "2026-01-01T23:00:00Z"));
    stacks.set_state(&stack("b", &ready("False")), &facts, &awaits, &[], None);
    facts.history.pending = Some(pending(false, "2026-01-01T00:00:00Z"));
    stacks.set_state(&stack("c", &ready("Unknown")), &facts, &awaits, &[], None);
}

#[test]
fn gauges_sum_up_the_stacks_of_a_namespace_until_they_are_deleted() {
    let fixture = Fixture::new();
    set_four_states(&fixture.stacks);
    fixture.assert_lines(&[
        "stacks{stack_namespace=\"team\",ready=\"True\"} 1",
        "stacks{stack_namespace=\"team\",ready=\"False\"} 2",
        "stacks{stack_namespace=\"team\",ready=\"Unknown\"} 1",
        "stacks_blocked{stack_namespace=\"team\",reason=\"Source\"} 1",
        "stacks_blocked{stack_namespace=\"team\",reason=\"Spec\"} 0",
        "stacks_failing{stack_namespace=\"team\"} 0",
        "stacks_drifted{stack_namespace=\"team\"} 1",
        "stacks_locked{stack_namespace=\"team\"} 2",
        "plans_pending{stack_namespace=\"team\"} 2",
        "plan_pending_oldest_seconds{stack_namespace=\"team\"} 86400.0",
        "runs_active{action=\"Apply\",phase=\"Applying\"} 1",
        "run_unclaimed_oldest_seconds 0.0",
    ]);
    let text = fixture.metrics.text();
    assert!(!text.contains("name=\"a\""), "no series has a label of an object");
    for name in ["b", "c", "d"] {
        let key = ObjectKey::of(&stack(name, &Value::Null));
        fixture.metrics.forget("GitRepository", &key);
        fixture.metrics.forget(KIND, &key);
    }
    fixture.assert_lines(&[
        "stacks{stack_namespace=\"team\",ready=\"False\"} 0",
        "plans_pending{stack_namespace=\"team\"} 0",
    ]);
    let last = ObjectKey::of(&stack("a", &Value::Null));
    fixture.metrics.forget(KIND, &last);
    let text = fixture.metrics.text();
    assert!(!text.contains("namespace=\"team\"") && text.ends_with("# EOF\n"));
}

#[test]
fn numbers_of_a_run_cannot_decrease_a_sum() {
    let fixture = Fixture::new();
    let status = json!({ "phase": "Failed", "startedAt": "2026-01-03T00:00:00Z", "finishedAt": NOW, "hasChanges": true,
        "summary": { "add": -1, "change": 0, "destroy": 0 }, "peakMemoryBytes": -5 });
    let net = stack("net", &Value::Null);
    fixture.stacks.count_runs(&net, &[run(1, "Plan", &status)], None);
    fixture.assert_lines(&[
        "run_duration_seconds_sum{action=\"Plan\",phase=\"Failed\"} 0.0",
        "run_peak_memory_bytes_sum{action=\"Plan\"} 0.0",
        "plan_changes_sum{operation=\"add\"} 0.0",
    ]);
}

#[test]
fn a_run_without_a_runner_is_shown_with_its_age() {
    let fixture = Fixture::new();
    let (facts, stack) = (facts_of_a_new_stack(), stack("net", &Value::Null));
    let mut created = run(1, "Plan", &json!({}));
    created.metadata.creation_timestamp = Some(Time("2026-01-01T23:59:00Z".parse().unwrap()));
    fixture
        .stacks
        .set_state(&stack, &facts, &Step::Follow, &[], Some(&created));
    fixture.assert_lines(&[
        "runs_active{action=\"Plan\",phase=\"Pending\"} 1",
        "run_unclaimed_oldest_seconds 60.0",
    ]);
}

#[test]
fn a_run_is_overdue_after_its_deadline_and_its_grace_periods() {
    let fixture = Fixture::new();
    let (facts, stack) = (facts_of_a_new_stack(), stack("net", &Value::Null));
    // Two hours, half a minute for the CLI and one for the report.
    for (started, overdue) in [("2026-01-01T21:58:30Z", 0), ("2026-01-01T21:58:29Z", 1)] {
        let applying = run(1, "Apply", &json!({ "phase": "Applying", "startedAt": started }));
        fixture
            .stacks
            .set_state(&stack, &facts, &Step::Follow, &[], Some(&applying));
        fixture.assert_lines(&[&format!("runs_overdue{{stack_namespace=\"team\"}} {overdue}")]);
    }
}

#[test]
fn a_stack_that_leaves_the_label_selector_and_comes_back_is_not_counted_again() {
    let fixture = Fixture::new();
    let net = stack("net", &Value::Null);
    let lost = [run(1, "Apply", &json!({ "phase": "Lost", "finishedAt": NOW }))];
    let count = |times: u32| {
        fixture.stacks.count_runs(&net, &lost, None);
        let series = "runs_ended_total{action=\"Apply\",trigger=\"Revision\",phase=\"Lost\"}";
        fixture.assert_lines(&[&format!("{series} {times}")]);
    };
    count(1);
    fixture.metrics.forget(KIND, &ObjectKey::of(&net));
    count(1);
    assert_eq!(lock(&fixture.stacks.stacks.0).len(), 1);
    fixture.stacks.remove(&net);
    assert!(
        lock(&fixture.stacks.stacks.0).is_empty(),
        "nothing is stored about a deleted stack"
    );
}

#[test]
fn a_controller_that_has_stopped_shows_no_gauges() {
    let Fixture {
        metrics,
        stacks,
        run_slots,
    } = Fixture::new();
    set_four_states(&stacks);
    assert!(metrics.text().contains("sluice_terraform_stacks_failing"));
    drop((stacks, run_slots));
    let text = metrics.text();
    assert!(
        !text.contains("sluice_terraform_stacks") && !text.contains("sluice_terraform_run_slots"),
        "{text}"
    );
    assert!(text.contains("sluice_terraform_runs_created_total") && text.ends_with("# EOF\n"));
    metrics.forget(KIND, &ObjectKey::of(&stack("a", &Value::Null)));
}

#[test]
fn the_queue_is_shown_by_priority_and_reason() {
    let fixture = Fixture::new();
    let key = |name: &str| ObjectKey::of(&stack(name, &Value::Null));
    let request = |stack: &ObjectKey, priority| {
        let labels = [("account".to_owned(), "prod".to_owned())].into();
        let usage = fixture.run_slots.usage(&labels, 0);
        fixture.run_slots.request(stack, priority, usage) == SlotState::Occupied
    };
    assert!(request(&key("a"), Priority::Change));
    assert!(!request(&key("b"), Priority::Timer));
    let other = ObjectKey {
        namespace: "other".into(),
        name: "c".into(),
    };
    assert!(!request(&other, Priority::Manual));
    fixture.assert_lines(&[
        "run_slots_occupied 1",
        "runs_queued{priority=\"Timer\",reason=\"NamespaceSlots\"} 1",
        "runs_queued{priority=\"Manual\",reason=\"LabelSlots\"} 1",
        "runs_queued{priority=\"Timer\",reason=\"Slots\"} 0",
        "runs_queued{priority=\"Timer\",reason=\"Memory\"} 0",
    ]);
}
