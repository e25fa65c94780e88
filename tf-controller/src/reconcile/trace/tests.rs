//! The spans of runs, as a table.

use serde_json::{Value, json};
use sluice_runtime::trace::Span;

use super::*;

const REVISION: &str = "main@sha1:5f2c";
/// A value that no span may contain.
const SECRET: &str = "hunter2";

/// A run that was created at 00:01:00 and ended at 00:02:00.
fn run(action: &str, trigger: &str, status: &Value) -> TerraformRun {
    let mut run = json!({
        "metadata": { "name": "net-u1-2", "namespace": "team", "uid": "r2", "creationTimestamp": "2026-01-01T00:01:00Z" },
        "spec": { "action": action, "attempt": 1, "deadline": "2h", "trigger": trigger, "approvedBy": SECRET,
            "source": { "kind": "GitRepository", "name": "code", "namespace": "team", "revision": REVISION,
                "digest": "sha256:00", "url": format!("http://user:{SECRET}@source/") },
            "terraform": { "name": "net", "uid": "u1", "generation": 1 } },
        "status": { "phase": "Succeeded", "finishedAt": "2026-01-01T00:02:00Z", "message": SECRET, "logTail": SECRET,
            "humanPlan": SECRET, "outputs": [SECRET],
            "changeEntries": [{ "action": "create", "address": SECRET }],
            "summary": { "add": 2, "change": 1, "destroy": 0 },
            "steps": [
                { "phase": "Claimed", "since": "2026-01-01T00:01:05.000000Z" },
                { "phase": "Planning", "since": "2026-01-01T00:01:10.000000Z" },
                { "phase": "Applying", "since": "2026-01-01T00:01:40.500000Z" },
            ] },
    });
    for (key, value) in status.as_object().unwrap() {
        run["status"][key] = value.clone();
    }
    serde_json::from_value(run).unwrap()
}

/// Returns name, parent, times in seconds after 00:00:00, and reason of each span.
fn lines(spans: &[Span]) -> Vec<String> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let seconds = |time| {
        Timestamp::try_from(time)
            .unwrap()
            .duration_since(start)
            .as_millis_f64()
            / 1e3
    };
    let root = SpanId::of_revision("s1", REVISION).span_bytes();
    let describe = |span: &Span| {
        let data = span.data();
        let is_parent = |other: &&Span| other.data().span_context.span_id() == data.parent_span_id;
        let parent = match spans.iter().find(is_parent) {
            Some(parent) => parent.data().name.clone(),
            None if data.parent_span_id.to_bytes() == root => "root".into(),
            None => "none".into(),
        };
        let (from, to) = (seconds(data.start_time), seconds(data.end_time));
        format!("{} < {parent}: {from}..{to} {:?}", data.name, data.status)
    };
    spans.iter().map(describe).collect()
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let mut attributes = span.data().attributes.iter();
    let found = attributes.find(|attribute| attribute.key.as_str() == key)?;
    Some(found.value.to_string())
}

#[test]
fn a_run_becomes_a_span_with_its_phases() {
    let spans = spans(&run("PlanAndApply", "Revision", &json!({})), Some("s1"), None);
    assert_eq!(
        lines(&spans),
        [
            "run PlanAndApply < root: 60..120 Unset",
            "Pending < run PlanAndApply: 60..65 Unset",
            "Claimed < run PlanAndApply: 65..70 Unset",
            "Planning < run PlanAndApply: 70..100.5 Unset",
            "Applying < run PlanAndApply: 100.5..120 Unset",
        ]
    );
    for (key, value) in [
        ("k8s.namespace.name", "team"),
        ("sluice.kind", "Terraform"),
        ("sluice.name", "net"),
        ("sluice.run", "net-u1-2"),
        ("sluice.revision", REVISION),
        ("vcs.ref.head.revision", "5f2c"),
        ("vcs.ref.head.name", "main"),
        ("sluice.artifact.digest", "sha256:00"),
        ("sluice.run.action", "PlanAndApply"),
        ("sluice.run.trigger", "Revision"),
        ("sluice.run.phase", "Succeeded"),
        ("sluice.plan.add", "2"),
    ] {
        assert_eq!(attribute(&spans[0], key).as_deref(), Some(value), "{key}");
    }
}

#[test]
fn both_controllers_compute_the_same_trace() {
    let spans = spans(&run("Plan", "Revision", &json!({})), Some("s1"), None);
    let again = super::spans(&run("Plan", "Revision", &json!({})), Some("s1"), None);
    assert_eq!(spans, again);
    let trace = SpanId::of_revision("s1", REVISION).trace_bytes();
    for span in &spans {
        assert_eq!(span.data().span_context.trace_id().to_bytes(), trace);
    }
}

#[test]
fn only_runs_after_a_push_are_in_the_trace_of_the_revision() {
    let revision = SpanId::of_revision("s1", REVISION);
    for trigger in Trigger::ALL {
        let spans = spans(&run("Plan", trigger.as_str(), &json!({})), Some("s1"), None);
        let run = spans[0].data();
        let is_in_trace = run.span_context.trace_id().to_bytes() == revision.trace_bytes();
        let follows = matches!(trigger, Trigger::Revision | Trigger::Approval | Trigger::Retry);
        assert_eq!(is_in_trace, follows, "{trigger:?}");
        let linked = run
            .links
            .links
            .iter()
            .map(|link| link.span_context.trace_id().to_bytes());
        let expected = (!follows).then(|| revision.trace_bytes());
        assert_eq!(
            linked.collect::<Vec<_>>(),
            Vec::from_iter(expected),
            "{trigger:?}"
        );
    }
    let gone = spans(&run("Plan", "Revision", &json!({})), None, None);
    assert!(
        lines(&gone)[0].starts_with("run Plan < none"),
        "{:?}",
        lines(&gone)
    );
}

#[test]
fn the_wait_for_an_approval_is_a_span_beside_the_run() {
    let planned = Some("2026-01-01T00:00:20Z".parse().unwrap());
    let approved = spans(&run("Apply", "Approval", &json!({})), Some("s1"), planned);
    assert_eq!(
        lines(&approved).last().unwrap(),
        "wait for approval < root: 20..60 Unset"
    );
    let automatic = spans(&run("Apply", "Drift", &json!({})), Some("s1"), planned);
    assert!(!lines(&automatic).iter().any(|line| line.starts_with("wait")));
}

#[test]
fn a_failed_run_shows_its_reason_and_nothing_else() {
    let errors = [
        ("Failed", "TFExecPlanFailed", "TFExecPlanFailed"),
        ("Lost", "RunLost", "RunLost"),
        // The pod writes its status.
        ("Failed", "password: hunter2", "_OTHER"),
    ];
    for (phase, reason, shown) in errors {
        let spans = spans(
            &run("Plan", "Revision", &json!({ "phase": phase, "reason": reason })),
            Some("s1"),
            None,
        );
        assert_eq!(attribute(&spans[0], "error.type").as_deref(), Some(shown));
        assert!(lines(&spans)[0].contains(shown), "{:?}", lines(&spans));
        let text = format!("{spans:?}");
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[test]
fn times_that_a_pod_invents_give_no_negative_duration() {
    let steps = json!([{ "phase": "Planning", "since": "2026-01-01T00:09:00.000000Z" },
        { "phase": "Applying", "since": "2025-01-01T00:00:00.000000Z" }]);
    let invented = run("Plan", "Revision", &json!({ "steps": steps }));
    for span in spans(&invented, Some("s1"), None) {
        assert!(span.data().start_time <= span.data().end_time, "{span:?}");
    }
    let many: Vec<_> = (0..1000)
        .map(|_| json!({ "phase": "Planning", "since": "2026-01-01T00:01:10.000000Z" }))
        .collect();
    let many = run("Plan", "Revision", &json!({ "steps": many }));
    assert!(spans(&many, Some("s1"), None).len() < 40);
    assert_eq!(
        spans(
            &run("Plan", "Revision", &json!({ "finishedAt": null })),
            None,
            None
        ),
        []
    );
}
