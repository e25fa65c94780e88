//! Statuses and events of typical passes, from the objects that the API would give, through history and decision.

mod aftermath;
mod histories;
mod rails;
mod shown;
mod success;
mod trouble;

use super::{Report, events, status};
use crate::decide::{Inputs, SourceFact, Step, decide};
use crate::reconcile::{
    gather::{approval_of, gather, glass},
    history::history,
    observe::Observed,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_api::{
    annotation::REQUESTED_AT,
    run::TerraformRun,
    terraform::{Terraform, TerraformStatus},
};
use sluice_runtime::event::Event;
use std::fmt::Write as _;

const NOW: i64 = 1_800_000_000;
const REVISION: &str = "main@sha1:aaaaaaaaaaaaaaaa";

fn id() -> String {
    format!("plan-main-aaaaaaaaaa-{}", "e".repeat(40))
}

/// One pass: what is there, and what comes of it.
struct Pass {
    name: &'static str,
    stack: Value,
    runs: Vec<Value>,
    source: SourceFact,
    inputs: Inputs,
    /// Whether there is a place for another run.
    place: bool,
}

fn pass(name: &'static str, spec: Value, runs: Vec<Value>) -> Pass {
    let mut stack = json!({
        "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": { "name": "net", "namespace": "team", "uid": "u1", "generation": 1 },
        "spec": { "interval": "10m", "sourceRef": { "kind": "GitRepository", "name": "code" } },
    });
    merge(&mut stack["spec"], spec);
    Pass {
        name,
        stack,
        runs,
        source: SourceFact::Found {
            revision: REVISION.into(),
            digest: "sha256:bb".into(),
        },
        inputs: Inputs::Known("i1".into()),
        place: true,
    }
}

impl Pass {
    fn with(mut self, stack: Value) -> Self {
        merge(&mut self.stack, stack);
        self
    }

    /// The same inputs from another artifact.
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

/// A run that ended a minute ago per number below ten; members of `status` are added.
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

/// Carries a pass over this object out but for its effects.
fn carried_out(pass: &Pass, stack: &Terraform) -> (TerraformStatus, Vec<Event>) {
    let observed = Observed {
        outputs_gone: false,
        source: pass.source.clone(),
        artifact: None,
        runs: pass.runs.iter().map(typed).collect(),
        unreadable: None,
    };
    let mut facts = gather(stack, &observed, Timestamp::from_second(NOW).unwrap());
    facts.inputs = pass.inputs.clone();
    facts.approval = approval_of(stack, &observed.runs, &facts);
    facts.policy.glass = glass(stack, &observed, true);
    let mut step = decide(&facts);
    if !pass.place && matches!(step, Step::Start(_)) {
        step = Step::Wait;
    }
    let token = stack.annotations().get(REQUESTED_AT).map(String::as_str);
    let report = Report {
        stack,
        facts: &facts,
        runs: &observed.runs,
        step: &step,
        handled: token.filter(|_| matches!(step, Step::Rest(_))),
    };
    let after = status(&report);
    let told = events(&report, &after);
    (after, told)
}

/// What a pass says.
fn told(pass: &Pass) -> String {
    let (after, events) = carried_out(pass, &pass.object());
    let mut text = format!("{}:\n", pass.name);
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

fn table(passes: &[Pass]) -> String {
    passes.iter().map(told).collect()
}

#[test]
fn a_pass_that_finds_nothing_new_says_nothing_new() {
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
        let pass = pass("a pass", spec, runs);
        let mut stack = pass.object();
        let (first, told) = carried_out(&pass, &stack);
        assert!(!told.is_empty());
        stack.status = Some(first.clone());
        let (second, told) = carried_out(&pass, &stack);
        assert_eq!(json!(first), json!(second));
        assert!(told.is_empty(), "{told:?}");
    }
}
