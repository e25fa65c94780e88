//! Looking at the world: conditions, runs, events, values. Every wait has an end.

use crate::world::{DEADLINE, World};
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::{Api, ResourceExt, api::ListParams, runtime::wait::await_condition};
use sluice_api::{run::TerraformRun, terraform::Terraform};
use sluice_tf_runner::process_lock::is_locked;
use std::{io::Read, path::Path, time::Duration};

impl World {
    /// Waits until the stack is gone.
    pub(crate) async fn gone(&self, name: &str) {
        self.met(name, "to be gone", |stack| stack.is_none()).await;
    }

    /// Waits until something holds of the stack.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Terraform) -> bool,
    ) -> Terraform {
        let met = self.met(name, what, |stack| stack.is_some_and(&holds)).await;
        met.unwrap()
    }

    /// A watch that breaks is begun anew: it says nothing of the stack.
    async fn met(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(Option<&Terraform>) -> bool,
    ) -> Option<Terraform> {
        let looking = async {
            loop {
                let api: Api<Terraform> = self.api();
                match Box::pin(await_condition(api, name, &holds)).await {
                    Ok(stack) => return stack,
                    Err(broken) => eprintln!("{name}, {what}: {broken}"),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(DEADLINE, looking).await {
            Ok(stack) => stack,
            Err(_) => self.give_up(name, what).await,
        }
    }

    /// Waits until `Ready` is as `<status> <reason> <beginning of the message>` says, for the present generation.
    pub(crate) async fn ready(&self, name: &str, beginning: &str) -> Terraform {
        self.until(name, beginning, |stack| {
            let observed = stack.status.as_ref().and_then(|s| s.observed_generation);
            observed == stack.metadata.generation && condition(stack, "Ready").starts_with(beginning)
        })
        .await
    }

    /// Waits until a pass has seen the present spec and rests. A commit that must not be seen before an edit comes after
    /// this: stacks and sources are watched apart, and either watch may be ahead.
    pub(crate) async fn observed(&self, name: &str) {
        self.ready(name, "").await;
    }

    /// Waits until a run of the stack is as wanted.
    pub(crate) async fn run(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&TerraformRun) -> bool,
    ) -> TerraformRun {
        let looking = async {
            loop {
                let runs = self.runs(name).await;
                if let Some(run) = runs.into_iter().find(&holds) {
                    return run;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(DEADLINE, looking).await {
            Ok(run) => run,
            Err(_) => self.give_up(name, what).await,
        }
    }

    async fn give_up(&self, name: &str, what: &str) -> ! {
        let api: Api<Terraform> = self.api();
        let stack = api.get_opt(name).await.unwrap();
        let runs: Vec<_> = self.runs(name).await.iter().map(line).collect();
        panic!(
            "{name} was to be: {what}\n{:#?}\n{runs:#?}",
            stack.map(|s| s.status)
        );
    }

    /// Waits until no runner is left: they clear their directories after their end is on record.
    pub(crate) async fn at_rest(&self) {
        let runs = self.path(&self.site.root).join("runs");
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
        tokio::time::timeout(DEADLINE, waiting).await.unwrap();
    }

    /// The runs of a stack, oldest first.
    pub(crate) async fn runs(&self, name: &str) -> Vec<TerraformRun> {
        let api: Api<TerraformRun> = self.api();
        let mut runs = api.list(&ListParams::default()).await.unwrap().items;
        runs.retain(|run| run.spec.terraform.name == name);
        runs.sort_by_key(number);
        runs
    }

    /// The runs of a stack, one line each.
    pub(crate) async fn history(&self, name: &str) -> String {
        let lines: Vec<_> = self.runs(name).await.iter().map(line).collect();
        lines.join("\n")
    }

    /// The reasons of a stack's events, in order of their first telling.
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

    /// Waits for an event of an object whose name contains this: events are posted behind what they tell of.
    pub(crate) async fn event_of(&self, part: &str) {
        let api: Api<Event> = self.api();
        let looking = async {
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
        let told = tokio::time::timeout(DEADLINE, looking).await;
        assert!(told.is_ok(), "no event of {part}");
    }

    /// Waits for an event of this reason.
    pub(crate) async fn event(&self, name: &str, wanted: &str) {
        let looking = async {
            while !self
                .events(name)
                .await
                .iter()
                .any(|event| event.ends_with(wanted))
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let told = tokio::time::timeout(DEADLINE, looking).await.is_ok();
        assert!(told, "no event {wanted}: {:?}", self.events(name).await);
    }

    /// The text under a key of a Secret.
    pub(crate) async fn value(&self, secret: &str, key: &str) -> Option<String> {
        let api: Api<Secret> = self.api();
        let found = api.get_opt(secret).await.unwrap()?;
        let bytes = found.data?.remove(key)?;
        Some(String::from_utf8(bytes.0).unwrap())
    }

    /// Waits until no Secret is left that a run was given.
    pub(crate) async fn no_bundles(&self) {
        let api: Api<Secret> = self.api();
        let looking = async {
            while !bundles(&api).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let gone = tokio::time::timeout(DEADLINE, looking).await.is_ok();
        assert!(
            gone,
            "what ended runs were given is kept: {:?}",
            bundles(&api).await
        );
    }

    /// The Terraform state of a stack.
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

/// `<status> <reason> <message>` of a condition; empty if it is not there.
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

/// The id of the plan that waits.
pub(crate) fn pending(stack: &Terraform) -> String {
    let plan = stack.status.as_ref().and_then(|s| s.plan.as_ref());
    plan.map(|plan| plan.pending.clone()).unwrap_or_default()
}

/// The number at the end of a run's name.
pub(crate) fn number(run: &TerraformRun) -> u64 {
    run.name_any().rsplit('-').next().unwrap().parse().unwrap()
}

/// `<number> <action> <trigger> <attempt>: <phase> <reason> <changes>`.
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

/// Waits for a file that something under test makes.
pub(crate) async fn appears(path: &Path) {
    let looking = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(
        tokio::time::timeout(DEADLINE, looking).await.is_ok(),
        "{} never appeared",
        path.display()
    );
}
