//! Listens to every version of the stack, from before its creation, and keeps what each says that the one before did not.

use super::{STACK, gate::Keeper};
use crate::world::{DEADLINE, World};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use sluice_api::terraform::Terraform;
use std::path::PathBuf;
use tokio::{sync::watch, task::JoinHandle};

/// What was heard so far.
#[derive(Clone, Default)]
struct Heard {
    /// Each new state, as lines; the first line is about `Ready`.
    steps: Vec<String>,
    /// The newest version.
    version: u64,
    gone: bool,
}

/// The listener.
pub(super) struct Recorder {
    heard: watch::Receiver<Heard>,
    task: JoinHandle<()>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Recorder {
    /// Begins to listen.
    pub(super) async fn start(world: &World) -> Self {
        let api: Api<Terraform> = world.api();
        let none = api.list(&ListParams::default()).await.unwrap();
        assert!(none.items.is_empty(), "the stack is there before its trace");
        let from = none.metadata.resource_version.unwrap();
        let only = WatchParams::default().fields(&format!("metadata.name={STACK}"));
        let (tell, heard) = watch::channel(Heard::default());
        let (keeper, dir) = (Keeper::of(world), world.path(""));
        let task = tokio::spawn(async move {
            let mut events = api.watch(&only, &from).await.unwrap().boxed();
            let mut before = Vec::new();
            while let Some(event) = events.try_next().await.unwrap() {
                let (stack, gone) = match event {
                    WatchEvent::Added(stack) | WatchEvent::Modified(stack) => (stack, false),
                    WatchEvent::Deleted(stack) => (stack, true),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(error) => panic!("the watch lost something: {error:?}"),
                };
                let now = said(&stack, &dir);
                let step = if gone {
                    "gone".to_owned()
                } else {
                    difference(&before, &now)
                };
                if !step.is_empty() {
                    keeper.hears(&stack);
                }
                tell.send_modify(|heard| {
                    heard.version = stack.resource_version().unwrap().parse().unwrap();
                    heard.gone = gone;
                    heard.steps.extend(Some(step).filter(|step| !step.is_empty()));
                });
                before = now;
            }
        });
        Self { heard, task }
    }

    /// All steps up to the version that the stack has now, or to its end.
    pub(super) async fn all(&mut self, world: &World) -> Vec<String> {
        let api: Api<Terraform> = world.api();
        let newest = api.get_opt(STACK).await.unwrap();
        let version: Option<u64> = newest.map(|stack| stack.resource_version().unwrap().parse().unwrap());
        let complete = |heard: &Heard| heard.gone || version.is_some_and(|version| heard.version >= version);
        let heard = tokio::time::timeout(DEADLINE, self.heard.wait_for(complete)).await;
        heard.unwrap().unwrap().steps.clone()
    }
}

/// A condition's type, and what it says.
type Said = (String, String);

fn said(stack: &Terraform, dir: &std::path::Path) -> Vec<Said> {
    let conditions = stack.status.iter().flat_map(|status| &status.conditions);
    let words = |c: &Condition| format!("{} {}: {}", c.status, c.reason, lasting(&c.message, dir));
    conditions.map(|c| (c.type_.clone(), words(c))).collect()
}

/// What is new, `Ready` first; nothing where nothing is.
fn difference(before: &[Said], now: &[Said]) -> String {
    if before == now {
        return String::new();
    }
    let held = |list: &[Said], kind: &str| list.iter().find(|(k, _)| k == kind).map(|(_, said)| said.clone());
    let mut lines = Vec::new();
    match held(now, "Ready") {
        ready if ready == held(before, "Ready") => lines.push("Ready as before".to_owned()),
        Some(ready) => lines.push(format!("Ready {ready}")),
        None => lines.push("no Ready".to_owned()),
    }
    for (kind, _) in before.iter().filter(|(kind, _)| held(now, kind).is_none()) {
        lines.push(format!("  - {kind}"));
    }
    for (kind, said) in now
        .iter()
        .filter(|(kind, said)| kind != "Ready" && held(before, kind).as_ref() != Some(said))
    {
        lines.push(format!("  + {kind} {said}"));
    }
    lines.join("\n")
}

/// The first line of a message, without what differs from one run of the test to the next.
fn lasting(message: &str, dir: &std::path::Path) -> String {
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
