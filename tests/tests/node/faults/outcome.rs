//! The checks after the stack of a trial is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::Value;
use sluice_runtime::sync::lock;
use sluice_tests::scenario::retry;

use super::ledger::{self, Orphan};
use super::stack::{Stack, failure};
use super::{Trial, runs};

/// How long nothing of a deleted stack may work.
const QUIET: Duration = Duration::from_secs(3);

impl Stack {
    /// Compares the provider's resources and its ledger with state and outputs, and reads the runs. `active` is the run that was active when
    /// the fault began. Then removes the stack, and checks that nothing is left.
    pub(super) async fn check_outcome(&self, active: Option<&str>, orphans: &[Orphan]) -> Result<(), String> {
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
        self.check_runs(active).await?;
        self.check_evidence().await?;
        self.check_leftovers().await?;
        // After the last run.
        let found = self.provider.ledger().map_err(failure("read the ledger"))?;
        if !self.trial.fault.may_overlap() {
            ledger::check_overlap(&found)?;
        }
        ledger::check_creations(&found, &recorded, orphans, self.trial.fault.creations())
    }

    /// Returns the computed value of each resource of the provider: it differs each time the resource is made.
    pub(super) fn made_resources(&self) -> Result<BTreeMap<String, String>, String> {
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

    /// Checks the runs, and that a fault that may add none has added none.
    async fn check_runs(&self, active: Option<&str>) -> Result<(), String> {
        let Trial { fault, is_manual, .. } = self.trial;
        let all = self.runs().await?;
        let approved = is_manual.then(|| lock(&self.approved).clone());
        let mut checked = runs::check_runs(&all, approved.as_ref());
        if checked.is_ok() && fault.adds_no_run() {
            let found = self.provider.ledger().map_err(failure("read the ledger"))?;
            let pods: BTreeSet<_> = found.into_iter().map(|entry| entry.pod).collect();
            checked = runs::check_undisturbed(&all, active, is_manual, &pods);
        }
        match checked {
            Err(error) => Err(format!("{error}: {}", self.describe().await)),
            Ok(()) => Ok(()),
        }
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
        let found = self.provider.ledger().map_err(failure("read the ledger"))?;
        ledger::check_overlap(&found)?;
        ledger::check_created_once(&found)
    }
}
