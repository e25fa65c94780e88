//! What a change of an object means to a person, in lines. Pure: (before, after) -> lines.

use serde_json::Value;

/// How a line is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Something happened.
    Plain,
    /// Something ended well.
    Good,
    /// Something is wrong.
    Bad,
    /// The user is asked for something.
    Ask,
    /// Detail below a line.
    Detail,
}

/// One line of the story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is about: `source`, `run`, `stack`, `event`.
    pub about: &'static str,
    /// How it is to be read.
    pub tone: Tone,
    /// The text.
    pub text: String,
}

fn line(about: &'static str, tone: Tone, text: impl Into<String>) -> Line {
    Line {
        about,
        tone,
        text: text.into(),
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A value that is new or differs from before, unless it is empty.
fn news<'a>(before: Option<&Value>, after: &'a Value, pointer: &str) -> Option<&'a str> {
    let now = text(after, pointer);
    let was = before.map(|value| text(value, pointer)).unwrap_or_default();
    (!now.is_empty() && now != was).then_some(now)
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| text(condition, "/type") == kind)
}

/// `Ready`'s status, reason and message, where they differ from before.
fn ready_news<'a>(before: Option<&Value>, after: &'a Value) -> Option<(&'a str, &'a str, &'a str)> {
    let parts = |value: &'a Value| {
        (
            text(value, "/status"),
            text(value, "/reason"),
            text(value, "/message"),
        )
    };
    let now = parts(condition(after, "Ready")?);
    let was = before.and_then(|value| condition(value, "Ready"));
    let same =
        was.is_some_and(|was| (text(was, "/status"), text(was, "/reason"), text(was, "/message")) == now);
    (!same).then_some(now)
}

fn name(object: &Value) -> String {
    format!(
        "{}/{}",
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name")
    )
}

/// `main@sha1:b8e362c206…` cut to ten digits of the hash.
#[must_use]
pub fn short(revision: &str) -> String {
    match revision.rsplit_once(':') {
        Some((front, hash)) if hash.len() > 12 => {
            format!("{front}:{}…", hash.chars().take(10).collect::<String>())
        }
        _ => revision.to_owned(),
    }
}

/// A GitRepository changed.
#[must_use]
pub fn repository(before: Option<&Value>, after: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    if news(before, after, "/status/artifact/digest").is_some()
        || news(before, after, "/status/artifact/revision").is_some()
    {
        let revision = text(after, "/status/artifact/revision");
        let size = after
            .pointer("/status/artifact/size")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        lines.push(line(
            "source",
            Tone::Plain,
            format!("{} head {revision}", name(after)),
        ));
        let digest = text(after, "/status/artifact/digest");
        lines.push(line(
            "source",
            Tone::Good,
            format!("artifact stored: {size} bytes, {}", short(digest)),
        ));
    }
    if let Some(("False", reason, message)) = ready_news(before, after) {
        lines.push(line(
            "source",
            Tone::Bad,
            format!("{} {reason}: {message}", name(after)),
        ));
    }
    lines
}

/// A TerraformRun changed.
#[must_use]
pub fn run(before: Option<&Value>, after: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    let name = text(after, "/metadata/name");
    if before.is_none() {
        let (action, trigger) = (text(after, "/spec/action"), text(after, "/spec/trigger"));
        let destroy = if after.pointer("/spec/destroy") == Some(&Value::Bool(true)) {
            ", destroy"
        } else {
            ""
        };
        let revision = short(text(after, "/spec/source/revision"));
        lines.push(line(
            "run",
            Tone::Plain,
            format!("{name} {action}{destroy} ({trigger}) of {revision}"),
        ));
    }
    if let Some(plan) = news(before, after, "/status/humanPlan") {
        lines.extend(plan.trim_end().lines().map(|row| line("run", Tone::Detail, row)));
    }
    match news(before, after, "/status/phase") {
        Some("Succeeded") => {
            let changes = text(after, "/status/changes");
            let what = if changes.is_empty() {
                String::new()
            } else {
                format!(": {changes}")
            };
            lines.push(line("run", Tone::Good, format!("{name} succeeded{what}")));
        }
        Some(phase @ ("Failed" | "Lost" | "Superseded")) => {
            let tone = if phase == "Superseded" {
                Tone::Plain
            } else {
                Tone::Bad
            };
            let (reason, message) = (text(after, "/status/reason"), text(after, "/status/message"));
            let mut rows = message.lines().filter(|row| !row.trim().is_empty());
            let first = rows.next().unwrap_or_default();
            lines.push(line(
                "run",
                tone,
                format!("{name} {} {reason}: {first}", phase.to_lowercase()),
            ));
            // The CLI's words are many lines.
            lines.extend(rows.map(|row| line("run", Tone::Detail, row)));
        }
        _ => {}
    }
    lines
}

/// A Terraform changed.
#[must_use]
pub fn stack(before: Option<&Value>, after: &Value) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(id) = news(before, after, "/status/plan/pending")
        && text(after, "/spec/approvePlan") != "auto"
    {
        lines.push(line(
            "stack",
            Tone::Ask,
            format!("{} waits for the approval of {id}", name(after)),
        ));
    }
    match ready_news(before, after) {
        Some(("True", _, message)) => {
            lines.push(line("stack", Tone::Good, format!("{} {message}", name(after))));
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
                Tone::Bad,
                format!("{} {reason}: {first}", name(after)),
            ));
        }
        _ => {}
    }
    lines
}

/// An Event was written. Only what the objects themselves do not say is told.
#[must_use]
pub fn event(before: Option<&Value>, after: &Value) -> Vec<Line> {
    if before.is_some() {
        return Vec::new();
    }
    match text(after, "/reason") {
        "NoRelevantChange" => vec![line("stack", Tone::Plain, text(after, "/message"))],
        "NewArtifact" => {
            let files = text(after, "/metadata/annotations/infra.sluice.dev~1files");
            vec![line(
                "source",
                Tone::Plain,
                format!("{files} files, {}", text(after, "/message")),
            )]
        }
        _ => Vec::new(),
    }
}

/// What runs are doing now, for the status line of a terminal: `app-1a2b-3 Planning`.
#[must_use]
pub fn doing(run: &Value) -> Option<String> {
    let phase = text(run, "/status/phase");
    let ended = matches!(phase, "Succeeded" | "Failed" | "Superseded" | "Lost");
    let phase = if phase.is_empty() { "Pending" } else { phase };
    (!ended).then(|| format!("{} {phase}", text(run, "/metadata/name")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn an_artifact_is_told_once() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let after = json!({"metadata": {"namespace": "d", "name": "s"},
            "status": {"artifact": {"revision": "main@sha1:aa", "digest": digest, "size": 7}}});
        assert_eq!(
            told(&repository(None, &after)),
            [
                "d/s head main@sha1:aa",
                "artifact stored: 7 bytes, sha256:ababababab…"
            ]
        );
        assert!(repository(Some(&after), &after).is_empty());
    }

    #[test]
    fn a_run_tells_its_plan_and_its_end() {
        let made = json!({"metadata": {"name": "app-1-1"}, "spec": {"action": "Plan", "trigger": "Revision",
            "source": {"revision": "main@sha1:b8e362c206aaaaaa"}}});
        let mut ended = made.clone();
        ended["status"] = json!({"phase": "Succeeded", "changes": "+1 ~0 -0", "humanPlan": "  + x\n\n"});
        assert_eq!(
            told(&run(None, &made)),
            ["app-1-1 Plan (Revision) of main@sha1:b8e362c206…"]
        );
        assert_eq!(
            told(&run(Some(&made), &ended)),
            ["  + x", "app-1-1 succeeded: +1 ~0 -0"]
        );
        ended["status"] = json!({"phase": "Failed", "reason": "TFExecPlanFailed", "message": "exit status 1\n\nError: no value\n  on x"});
        assert_eq!(
            told(&run(Some(&made), &ended)),
            [
                "app-1-1 failed TFExecPlanFailed: exit status 1",
                "Error: no value",
                "  on x"
            ]
        );
        assert_eq!(doing(&made).as_deref(), Some("app-1-1 Pending"));
        assert_eq!(doing(&ended), None);
    }

    #[test]
    fn an_event_tells_what_objects_do_not() {
        let new = json!({"reason": "NewArtifact", "message": "stored artifact for commit 'x'",
            "metadata": {"annotations": {"infra.sluice.dev/files": "3"}}});
        assert_eq!(
            told(&event(None, &new)),
            ["3 files, stored artifact for commit 'x'"]
        );
        assert!(event(None, &json!({"reason": "TerraformPlanSucceed"})).is_empty());
    }

    #[test]
    fn a_waiting_plan_asks() {
        let after =
            json!({"metadata": {"namespace": "d", "name": "a"}, "status": {"plan": {"pending": "plan-x"}}});
        assert_eq!(stack(None, &after)[0].tone, Tone::Ask);
        assert!(stack(Some(&after), &after).is_empty());
    }
}
