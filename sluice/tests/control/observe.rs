//! Observing conditions, runs, events and values. Every wait has a timeout.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;
use sluice_tf_core::process_lock::is_locked;

use crate::environment::{TIMEOUT, TestEnvironment};

impl TestEnvironment {
    /// Waits until the stack is gone.
    pub(crate) async fn wait_gone(&self, name: &str) {
        self.wait_for_condition(name, "to be gone", |stack| stack.is_none())
            .await;
    }

    /// Waits until the stack meets a condition.
    pub(crate) async fn wait_for(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&Terraform) -> bool,
    ) -> Terraform {
        let result = self
            .wait_for_condition(name, what, |stack| stack.is_some_and(&condition))
            .await;
        result.unwrap()
    }

    /// Restarts a broken watch, which says nothing about the stack.
    async fn wait_for_condition(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(Option<&Terraform>) -> bool,
    ) -> Option<Terraform> {
        let search = async {
            loop {
                let api: Api<Terraform> = self.api();
                match Box::pin(await_condition(api, name, &condition)).await {
                    Ok(stack) => return stack,
                    Err(broken) => eprintln!("{name}, {what}: {broken}"),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(TIMEOUT, search).await {
            Ok(stack) => stack,
            Err(_) => self.fail_timeout(name, what).await,
        }
    }

    /// Waits until `Ready` of the current generation is `<status> <reason> <beginning of the message>`.
    pub(crate) async fn wait_ready(&self, name: &str, beginning: &str) -> Terraform {
        self.wait_for(name, beginning, |stack| {
            let observed = stack.status.as_ref().and_then(|s| s.observed_generation);
            observed == stack.metadata.generation && condition(stack, "Ready").starts_with(beginning)
        })
        .await
    }

    /// Waits until the current spec has been reconciled. Use it before a commit that must not be observed before an edit: stacks and
    /// sources have separate watches, and either may be ahead.
    pub(crate) async fn wait_observed(&self, name: &str) {
        self.wait_ready(name, "").await;
    }

    /// Waits until a run of the stack meets a condition.
    pub(crate) async fn wait_run(
        &self,
        name: &str,
        what: &str,
        condition: impl Fn(&TerraformRun) -> bool,
    ) -> TerraformRun {
        let search = async {
            loop {
                let runs = self.runs(name).await;
                if let Some(run) = runs.into_iter().find(&condition) {
                    return run;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(TIMEOUT, search).await {
            Ok(run) => run,
            Err(_) => self.fail_timeout(name, what).await,
        }
    }

    async fn fail_timeout(&self, name: &str, what: &str) -> ! {
        let api: Api<Terraform> = self.api();
        let stack = api.get_opt(name).await.unwrap();
        let runs = self.runs(name).await;
        let newest = runs.last().and_then(|run| run.status.as_ref());
        let message = newest.map(|status| status.message.clone());
        let runs: Vec<_> = runs.iter().map(line).collect();
        panic!(
            "{name} did not reach: {what}\n{:#?}\n{runs:#?}\n{message:?}",
            stack.map(|s| s.status)
        );
    }

    /// Waits until no runner is active: runners clean up after recording their end.
    pub(crate) async fn wait_until_idle(&self) {
        let runs = self.path(&self.executor_settings.root).join("runs");
        let works = || {
            let files = std::fs::read_dir(&runs)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            let mut locks = files.filter(|file| file.extension().is_some_and(|ending| ending == "lock"));
            locks.any(|lock| is_locked(&lock).unwrap())
        };
        let waiting = async {
            while works() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.unwrap();
    }

    /// Returns the runs of a stack, oldest first.
    pub(crate) async fn runs(&self, name: &str) -> Vec<TerraformRun> {
        let api: Api<TerraformRun> = self.api();
        let mut runs = api.list(&ListParams::default()).await.unwrap().items;
        runs.retain(|run| run.spec.terraform.name == name);
        runs.sort_by_key(number);
        runs
    }

    /// Returns the runs of a stack, one line each.
    pub(crate) async fn history(&self, name: &str) -> String {
        let lines: Vec<_> = self.runs(name).await.iter().map(line).collect();
        lines.join("\n")
    }

    /// Returns the reasons of a stack's events in the order of their first occurrence.
    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let api: Api<Event> = self.api();
        let mut events = api.list(&ListParams::default()).await.unwrap().items;
        events.retain(|event| event.involved_object.name.as_deref() == Some(name));
        events.sort_by_key(|event| {
            event
                .metadata
                .resource_version
                .as_ref()
                .and_then(|v| v.parse::<u64>().ok())
        });
        let text = |event: &Event| {
            let kind = event.type_.clone().unwrap_or_default();
            format!("{kind} {}", event.reason.clone().unwrap_or_default())
        };
        events.iter().map(text).collect()
    }

    /// Waits for an event of an object whose name contains this: events are posted asynchronously.
    pub(crate) async fn wait_for_event_about(&self, part: &str) {
        let api: Api<Event> = self.api();
        let search = async {
            loop {
                let events = api.list(&ListParams::default()).await.unwrap().items;
                let mut names = events
                    .iter()
                    .filter_map(|event| event.involved_object.name.as_ref());
                if names.any(|name| name.contains(part)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let result = tokio::time::timeout(TIMEOUT, search).await;
        assert!(result.is_ok(), "no event of {part}");
    }

    /// Waits for an event with this reason.
    pub(crate) async fn wait_event(&self, name: &str, reason: &str) {
        let search = async {
            while !self
                .events(name)
                .await
                .iter()
                .any(|event| event.ends_with(reason))
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let result = tokio::time::timeout(TIMEOUT, search).await.is_ok();
        assert!(result, "no event {reason}: {:?}", self.events(name).await);
    }

    /// Returns the text under a key of a Secret.
    pub(crate) async fn value(&self, secret: &str, key: &str) -> Option<String> {
        let api: Api<Secret> = self.api();
        let found = api.get_opt(secret).await.unwrap()?;
        let bytes = found.data?.remove(key)?;
        Some(String::from_utf8(bytes.0).unwrap())
    }

    /// Waits until no bundle of a run remains.
    pub(crate) async fn wait_until_no_bundles(&self) {
        let api: Api<Secret> = self.api();
        let search = async {
            while !bundles(&api).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let are_removed = tokio::time::timeout(TIMEOUT, search).await.is_ok();
        assert!(
            are_removed,
            "bundles of ended runs remain: {:?}",
            bundles(&api).await
        );
    }

    /// Returns the Terraform state of a stack.
    pub(crate) async fn state(&self, name: &str) -> String {
        let api: Api<Secret> = self.api();
        let secret = api.get(&format!("tfstate-default-{name}")).await.unwrap();
        let mut text = String::new();
        let bytes = secret.data.unwrap().remove("tfstate").unwrap().0;
        flate2::read::GzDecoder::new(&bytes[..])
            .read_to_string(&mut text)
            .unwrap();
        text
    }
}

async fn bundles(api: &Api<Secret>) -> Vec<String> {
    let secrets = api.list(&ListParams::default()).await.unwrap().items;
    let names = secrets.iter().map(ResourceExt::name_any);
    names.filter(|name| name.ends_with("-bundle")).collect()
}

/// Returns `<status> <reason> <message>` of a condition; empty if it is absent.
pub(crate) fn condition(stack: &Terraform, kind: &str) -> String {
    let conditions = stack
        .status
        .as_ref()
        .map(|s| s.conditions.as_slice())
        .unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.type_ == kind);
    found
        .map(|c| format!("{} {} {}", c.status, c.reason, c.message))
        .unwrap_or_default()
}

/// Returns the id of the pending plan.
pub(crate) fn pending(stack: &Terraform) -> String {
    let plan = stack.status.as_ref().and_then(|s| s.plan.as_ref());
    plan.map(|plan| plan.pending.clone()).unwrap_or_default()
}

/// Returns the number at the end of a run's name.
pub(crate) fn number(run: &TerraformRun) -> u64 {
    run.name_any().rsplit('-').next().unwrap().parse().unwrap()
}

/// Returns `<number> <action> <trigger> <attempt>: <phase> <reason> <changes>`.
fn line(run: &TerraformRun) -> String {
    let status = run.status.clone().unwrap_or_default();
    let number = number(run);
    let (action, trigger) = (run.spec.action.as_str(), run.spec.trigger.as_str());
    let destroy = if run.spec.destroy { " destroy" } else { "" };
    let (phase, reason) = (status.phase.as_str(), status.reason);
    format!(
        "{number} {action}{destroy} {trigger} {}: {phase} {reason} {}",
        run.spec.attempt, status.changes
    )
    .trim_end()
    .to_owned()
}

/// Waits until a file exists.
pub(crate) async fn wait_for_file(path: &Path) {
    let search = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(
        tokio::time::timeout(TIMEOUT, search).await.is_ok(),
        "{} never appeared",
        path.display()
    );
}
