//! Records every version of the stack from before its creation, and what changes with each.

use std::path::PathBuf;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use sluice_api::terraform::Terraform;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::STACK;
use super::cli_gate::GateKeeper;
use crate::environment::{TIMEOUT, TestEnvironment};

/// The recorded trace.
#[derive(Clone, Default)]
struct Recording {
    /// Each change as lines; the first line is about `Ready`.
    steps: Vec<String>,
    /// The latest version.
    version: u64,
    gone: bool,
}

/// The recorder.
pub(super) struct Recorder {
    recording: watch::Receiver<Recording>,
    task: JoinHandle<()>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Recorder {
    /// Starts recording.
    pub(super) async fn start(env: &TestEnvironment) -> Self {
        let api: Api<Terraform> = env.api();
        let none = api.list(&ListParams::default()).await.unwrap();
        assert!(none.items.is_empty(), "the stack is there before its trace");
        let from = none.metadata.resource_version.unwrap();
        let only = WatchParams::default().fields(&format!("metadata.name={STACK}"));
        let (sender, recording) = watch::channel(Recording::default());
        let (keeper, dir) = (GateKeeper::of(env), env.path(""));
        let task = tokio::spawn(async move {
            let mut events = api.watch(&only, &from).await.unwrap().boxed();
            let mut before = Vec::new();
            while let Some(event) = events.try_next().await.unwrap() {
                let (stack, gone) = match event {
                    WatchEvent::Added(stack) | WatchEvent::Modified(stack) => (stack, false),
                    WatchEvent::Deleted(stack) => (stack, true),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(error) => panic!("the watch missed events: {error:?}"),
                };
                let current = condition_texts(&stack, &dir);
                let step = if gone {
                    "gone".to_owned()
                } else {
                    difference(&before, &current)
                };
                if !step.is_empty() {
                    keeper.update(&stack);
                }
                sender.send_modify(|recording| {
                    recording.version = stack.resource_version().unwrap().parse().unwrap();
                    recording.gone = gone;
                    recording.steps.extend(Some(step).filter(|step| !step.is_empty()));
                });
                before = current;
            }
        });
        Self { recording, task }
    }

    /// Returns all steps up to the stack's current version, or its deletion.
    pub(super) async fn all(&mut self, env: &TestEnvironment) -> Vec<String> {
        let api: Api<Terraform> = env.api();
        let newest = api.get_opt(STACK).await.unwrap();
        let version: Option<u64> = newest.map(|stack| stack.resource_version().unwrap().parse().unwrap());
        let complete = |recording: &Recording| {
            recording.gone || version.is_some_and(|version| recording.version >= version)
        };
        let recording = tokio::time::timeout(TIMEOUT, self.recording.wait_for(complete)).await;
        recording.unwrap().unwrap().steps.clone()
    }
}

/// Type and text of a condition.
type ConditionText = (String, String);

fn condition_texts(stack: &Terraform, dir: &std::path::Path) -> Vec<ConditionText> {
    let conditions = stack.status.iter().flat_map(|status| &status.conditions);
    let words = |c: &Condition| format!("{} {}: {}", c.status, c.reason, stable_text(&c.message, dir));
    conditions.map(|c| (c.type_.clone(), words(c))).collect()
}

/// Returns the changes, `Ready` first; empty if there are none.
fn difference(before: &[ConditionText], current: &[ConditionText]) -> String {
    if before == current {
        return String::new();
    }
    let find = |list: &[ConditionText], kind: &str| {
        list.iter()
            .find(|(k, _)| k == kind)
            .map(|(_, condition_texts)| condition_texts.clone())
    };
    let mut lines = Vec::new();
    match find(current, "Ready") {
        ready if ready == find(before, "Ready") => lines.push("Ready as before".to_owned()),
        Some(ready) => lines.push(format!("Ready {ready}")),
        None => lines.push("no Ready".to_owned()),
    }
    for (kind, _) in before.iter().filter(|(kind, _)| find(current, kind).is_none()) {
        lines.push(format!("  - {kind}"));
    }
    for (kind, condition_texts) in current.iter().filter(|(kind, condition_texts)| {
        kind != "Ready" && find(before, kind).as_ref() != Some(condition_texts)
    }) {
        lines.push(format!("  + {kind} {condition_texts}"));
    }
    lines.join("\n")
}

/// Returns the first line of a message without parts that vary between runs of the test.
fn stable_text(message: &str, dir: &std::path::Path) -> String {
    let mut lines = message.trim().lines();
    let mut text = lines.next().unwrap_or_default().trim_end().to_owned();
    if lines.next().is_some() {
        text.push_str(" …");
    }
    for mark in 'a'..='f' {
        text = text.replace(
            &format!("main@sha1:{}", mark.to_string().repeat(40)),
            &format!("revision {mark}"),
        );
        let front = format!("plan-main-{}-", mark.to_string().repeat(10));
        while let Some(start) = text.find(&front) {
            let end = start + front.len() + 40;
            assert!(
                text.is_char_boundary(end) && end <= text.len(),
                "no whole plan id: {text}"
            );
            text.replace_range(start..end, &format!("the id at {mark}"));
        }
    }
    if let Some(start) = text.find("with the effect ") {
        text.replace_range(
            start + "with the effect ".len()..start + "with the effect ".len() + 40,
            "APPROVED",
        );
    }
    text.replace(&PathBuf::from(dir).display().to_string(), "DIR/")
}
