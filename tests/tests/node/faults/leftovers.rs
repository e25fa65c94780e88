//! Finds objects that a stack leaves behind: after its last run, and after its removal.

use std::collections::BTreeSet;
use std::time::Instant;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use sluice_tests::scenario::retry;

use super::manifests::INPUTS;
use super::stack::{Stack, failure, gvk};
use super::{LIMIT, POLL_INTERVAL};

/// The kinds of objects that a stack and its runs have: group, version, kind.
const KINDS: [(&str, &str, &str); 7] = [
    ("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"),
    ("infra.sluice.dev", "v1alpha1", "TerraformRun"),
    ("batch", "v1", "Job"),
    ("", "v1", "Pod"),
    ("", "v1", "Secret"),
    ("", "v1", "ConfigMap"),
    ("coordination.k8s.io", "v1", "Lease"),
];

/// The ConfigMap with the authority of the API, which Kubernetes creates in each namespace.
const API_AUTHORITY: &str = "kube-root-ca.crt";

/// An object: its kind and its name.
type Object = (&'static str, String);

impl Stack {
    /// What only an active run needs is removed: its pod, its bundle, a plan before the last one, and a Job that works. Then removes the stack,
    /// and waits until what belongs to it is removed too.
    pub(super) async fn check_leftovers(&self) -> Result<(), String> {
        self.wait_until_empty("left behind by the runs", async || self.leftovers().await)
            .await?;
        self.check_lock().await?;
        let stacks = self.api(&gvk("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"));
        let how = DeleteParams::default();
        let removed = retry(|| stacks.delete(&self.name, &how)).await;
        removed.map_err(failure("remove the stack"))?;
        self.wait_until_empty("left behind by the stack", async || {
            Ok(leftovers_of_removed_stack(&self.name, &self.objects().await?))
        })
        .await?;
        self.check_lock().await
    }

    /// Waits until nothing is left. A fault of another trial may keep the controllers of the cluster away.
    async fn wait_until_empty(
        &self,
        what: &str,
        find: impl AsyncFn() -> Result<Vec<String>, String>,
    ) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = find().await?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{what}: {left:?}: {}", self.describe().await));
            }
            tokio::time::sleep(POLL_INTERVAL * 5).await;
        }
    }

    /// The lock of the state is free.
    async fn check_lock(&self) -> Result<(), String> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = lock_name(&self.name);
        let lease = retry(|| api.get_opt(&name)).await;
        let lease = lease.map_err(failure("read the lock of the state"))?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        match holder {
            Some(holder) if !holder.is_empty() => Err(format!("{holder} holds the lock of the state")),
            _ => Ok(()),
        }
    }

    async fn leftovers(&self) -> Result<Vec<String>, String> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = ListParams::default();
        let jobs = retry(|| jobs.list(&all)).await;
        let jobs = jobs.map_err(failure("list the Jobs"))?;
        let mut left = leftovers_of_runs(&self.objects().await?, &jobs.items);
        left.extend(self.running_pods().await?.iter().map(ResourceExt::name_any));
        Ok(left)
    }

    /// Returns the objects of [`KINDS`] in the namespace.
    async fn objects(&self) -> Result<Vec<Object>, String> {
        let (mut objects, all) = (Vec::new(), ListParams::default());
        for (group, version, kind) in KINDS {
            let api = self.api(&gvk(group, version, kind));
            let found = retry(|| api.list(&all)).await;
            let found = found.map_err(failure(&format!("list each {kind}")))?;
            objects.extend(found.items.iter().map(|object| (kind, object.name_any())));
        }
        Ok(objects)
    }
}

/// Returns the name of the lock of the state, as the backend of the CLI names it.
fn lock_name(stack: &str) -> String {
    format!("lock-tfstate-default-{stack}")
}

/// Returns what is left of runs that have ended: bundles, plans before the last one, and Jobs that work or stay for ever.
fn leftovers_of_runs(objects: &[Object], jobs: &[Job]) -> Vec<String> {
    let secrets = objects.iter().filter(|(kind, _)| *kind == "Secret");
    let names: BTreeSet<_> = secrets.map(|(_, name)| name.as_str()).collect();
    let mut left: Vec<_> = names
        .iter()
        .filter(|name| name.contains("-bundle"))
        .map(|name| (*name).to_owned())
        .collect();
    let plans = names.iter().filter(|name| name.starts_with("tfplan-"));
    let plans = plans.filter_map(|name| name.rsplit_once('-'));
    let plans: BTreeSet<_> = plans.map(|(plan, _)| plan.to_owned()).collect();
    if plans.len() > 1 {
        left.extend(plans);
    }
    let stays = |job: &&Job| {
        let works = job
            .status
            .as_ref()
            .is_some_and(|status| status.active.unwrap_or(0) > 0);
        let spec = job.spec.as_ref();
        works || spec.is_none_or(|spec| spec.ttl_seconds_after_finished.is_none())
    };
    left.extend(jobs.iter().filter(stays).map(ResourceExt::name_any));
    left
}

/// Returns the leftovers of a removed stack. Its inputs are the user's; the state, its lock and its copies stay, as
/// `docs/guides/deletion.md` says of `Retain`.
fn leftovers_of_removed_stack(stack: &str, objects: &[Object]) -> Vec<String> {
    let state = format!("tfstate-default-{stack}");
    let stays = |(kind, name): &&Object| match *kind {
        "Secret" => name == INPUTS || *name == state || name.starts_with("tfcopy-"),
        "ConfigMap" => name == INPUTS || name == API_AUTHORITY,
        "Lease" => *name == lock_name(stack),
        _ => false,
    };
    let left = objects.iter().filter(|object| !stays(object));
    left.map(|(kind, name)| format!("{kind} {name}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(all: &[(&'static str, &str)]) -> Vec<Object> {
        all.iter()
            .map(|(kind, name)| (*kind, (*name).to_owned()))
            .collect()
    }

    fn job(name: &str, active: i32, ttl: Option<i32>) -> Job {
        serde_json::from_value(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
            "spec": { "ttlSecondsAfterFinished": ttl, "template": {} },
            "status": { "active": active },
        }))
        .unwrap()
    }

    #[test]
    fn bundles_older_plans_and_jobs_that_work_or_have_no_ttl_are_left_behind() {
        let ended = objects(&[("Secret", "tfplan-default-trial-0-1-0"), ("Secret", "inputs")]);
        assert!(leftovers_of_runs(&ended, &[job("trial-0-1", 0, Some(3600))]).is_empty());
        let bundle = objects(&[("Secret", "trial-0-1-bundle-0")]);
        assert_eq!(leftovers_of_runs(&bundle, &[]), ["trial-0-1-bundle-0"]);
        let plans = objects(&[
            ("Secret", "tfplan-default-trial-0-1-0"),
            ("Secret", "tfplan-default-trial-0-2-0"),
        ]);
        assert_eq!(leftovers_of_runs(&plans, &[]).len(), 2);
        let jobs = [job("trial-0-1", 1, Some(3600)), job("trial-0-2", 0, None)];
        assert_eq!(leftovers_of_runs(&[], &jobs), ["trial-0-1", "trial-0-2"]);
    }

    #[test]
    fn a_removed_stack_leaves_the_inputs_and_the_state_and_nothing_else() {
        let staying = [
            ("Secret", "inputs"),
            ("ConfigMap", "inputs"),
            ("ConfigMap", "kube-root-ca.crt"),
            ("Secret", "tfstate-default-trial-0"),
            ("Secret", "tfcopy-default-trial-0-1"),
            ("Lease", "lock-tfstate-default-trial-0"),
        ];
        assert!(leftovers_of_removed_stack("trial-0", &objects(&staying)).is_empty());
        for (kind, name) in [
            ("Pod", "trial-0-1-x"),
            ("Job", "trial-0-1"),
            ("Terraform", "trial-0"),
            ("TerraformRun", "trial-0-1"),
            ("Secret", "trial-0-outputs"),
            ("Secret", "trial-0-sluice-key"),
            ("Secret", "trial-0-1-log"),
            ("Secret", "tfplan-default-trial-0-1-0"),
            ("Secret", "tferrored-default-trial-0"),
            ("Secret", "tfstate-default-trial-1"),
            ("ConfigMap", "trial-0-plan"),
            ("Lease", "lock-tfstate-default-trial-1"),
        ] {
            let left = leftovers_of_removed_stack("trial-0", &objects(&[(kind, name)]));
            assert_eq!(left, [format!("{kind} {name}")]);
        }
    }
}
