//! Statuses and events of typical cases, from the objects of the API through history and decision.

mod auto_apply;
mod failures;
mod history;
mod plans;
mod post_apply;
mod success;

use std::fmt::Write as _;

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_api::annotation::REQUESTED_AT;
use sluice_api::run::{PlanApproval, TerraformRun};
use sluice_api::terraform::{Terraform, TerraformStatus};
use sluice_runtime::event::Event;

use super::{Report, events, status};
use crate::decide::{Dependencies, Inputs, SourceFact, Step, decide};
use crate::reconcile::facts::{Outline, Settings, build_facts};
use crate::reconcile::history::history;
use crate::reconcile::observe::Observed;

const NOW: i64 = 1_800_000_000;
const REVISION: &str = "main@sha1:aaaaaaaaaaaaaaaa";

fn id() -> String {
    format!("plan-main-aaaaaaaaaa-{}", "e".repeat(40))
}

/// One reconciliation: the objects and the resolved inputs.
struct Case {
    name: &'static str,
    stack: Value,
    runs: Vec<Value>,
    source: SourceFact,
    inputs: Inputs,
    approvals: Vec<Value>,
    /// Whether a run slot is free.
    has_slot: bool,
    /// Whether the active run sends no heartbeats.
    is_silent: bool,
}

fn case(name: &'static str, spec: Value, runs: Vec<Value>) -> Case {
    let mut stack = json!({
        "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": { "name": "net", "namespace": "team", "uid": "u1", "generation": 1 },
        "spec": { "interval": "10m", "sourceRef": { "kind": "GitRepository", "name": "code" } },
    });
    merge(&mut stack["spec"], spec);
    Case {
        name,
        stack,
        runs,
        source: SourceFact::Found {
            revision: REVISION.into(),
            digest: "sha256:bb".into(),
        },
        inputs: Inputs::Known("i1".into()),
        approvals: Vec::new(),
        has_slot: true,
        is_silent: false,
    }
}

impl Case {
    fn with(mut self, stack: Value) -> Self {
        merge(&mut self.stack, stack);
        self
    }

    /// Sets another source with the same inputs.
    fn moved(mut self, source: SourceFact) -> Self {
        self.source = source;
        self
    }

    fn object(&self) -> Terraform {
        serde_json::from_value(self.stack.clone()).unwrap()
    }

    fn source(mut self, source: SourceFact) -> Self {
        self.source = source;
        self.inputs = Inputs::Unresolved;
        self
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Returns a run that ended a minute ago per number below ten, with these additions.
fn run(number: i64, spec: Value, status: Value) -> Value {
    let ended = Timestamp::from_second(NOW - 60 * (10 - number))
        .unwrap()
        .to_string();
    let mut run = json!({
        "metadata": { "name": format!("net-u1-{number}"), "namespace": "team", "creationTimestamp": ended },
        "spec": { "action": "PlanAndApply", "attempt": 1, "deadline": "2h", "trigger": "Revision", "inputsDigest": "i1",
            "source": { "kind": "GitRepository", "name": "code", "namespace": "team", "revision": REVISION },
            "terraform": { "name": "net", "uid": "u1", "generation": 1 } },
        "status": { "phase": "Succeeded", "finishedAt": ended },
    });
    merge(&mut run["spec"], spec);
    merge(&mut run["status"], status);
    run
}

fn planned(number: i64, trigger: &str) -> Value {
    run(
        number,
        json!({ "action": "Plan", "trigger": trigger }),
        json!({ "hasChanges": true, "planId": id(), "humanPlan": "~ it" }),
    )
}

fn clean(number: i64, trigger: &str) -> Value {
    run(
        number,
        json!({ "action": "Plan", "trigger": trigger }),
        json!({ "hasChanges": false }),
    )
}

fn applied(number: i64, outputs: &[&str]) -> Value {
    run(
        number,
        json!({}),
        json!({ "hasChanges": true, "planId": id(), "attemptedApply": true, "applied": true, "outputs": outputs,
            "outputsWritten": outputs.len() > 1 }),
    )
}

fn failed(number: i64, attempt: u32, reason: &str, applied: bool) -> Value {
    let status = json!({ "phase": "Failed", "reason": reason, "message": format!("error running It: {reason}"), "attemptedApply": applied });
    run(number, json!({ "attempt": attempt }), status)
}

fn going(number: i64, action: &str, phase: &str, status: Value) -> Value {
    let mut run = run(number, json!({ "action": action }), json!({ "phase": phase }));
    run["status"].as_object_mut().unwrap().remove("finishedAt");
    merge(&mut run["status"], status);
    run
}

fn typed(run: &Value) -> TerraformRun {
    serde_json::from_value(run.clone()).unwrap()
}

fn typed_approval(approval: &Value) -> PlanApproval {
    serde_json::from_value(approval.clone()).unwrap()
}

/// Reconciles this object without effects.
fn reconcile(case: &Case, stack: &Terraform) -> (TerraformStatus, Vec<Event>) {
    let observed = Observed {
        outputs_gone: false,
        source: case.source.clone(),
        artifact: None,
        runs: case.runs.iter().map(typed).collect(),
        unreadable: None,
        approvals: case.approvals.iter().map(typed_approval).collect(),
    };
    let settings = Settings {
        now: Timestamp::from_second(NOW).unwrap(),
        allows_break_glass: true,
        ignore_account: true,
        interval_offset: None,
    };
    let outline = Outline::new(stack, &observed, settings);
    let facts = build_facts(outline, &case.inputs.clone().into(), None, Dependencies::Ready);
    let mut step = decide(&facts, &[]);
    if !case.has_slot && matches!(step, Step::Start(_)) {
        step =
            Step::WaitForSlot("position 1 in the queue; all run slots are occupied (--concurrent=4)".into());
    }
    let token = stack.annotations().get(REQUESTED_AT).map(String::as_str);
    let report = Report {
        stack,
        facts: &facts,
        runs: &observed.runs,
        approvals: &observed.approvals,
        step: &step,
        handled: token.filter(|_| matches!(step, Step::Idle(_))),
        is_silent: case.is_silent,
    };
    let after = status(&report);
    let recorded = events(&report, &after);
    (after, recorded)
}

/// Returns status and events as text.
fn describe(case: &Case) -> String {
    let (after, events) = reconcile(case, &case.object());
    let mut text = format!("{}:\n", case.name);
    for c in &after.conditions {
        let message = c.message.replace('\n', "\\n");
        writeln!(text, "  {} {} {}: {message}", c.type_, c.status, c.reason).unwrap();
    }
    let pending = after.plan.as_ref().map(|plan| plan.pending.as_str());
    if pending.is_some_and(|id| !id.is_empty()) {
        writeln!(text, "  a plan waits").unwrap();
    }
    if after.reconciliation_failures > 0 {
        writeln!(text, "  {} failures", after.reconciliation_failures).unwrap();
    }
    for event in events {
        let message = event.message.replace('\n', "\\n");
        writeln!(text, "  event {:?} {}: {message}", event.severity, event.reason).unwrap();
    }
    text.replace(&id(), "ID")
}

fn table(cases: &[Case]) -> String {
    cases.iter().map(describe).collect()
}

#[test]
fn a_reconciliation_without_changes_reports_nothing() {
    for (spec, runs) in [
        (json!({}), vec![planned(1, "Revision")]),
        (json!({ "approvePlan": "auto" }), vec![applied(1, &["a"])]),
        (json!({}), vec![applied(1, &[]), planned(2, "Interval")]),
        (
            json!({ "retryInterval": "1h" }),
            vec![failed(1, 1, "TFExecPlanFailed", false)],
        ),
        (
            json!({ "remediation": { "retries": 0 } }),
            vec![failed(1, 1, "TFExecApplyFailed", true)],
        ),
    ] {
        let case = case("a case", spec, runs);
        let mut stack = case.object();
        let (first, events) = reconcile(&case, &stack);
        assert!(!events.is_empty());
        stack.status = Some(first.clone());
        let (second, events) = reconcile(&case, &stack);
        assert_eq!(json!(first), json!(second));
        assert!(events.is_empty(), "{events:?}");
    }
}
