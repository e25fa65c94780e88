//! What must hold when the stack of a trial is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;
use sluice_tests::scenario::retry;

use super::stack::{Stack, failure};
use super::{LIMIT, POLL_INTERVAL, Trial};

/// How long nothing of a deleted stack may work.
const QUIET: Duration = Duration::from_secs(3);

impl Stack {
    /// Compares the provider's resources with state and outputs, and reads runs, lock and pods.
    pub(super) async fn check_outcome(&self) -> Result<(), String> {
        let made = self.made_resources()?;
        let names: Vec<_> = made.keys().map(String::as_str).collect();
        if names != ["first", "second"] {
            return Err(format!("the resources are {names:?}: {}", self.describe().await));
        }
        let recorded = self.recorded_resources().await?;
        if made != recorded {
            return Err(format!("made: {made:?}; in the state: {recorded:?}"));
        }
        let output = self.secret(&format!("{}-outputs", self.name), "first").await?;
        if Some(&String::from_utf8_lossy(&output).into_owned()) != made.get("first") {
            return Err(format!(
                "the output is {:?}: {made:?}",
                String::from_utf8_lossy(&output)
            ));
        }
        self.check_runs().await?;
        self.check_evidence().await?;
        self.check_lock().await?;
        self.check_leftovers().await
    }

    /// Returns the computed value of each resource of the provider: it differs each time the resource is made.
    fn made_resources(&self) -> Result<BTreeMap<String, String>, String> {
        let names = self.provider.resources().map_err(failure("list the resources"))?;
        let folder = self.provider.data_dir().join("things");
        let mut made = BTreeMap::new();
        for name in names {
            let text = std::fs::read_to_string(folder.join(format!("{name}.json")));
            let resource: Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
            made.insert(name, resource["random"].as_str().unwrap_or_default().to_owned());
        }
        Ok(made)
    }

    /// Returns the computed value of each resource in the state.
    pub(super) async fn recorded_resources(&self) -> Result<BTreeMap<String, String>, String> {
        let packed = self
            .secret(&format!("tfstate-default-{}", self.name), "tfstate")
            .await?;
        let state: Value = serde_json::from_reader(flate2::read::GzDecoder::new(packed.as_slice()))
            .map_err(failure("read the state"))?;
        let mut recorded = BTreeMap::new();
        for resource in state["resources"].as_array().into_iter().flatten() {
            let attributes = &resource["instances"][0]["attributes"];
            let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
            recorded.insert(text("name"), text("random"));
        }
        Ok(recorded)
    }

    async fn secret(&self, name: &str, key: &str) -> Result<Vec<u8>, String> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = retry(|| api.get(name)).await;
        let secret = secret.map_err(failure(&format!("read the Secret {name}")))?;
        let value = secret.data.and_then(|mut data| data.remove(key));
        value
            .map(|bytes| bytes.0)
            .ok_or_else(|| format!("the Secret {name} has no {key}"))
    }

    /// Each run has ended, none began before the one before it ended, and none applied a plan that was not approved.
    async fn check_runs(&self) -> Result<(), String> {
        let mut last_end = String::new();
        for run in self.runs().await? {
            let text = |pointer: &str| {
                run.pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let (name, end) = (text("/metadata/name"), text("/status/finishedAt"));
            let start = text("/status/startedAt");
            if end.is_empty() {
                return Err(format!("{name} has not ended: {}", self.describe().await));
            }
            // RFC 3339 in UTC, so the order of texts is that of times.
            if !start.is_empty() && start < last_end {
                return Err(format!(
                    "{name} began at {start}, before the end of another: {last_end}"
                ));
            }
            last_end = last_end.max(end);
            let has_applied = run.pointer("/status/attemptedApply") == Some(&Value::Bool(true));
            let plan = text("/spec/plan/id");
            if self.trial.is_manual && has_applied && !self.approved.lock().unwrap().contains(&plan) {
                return Err(format!("{name} applied {plan:?}, which was not approved"));
            }
        }
        Ok(())
    }

    /// A run reports what broke.
    async fn check_evidence(&self) -> Result<(), String> {
        let Trial { fault, moment, .. } = self.trial;
        let Some(evidence) = fault.evidence(moment) else {
            return Ok(());
        };
        let says = |run: &Value| {
            let status = &run["status"];
            let texts = [&status["reason"], &status["message"]];
            texts
                .iter()
                .any(|text| text.as_str().is_some_and(|text| text.contains(evidence)))
        };
        if self.runs().await?.iter().any(says) {
            return Ok(());
        }
        Err(format!("no run says {evidence:?}: {}", self.describe().await))
    }

    /// Nothing of a deleted stack works any more, and no resource was made twice. Its state went with its namespace.
    pub(super) async fn check_deleted(&self) -> Result<(), String> {
        let calls = self.provider.calls();
        tokio::time::sleep(QUIET).await;
        if self.provider.calls() != calls {
            return Err(format!(
                "the provider is still called: {:?}",
                self.provider.calls()
            ));
        }
        for step in ["create first", "create second"] {
            if calls.iter().filter(|call| *call == step).count() > 1 {
                return Err(format!("{step:?} more than once: {calls:?}"));
            }
        }
        Ok(())
    }

    /// Nobody holds the lock of the state.
    async fn check_lock(&self) -> Result<(), String> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = format!("lock-tfstate-default-{}", self.name);
        let lease = retry(|| api.get_opt(&name)).await;
        let lease = lease.map_err(failure("read the lock of the state"))?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        match holder {
            Some(holder) if !holder.is_empty() => Err(format!("{holder} holds the lock of the state")),
            _ => Ok(()),
        }
    }

    /// What only an active run needs is removed: its pod, its bundle, a plan before the last one, and a Job that works.
    async fn check_leftovers(&self) -> Result<(), String> {
        // A fault of another trial may keep the controllers of the cluster away.
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = self.leftovers().await?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("left behind: {left:?}"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn leftovers(&self) -> Result<Vec<String>, String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = ListParams::default();
        let secrets = retry(|| secrets.list(&all))
            .await
            .map_err(failure("list the Secrets"))?;
        let jobs = retry(|| jobs.list(&all))
            .await
            .map_err(failure("list the Jobs"))?;
        let names: BTreeSet<_> = secrets.items.iter().map(ResourceExt::name_any).collect();
        let mut left: Vec<_> = names
            .iter()
            .filter(|name| name.contains("-bundle"))
            .cloned()
            .collect();
        let plans = names.iter().filter(|name| name.starts_with("tfplan-"));
        let plans = plans.filter_map(|name| name.rsplit_once('-'));
        let plans: BTreeSet<_> = plans.map(|(plan, _)| plan.to_owned()).collect();
        if plans.len() > 1 {
            left.extend(plans);
        }
        let works = |job: &&Job| {
            job.status
                .as_ref()
                .is_some_and(|status| status.active.unwrap_or(0) > 0)
        };
        let jobs = jobs.items.iter().filter(works).map(ResourceExt::name_any);
        left.extend(jobs);
        left.extend(self.running_pods().await?.iter().map(ResourceExt::name_any));
        Ok(left)
    }
}
