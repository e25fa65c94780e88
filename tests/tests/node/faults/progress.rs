//! The progress of a stack: until its moment, while it is held, and after its release.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use sluice_runtime::sync::lock;

use super::ledger::{self, Orphan};
use super::moment::{Moment, Release};
use super::runs::text;
use super::stack::{Stack, failure};
use super::status::StackStatus;
use super::{POLL_INTERVAL, Trial, pods};

/// How long a held provider may need to record that it works. It does so each second.
const RECORD_LIMIT: Duration = Duration::from_secs(30);

impl Stack {
    /// Returns whether the moment has come.
    pub(super) async fn has_reached_moment(&self) -> Result<bool, String> {
        let Trial { fault, moment, .. } = self.trial;
        if let Some(step) = moment.step() {
            return Ok(self.provider.calls().iter().any(|call| call == step));
        }
        if let Some(is_reached) = self.holds.is_reached() {
            return Ok(is_reached);
        }
        if moment == Moment::Recorded {
            // There is no Secret before the first write.
            return Ok(self
                .recorded_resources()
                .await
                .is_ok_and(|recorded| recorded.len() == 2));
        }
        if lock(&self.start).is_none() {
            let has_started = |pod: &Pod| !fault.kills_processes() || pods::container_id(pod).is_some();
            if self.running_pods().await?.iter().any(has_started) {
                *lock(&self.start) = Some(Instant::now());
            }
        }
        let wait = match moment {
            Moment::Any => self.trial.delay,
            _ => Duration::ZERO,
        };
        let start = *lock(&self.start);
        Ok(start.is_some_and(|start| start.elapsed() >= wait))
    }

    /// The fault has begun, and lasts: the run continues now if it continues during the fault.
    pub(super) fn begin(&self) -> Result<(), String> {
        match self.trial.release {
            Release::During => self.release(),
            Release::After => Ok(()),
        }
    }

    /// The provider and the servers continue the steps that they hold, and are neither slow nor faulty any more.
    pub(super) fn release(&self) -> Result<(), String> {
        self.holds.open();
        let behaviour = self.provider.set_behaviour(&json!({}));
        behaviour.map_err(failure("set the behaviour of the provider"))
    }

    /// At the end of a fault that ends no CLI, the provider still works in the step that it holds.
    pub(super) async fn check_held(&self) -> Result<(), String> {
        let Trial { fault, moment, .. } = self.trial;
        let Some(step) = moment.step() else {
            return Ok(());
        };
        if self.trial.release == Release::During || !fault.ends_no_cli() {
            return Ok(());
        }
        let since = i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
        let deadline = Instant::now() + RECORD_LIMIT;
        loop {
            let found = self.provider.ledger().map_err(failure("read the ledger"))?;
            let held = ledger::check_held(&found, step, since);
            if held.is_ok() || Instant::now() > deadline {
                return held;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the name of the run that has not ended.
    pub(super) async fn active_run(&self) -> Result<Option<String>, String> {
        let runs = self.runs().await?;
        let mut active = runs
            .iter()
            .filter(|run| text(run, "/status/finishedAt").is_empty());
        Ok(active.next().map(|run| text(run, "/metadata/name").to_owned()))
    }

    /// Removes the resources that a killed apply created and could not record, as a user would who reads the error.
    pub(super) fn remove_orphans(&self, status: &StackStatus) -> Result<Vec<Orphan>, String> {
        let message = status.ready_message();
        let mut removed = Vec::new();
        for (name, random) in self.made_resources()? {
            let error = format!("thing \"{name}\" exists already");
            if message.contains(&error) && self.provider.delete_resource(&name).is_ok() {
                removed.push((name, random));
            }
        }
        Ok(removed)
    }
}
