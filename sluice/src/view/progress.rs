//! Describes changes of objects as progress lines. Pure: (before, after) -> lines.

use serde_json::Value;

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Information.
    Plain,
    /// Success.
    Success,
    /// Failure.
    Failure,
    /// The user must act.
    Prompt,
    /// Details of the line before.
    Detail,
}

/// A progress line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The subject: `source`, `run`, `stack`, `event`.
    pub subject: &'static str,
    /// The style.
    pub tone: Tone,
    /// The text.
    pub text: String,
}

fn line(subject: &'static str, tone: Tone, text: impl Into<String>) -> Line {
    Line {
        subject,
        tone,
        text: text.into(),
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a value if it is not empty and has changed.
fn changed_text<'a>(before: Option<&Value>, after: &'a Value, pointer: &str) -> Option<&'a str> {
    let now = text(after, pointer);
    let previous = before.map(|value| text(value, pointer)).unwrap_or_default();
    (!now.is_empty() && now != previous).then_some(now)
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| text(condition, "/type") == kind)
}

/// Returns status, reason and message of `Ready`.
fn ready(object: &Value) -> Option<(&str, &str, &str)> {
    let ready = condition(object, "Ready")?;
    Some((
        text(ready, "/status"),
        text(ready, "/reason"),
        text(ready, "/message"),
    ))
}

/// Returns status, reason and message of `Ready` if they have changed.
fn changed_ready<'a>(before: Option<&Value>, after: &'a Value) -> Option<(&'a str, &'a str, &'a str)> {
    let now = ready(after)?;
    let same = before.and_then(ready).is_some_and(|previous| previous == now);
    (!same).then_some(now)
}

fn name(object: &Value) -> String {
    let (namespace, name) = (
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    );
    format!("{namespace}/{name}")
}

/// Shortens the hash in `main@sha1:b8e362c206…` to ten digits.
#[must_use]
pub fn short_revision(revision: &str) -> String {
    match revision.rsplit_once(':') {
        Some((prefix, hash)) if hash.len() > 12 => {
            format!("{prefix}:{}…", hash.chars().take(10).collect::<String>())
        }
        _ => revision.to_owned(),
    }
}

/// Describes a change of a GitRepository.
#[must_use]
pub fn repository(before: Option<&Value>, after: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    if changed_text(before, after, "/status/artifact/digest").is_some()
        || changed_text(before, after, "/status/artifact/revision").is_some()
    {
        let revision = text(after, "/status/artifact/revision");
        let size = after.pointer("/status/artifact/size").and_then(Value::as_i64);
        let head = format!("{} head {revision}", name(after));
        lines.push(line("source", Tone::Plain, head));
        let (size, digest) = (
            size.unwrap_or_default(),
            short_revision(text(after, "/status/artifact/digest")),
        );
        let stored = format!("artifact stored: {size} bytes, {digest}");
        lines.push(line("source", Tone::Success, stored));
    }
    if let Some(("False", reason, message)) = changed_ready(before, after) {
        let failure = format!("{} {reason}: {message}", name(after));
        lines.push(line("source", Tone::Failure, failure));
    }
    lines
}

/// Describes a change of a TerraformRun.
#[must_use]
pub fn run(before: Option<&Value>, after: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    let name = text(after, "/metadata/name");
    if before.is_none() {
        let (action, trigger) = (text(after, "/spec/action"), text(after, "/spec/trigger"));
        let is_destroy = after.pointer("/spec/destroy") == Some(&Value::Bool(true));
        let destroy = if is_destroy { ", destroy" } else { "" };
        let revision = short_revision(text(after, "/spec/source/revision"));
        let started = format!("{name} {action}{destroy} ({trigger}) of {revision}");
        lines.push(line("run", Tone::Plain, started));
    }
    if let Some(plan) = changed_text(before, after, "/status/humanPlan") {
        lines.extend(plan.trim_end().lines().map(|row| line("run", Tone::Detail, row)));
    }
    match changed_text(before, after, "/status/phase") {
        Some("Succeeded") => {
            let changes = text(after, "/status/changes");
            let colon = if changes.is_empty() { "" } else { ": " };
            let succeeded = format!("{name} succeeded{colon}{changes}");
            lines.push(line("run", Tone::Success, succeeded));
        }
        Some(phase @ ("Failed" | "Lost" | "Superseded")) => {
            let tone = if phase == "Superseded" {
                Tone::Plain
            } else {
                Tone::Failure
            };
            let (reason, message) = (text(after, "/status/reason"), text(after, "/status/message"));
            let mut rows = message.lines().filter(|row| !row.trim().is_empty());
            let first = rows.next().unwrap_or_default();
            let ended = format!("{name} {} {reason}: {first}", phase.to_lowercase());
            lines.push(line("run", tone, ended));
            // The CLI's error message has many lines.
            lines.extend(rows.map(|row| line("run", Tone::Detail, row)));
        }
        _ => {}
    }
    lines
}

/// Whether an approval applies a plan of the stack: in `auto` it needs none, and the other modes never apply one.
fn approval_applies(stack: &Value) -> bool {
    let is_plan_only = stack.pointer("/spec/planOnly") == Some(&Value::Bool(true));
    !is_plan_only && !matches!(text(stack, "/spec/approvePlan"), "auto" | "disable")
}

/// Describes a change of a Terraform object.
#[must_use]
pub fn stack(before: Option<&Value>, after: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(id) = changed_text(before, after, "/status/plan/pending")
        && approval_applies(after)
    {
        let (namespace, own_name) = (text(after, "/metadata/namespace"), text(after, "/metadata/name"));
        let prompt = format!(
            "{} waits for an approval of {id}: sluice approve {own_name} -n {namespace}",
            name(after)
        );
        lines.push(line("stack", Tone::Prompt, prompt));
    }
    match changed_ready(before, after) {
        Some(("True", _, message)) => {
            lines.push(line("stack", Tone::Success, format!("{} {message}", name(after))));
        }
        Some(("False", _, "Source is not ready, artifact not found")) => {
            lines.push(line(
                "stack",
                Tone::Plain,
                format!("{} waits for its source", name(after)),
            ));
        }
        Some(("False", reason, message)) => {
            let first = message.lines().next().unwrap_or_default();
            lines.push(line(
                "stack",
                Tone::Failure,
                format!("{} {reason}: {first}", name(after)),
            ));
        }
        _ => {}
    }
    lines
}

/// Describes an Event, if the objects themselves do not show it.
#[must_use]
pub fn event(before: Option<&Value>, after: &Value) -> Vec<Line> {
    if before.is_some() {
        return Vec::new();
    }
    match text(after, "/reason") {
        "NoRelevantChange" => vec![line("stack", Tone::Plain, text(after, "/message"))],
        "NewArtifact" => {
            let files = text(after, "/metadata/annotations/infra.sluice.dev~1files");
            let noun = if files == "1" { "file" } else { "files" };
            vec![line(
                "source",
                Tone::Plain,
                format!("{files} {noun}, {}", text(after, "/message")),
            )]
        }
        _ => Vec::new(),
    }
}

/// Returns name and phase of an active run for the status line: `app-1a2b-3 Planning`.
#[must_use]
pub fn active_run(run: &Value) -> Option<String> {
    let phase = text(run, "/status/phase");
    let ended = matches!(phase, "Succeeded" | "Failed" | "Superseded" | "Lost");
    let phase = if phase.is_empty() { "Pending" } else { phase };
    (!ended).then(|| format!("{} {phase}", text(run, "/metadata/name")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn an_artifact_is_printed_once() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let after = json!({"metadata": {"namespace": "d", "name": "s"},
            "status": {"artifact": {"revision": "main@sha1:aa", "digest": digest, "size": 7}}});
        assert_eq!(
            texts(&repository(None, &after)),
            [
                "d/s head main@sha1:aa",
                "artifact stored: 7 bytes, sha256:ababababab…"
            ]
        );
        assert!(repository(Some(&after), &after).is_empty());
    }

    #[test]
    fn a_run_prints_its_plan_and_its_result() {
        let created = json!({"metadata": {"name": "app-1-1"}, "spec": {"action": "Plan", "trigger": "Revision",
            "source": {"revision": "main@sha1:b8e362c206aaaaaa"}}});
        let mut ended = created.clone();
        ended["status"] = json!({"phase": "Succeeded", "changes": "+1 ~0 -0", "humanPlan": "  + x\n\n"});
        assert_eq!(
            texts(&run(None, &created)),
            ["app-1-1 Plan (Revision) of main@sha1:b8e362c206…"]
        );
        assert_eq!(
            texts(&run(Some(&created), &ended)),
            ["  + x", "app-1-1 succeeded: +1 ~0 -0"]
        );
        ended["status"] = json!({"phase": "Failed", "reason": "TFExecPlanFailed", "message": "exit status 1\n\nError: no value\n  on x"});
        assert_eq!(
            texts(&run(Some(&created), &ended)),
            [
                "app-1-1 failed TFExecPlanFailed: exit status 1",
                "Error: no value",
                "  on x"
            ]
        );
        assert_eq!(active_run(&created).as_deref(), Some("app-1-1 Pending"));
        assert_eq!(active_run(&ended), None);
    }

    #[test]
    fn only_events_that_add_information_are_printed() {
        for (files, expected) in [("1", "1 file"), ("3", "3 files")] {
            let new = json!({"reason": "NewArtifact", "message": "stored artifact for commit 'x'",
                "metadata": {"annotations": {"infra.sluice.dev/files": files}}});
            assert_eq!(
                texts(&event(None, &new)),
                [format!("{expected}, stored artifact for commit 'x'")]
            );
        }
        assert!(event(None, &json!({"reason": "TerraformPlanSucceed"})).is_empty());
    }

    #[test]
    fn a_pending_plan_prompts_the_user() {
        let after =
            json!({"metadata": {"namespace": "d", "name": "a"}, "status": {"plan": {"pending": "plan-x"}}});
        let lines = stack(None, &after);
        assert_eq!(lines[0].tone, Tone::Prompt);
        assert_eq!(
            texts(&lines),
            ["d/a waits for an approval of plan-x: sluice approve a -n d"]
        );
        assert!(stack(Some(&after), &after).is_empty());
    }

    #[test]
    fn a_plan_that_no_approval_applies_prompts_no_user() {
        for spec in [
            json!({"approvePlan": "auto"}),
            json!({"approvePlan": "disable"}),
            json!({"planOnly": true}),
        ] {
            let mut after = json!({"metadata": {"namespace": "d", "name": "a"}, "status": {"plan": {"pending": "plan-x"}}});
            after["spec"] = spec;
            assert!(stack(None, &after).is_empty(), "{after}");
        }
    }
}
