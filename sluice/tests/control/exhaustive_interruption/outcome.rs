//! The outcome of a scenario as text that does not depend on faults.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt as _};
use serde_json::Value;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;

use super::stage::ScenarioEnvironment;
use crate::environment::NAMESPACE;

impl ScenarioEnvironment {
    /// Returns the current outcome.
    pub(crate) async fn outcome(&self) -> String {
        let mut lines = Vec::new();
        for stack in self.list::<Terraform>().await {
            lines.extend(describe_status(&stack));
            lines.push(format!("  state {}", self.resources(&stack.name_any()).await));
        }
        let mut secrets = self.list::<Secret>().await;
        lines.extend(excessive_copies(&secrets));
        secrets.retain(|secret| !is_state_copy(secret));
        let counted = |secret: &&Secret| !is_of_a_run(secret) && !is_stored_configuration(secret);
        lines.extend(secrets.iter().filter(counted).map(describe_secret));
        lines.extend(stored_configurations(
            secrets.iter().filter(|secret| is_stored_configuration(secret)),
        ));
        // Their number depends on the number of runs, which interruptions increase.
        let of_runs: BTreeSet<_> = secrets
            .iter()
            .filter(|secret| is_of_a_run(secret))
            .map(describe_secret)
            .collect();
        lines.extend(of_runs);
        for map in self.list::<ConfigMap>().await {
            lines.push(format!("config map {}", kind_of(&map.name_any())));
        }
        for lease in self.list::<Lease>().await {
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
            lines.push(format!(
                "lock {} {}",
                lease.name_any(),
                holder.unwrap_or_default()
            ));
        }
        let runs = self.list::<TerraformRun>().await;
        let going = runs
            .iter()
            .filter(|run| run.status.as_ref().is_none_or(|s| !s.phase.is_final()));
        lines.extend(going.map(|run| format!("run {} goes on", run.name_any())));
        let things = self.trial.resources().unwrap();
        let content = |name: &String| self.trial.content(name).unwrap_or_default();
        let outputs: Vec<_> = things
            .iter()
            .map(|name| format!("{name}={}", content(name)))
            .collect();
        lines.push(format!("things [{}]", outputs.join(" ")));
        lines.push(format!("work {:?}", self.files_in_work()));
        lines.join("\n")
    }

    async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.env.client.clone(), NAMESPACE);
        let mut items = api.list(&ListParams::default()).await.unwrap().items;
        items.sort_by_key(|item| kind_of(&item.name_any()));
        items
    }

    /// Returns the resources of a state without their random values.
    async fn resources(&self, name: &str) -> String {
        let api: Api<Secret> = self.env.api();
        let state = format!("tfstate-default-{name}");
        if api.get_opt(&state).await.unwrap().is_none() {
            return "none".to_owned();
        }
        let state: Value = serde_json::from_str(&self.env.state(name).await).unwrap();
        let mut found = BTreeMap::new();
        for resource in state["resources"].as_array().unwrap() {
            for instance in resource["instances"].as_array().unwrap() {
                let address = format!("{}.{}", resource["type"], resource["name"]).replace('"', "");
                let content = &instance["attributes"]["content"];
                let tainted = &instance["status"];
                found.insert(address, format!("{content} {tainted}"));
            }
        }
        format!("{found:?}")
    }

    /// Returns the files in the working directory, except locks and logs of stacks.
    fn files_in_work(&self) -> BTreeSet<String> {
        let Ok(entries) = std::fs::read_dir(self.env.path("stage/runs/work")) else {
            return BTreeSet::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        names.collect()
    }
}

/// Returns conditions and fields of a status, except names of runs, times and serials.
fn describe_status(stack: &Terraform) -> Vec<String> {
    let status = stack.status.clone().unwrap_or_default();
    let mut lines = vec![format!(
        "stack {} deleted {} finalizers {:?}",
        stack.name_any(),
        stack.metadata.deletion_timestamp.is_some(),
        stack.finalizers()
    )];
    let mut conditions = status.conditions.clone();
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    for condition in conditions {
        lines.push(format!(
            "  {} {} {}",
            condition.type_, condition.status, condition.reason
        ));
    }
    let plan = status.plan.unwrap_or_default();
    lines.push(format!(
        "  applied {} attempted {} planned {} waits {} failures {} outputs {:?}",
        status.last_applied_revision,
        status.last_attempted_revision,
        status.last_planned_revision,
        !plan.pending.is_empty(),
        status.reconciliation_failures,
        status.available_outputs,
    ));
    lines
}

/// Whether a run owns the Secret.
fn is_of_a_run(secret: &Secret) -> bool {
    let mut owners = secret.owner_references().iter();
    owners.any(|owner| owner.kind == TerraformRun::kind(&()))
}

/// Whether the Secret is a copy of a state. Interruptions increase the number of applies, and so that of copies.
fn is_state_copy(secret: &Secret) -> bool {
    secret.name_any().starts_with("tfcopy-")
}

/// Returns the stacks with more copies of their state than remain.
fn excessive_copies(secrets: &[Secret]) -> Vec<String> {
    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    for copy in secrets.iter().filter(|secret| is_state_copy(secret)) {
        *copies.entry(kind_of(&copy.name_any())).or_default() += 1;
    }
    let excessive = copies.into_iter().filter(|(_, count)| *count > 3);
    excessive
        .map(|(kind, count)| format!("{count} secrets {kind}"))
        .collect()
}

/// Whether the Secret is part of a stored configuration.
fn is_stored_configuration(secret: &Secret) -> bool {
    secret.name_any().starts_with("tfapplied-")
}

/// Returns the stored configurations. After an interrupted apply, which may have changed resources, it and the previous one are stored
/// until the next apply: two are equivalent to one, a third is an error.
fn stored_configurations<'a>(parts: impl Iterator<Item = &'a Secret>) -> Vec<String> {
    let mut applies: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for part in parts {
        let name = part.name_any();
        // Parts of one configuration have its name and a number.
        let whole = name
            .rsplit_once('-')
            .filter(|(_, number)| number.len() < 10 && number.parse::<u32>().is_ok());
        let whole = whole.map_or(name.as_str(), |(whole, _)| whole);
        let applies = applies.entry(kind_of(&name)).or_default();
        applies.insert(whole.to_owned());
    }
    let count = |applies: &BTreeSet<String>| if applies.len() > 2 { applies.len() } else { 1 };
    let lines = applies
        .iter()
        .map(|(kind, applies)| format!("secret {kind} of {} applies", count(applies)));
    lines.collect()
}

/// Returns the kind of a Secret; outputs with their values.
fn describe_secret(secret: &Secret) -> String {
    let name = secret.name_any();
    if !name.ends_with("-outputs") {
        return format!("secret {}", kind_of(&name));
    }
    let data = secret.data.clone().unwrap_or_default();
    let values: BTreeMap<_, _> = data
        .into_iter()
        .map(|(key, value)| (key, String::from_utf8(value.0).unwrap()))
        .collect();
    format!("secret {name} {values:?}")
}

/// Removes varying parts from a name: digests, even without a digit, and numbers.
fn kind_of(name: &str) -> String {
    let is_own = |part: &&str| {
        let is_digest = part.len() == 10 && part.chars().all(|c| c.is_ascii_hexdigit());
        !is_digest && !part.chars().any(|c| c.is_ascii_digit())
    };
    name.split('-').filter(is_own).collect::<Vec<_>>().join("-")
}

#[test]
fn digests_are_removed_from_names_in_any_form() {
    for name in [
        "tfapplied-default-net-dbcfbfdccd",
        "tfapplied-default-net-0123456789",
        "tfapplied-default-net-0123456789-0",
    ] {
        assert_eq!(kind_of(name), "tfapplied-default-net");
    }
}
