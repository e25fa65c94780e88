//! Permissions of the runs of `sluice up`: the runner may use the objects of its run and its stack, the CLI's backend the stack's
//! state and lock.

use std::collections::BTreeSet;

use futures::future::{BoxFuture, FutureExt};
use kube::{Api, Client, ResourceExt};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::{Terraform, label_value};
use sluice_embedded::{CredentialIssuer, Grant, GrantRule};
use sluice_tf_controller::executor::{Credentials, RunRef};
use sluice_tf_controller::inputs::{default_suffix, labelled_states};
use sluice_tf_core::plan::store::{object_name, selector_of_all_workspaces};
use sluice_tf_core::run_input::Kubeconfigs;
use sluice_tf_core::{errored_state, last_applied, state_copy};

const WRITE: [&str; 5] = ["get", "create", "update", "patch", "delete"];
/// Name prefixes of the objects that the runner stores for a stack.
const STORED_KINDS: [&str; 4] = ["tfplan", "tfapplied", "tferrored", "tfcopy"];
/// Names of the files of applies, which all stacks of a namespace share.
const FILES: &str = "tffiles-*";

/// Issues the credentials of runs.
#[derive(Debug)]
pub(super) struct RunAccess {
    client: ApiClient,
    credential_issuer: CredentialIssuer,
}

/// The client of this program; a wrapper because `Client` has no `Debug`.
struct ApiClient(Client);

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ApiClient").finish_non_exhaustive()
    }
}

impl RunAccess {
    pub(super) const fn new(client: Client, credential_issuer: CredentialIssuer) -> Self {
        Self {
            client: ApiClient(client),
            credential_issuer,
        }
    }

    async fn create(&self, run: &RunRef) -> Result<Kubeconfigs, String> {
        let message = |error: kube::Error| error.to_string();
        let runs: Api<TerraformRun> = Api::namespaced(self.client.0.clone(), &run.namespace);
        let stack = runs.get(&run.name).await.map_err(message)?.spec.terraform.name;
        let stacks: Api<Terraform> = Api::namespaced(self.client.0.clone(), &run.namespace);
        let stack = stacks.get(&stack).await.map_err(message)?;
        let kubeconfig = |rules: Vec<GrantRule>| {
            let namespace = run.namespace.clone();
            let grant = Grant { namespace, rules };
            self.credential_issuer
                .kubeconfig(&grant)
                .map_err(|error| error.to_string())
        };
        Ok(Kubeconfigs {
            run: kubeconfig(runner_rules(&stack, &run.name))?,
            backend: kubeconfig(backend_rules(&stack))?,
        })
    }
}

impl Credentials for RunAccess {
    fn access(&self, run: RunRef) -> BoxFuture<'_, Result<Kubeconfigs, String>> {
        async move { self.create(&run).await }.boxed()
    }
}

fn rule(group: &str, resource: &str, verbs: &[&str], names: Vec<String>) -> GrantRule {
    GrantRule {
        group: group.to_owned(),
        resource: resource.to_owned(),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        names,
        selector: String::new(),
    }
}

fn list_rule(group: &str, resource: &str, selector: String) -> GrantRule {
    GrantRule {
        selector,
        ..rule(group, resource, &["list"], Vec::new())
    }
}

/// Returns the workspaces that a run uses: `init` runs before the stack's workspace is selected.
fn workspaces(stack: &Terraform) -> BTreeSet<&str> {
    ["default", stack.spec.workspace_name()].into()
}

/// Returns the suffix of the state's Secret; `None` if a custom backend configuration may set another.
fn suffix(stack: &Terraform) -> Option<String> {
    let spec = &stack.spec;
    match &spec.backend_config {
        _ if !spec.backend_configs_from.is_empty() => None,
        Some(config) if !config.custom_configuration.is_empty() => None,
        Some(config) => Some(config.secret_suffix.clone()),
        None => Some(default_suffix(&stack.name_any())),
    }
}

/// Returns the names of states or locks: those of the stack, or all with this prefix in the namespace if the suffix is unknown.
fn state_names(stack: &Terraform, prefix: &str) -> Vec<String> {
    let Some(suffix) = suffix(stack) else {
        return vec![format!("{prefix}-*")];
    };
    let name = |workspace| format!("{prefix}-{workspace}-{suffix}");
    workspaces(stack).into_iter().map(name).collect()
}

fn lock_names(stack: &Terraform) -> Vec<String> {
    state_names(stack, "lock-tfstate")
}

/// Returns the label of states and locks.
fn state_label(stack: &Terraform) -> String {
    suffix(stack).map_or_else(
        || "tfstate=true".to_owned(),
        |suffix| format!("tfstateSecretSuffix={suffix}"),
    )
}

/// Returns the backend's rules: the state, which Terraform splits if it is large, and its lock.
fn backend_rules(stack: &Terraform) -> Vec<GrantRule> {
    let states = state_names(stack, "tfstate").into_iter();
    let states = states.flat_map(|state| [format!("{state}-part-*"), state]);
    vec![
        rule("", "secrets", &WRITE, states.collect()),
        list_rule("", "secrets", state_label(stack)),
        rule("coordination.k8s.io", "leases", &WRITE, lock_names(stack)),
    ]
}

/// Returns the names of objects stored for the stack: the base name, its parts, and the JSON plan with its parts. A prefix alone
/// would also match stacks whose names begin with this one's.
fn stored_names(stack: &Terraform, kinds: &[&str]) -> Vec<String> {
    let name = stack.name_any();
    let mut names = Vec::new();
    for kind in kinds {
        for workspace in workspaces(stack) {
            let base = object_name(kind, workspace, &name);
            names.extend([
                format!("{base}-*"),
                format!("{base}.json"),
                format!("{base}.json-*"),
                base,
            ]);
        }
    }
    names
}

/// Returns the runner's rules: the run and its stored objects. The runner receives its bundle on standard input.
fn runner_rules(stack: &Terraform, run: &str) -> Vec<GrantRule> {
    let name = stack.name_any();
    let (runs, stacks) = ("infra.sluice.dev", "infra.contrib.fluxcd.io");
    let siblings = run.rsplit_once('-').map_or(run, |(prefix, _)| prefix);
    let label = format!("{TERRAFORM_LABEL}={}", label_value(&name));
    let outputs = stack.spec.write_outputs_to_secret.iter();
    let mut rules = vec![
        rule(stacks, "terraforms", &["get"], vec![name.clone()]),
        rule(runs, "terraformruns", &["get"], vec![format!("{siblings}-*")]),
        list_rule(runs, "terraformruns", label),
        // Approvals have no label. They are not secret.
        list_rule(runs, "planapprovals", String::new()),
        rule(runs, "terraformruns/status", &["patch"], vec![run.to_owned()]),
        rule("", "secrets", &WRITE, stored_names(stack, &STORED_KINDS)),
        rule("", "secrets", &WRITE, vec![FILES.to_owned()]),
        rule("", "configmaps", &WRITE, stored_names(stack, &["tfplan"])),
        list_rule("", "configmaps", selector_of_all_workspaces(&name)),
        rule(
            "coordination.k8s.io",
            "leases",
            &["get", "update", "patch"],
            lock_names(stack),
        ),
        list_rule("coordination.k8s.io", "leases", state_label(stack)),
    ];
    let selectors = [
        selector_of_all_workspaces(&name),
        selector_of_all_workspaces(&format!("{name}.json")),
        last_applied::selector(&name),
        errored_state::selector(&name),
        state_copy::selector_of_all_workspaces(&name),
        last_applied::shared::FILES_LABEL.to_owned(),
    ];
    rules.extend(selectors.map(|selector| list_rule("", "secrets", selector)));
    // The runner reads the labels of these states before `init`.
    if let Some(states) = labelled_states(&stack.spec, &stack.namespace().unwrap_or_default()) {
        rules.push(rule("", "secrets", &["get"], states.names.into_iter().collect()));
    }
    rules.extend(outputs.map(|target| {
        let names = vec![target.name.clone()];
        rule("", "secrets", &["get", "create", "update"], names)
    }));
    rules
}

#[cfg(test)]
mod tests;
