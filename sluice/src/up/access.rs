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
mod tests {
    use http::Request;
    use serde_json::{Value, json};
    use sluice_embedded::ApiServer;
    use sluice_runtime::client;

    use super::*;

    const TEAM: &str = "/api/v1/namespaces/default";
    const STACKS: &str = "/apis/infra.contrib.fluxcd.io/v1alpha2/namespaces/default/terraforms";
    const RUNS: &str = "/apis/infra.sluice.dev/v1alpha1/namespaces/default/terraformruns";
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

    fn stack(name: &str, more: &Value) -> Value {
        let mut spec = json!({ "interval": "1m", "path": "./", "sourceRef": { "kind": "GitRepository", "name": "s" },
            "writeOutputsToSecret": { "name": "outputs" } });
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform", "metadata": { "name": name }, "spec": spec })
    }

    fn run(name: &str, stack: &str) -> Value {
        json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun", "metadata": { "name": name },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "2h", "trigger": "Spec",
                "source": { "kind": "GitRepository", "name": "s", "namespace": "default" },
                "terraform": { "name": stack, "uid": "0a", "generation": 1 } } })
    }

    async fn code(client: &Client, method: &str, path: &str, body: &Value) -> u16 {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        match client.request::<Value>(request.body(body).unwrap()).await {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    async fn client_of(kubeconfig: &str) -> Client {
        let settings = client::Settings {
            kubeconfig_text: Some(kubeconfig.to_owned()),
            ..client::Settings::default()
        };
        client::build(&settings).await.unwrap()
    }

    /// Returns clients of runner and backend for the run `net-0a-1` of this stack, and the server.
    async fn access(dir: &std::path::Path, more: &Value) -> (Client, Client, sluice_embedded::TlsServer) {
        sluice_runtime::http::install_crypto();
        let embedded = ApiServer::builder().crds(sluice_api::crds()).build().unwrap();
        let serving = embedded.serve(([127, 0, 0, 1], 0).into(), dir).await.unwrap();
        let own = embedded.client();
        assert_eq!(code(&own, "POST", STACKS, &stack("net", more)).await, 200);
        assert_eq!(code(&own, "POST", RUNS, &run("net-0a-1", "net")).await, 200);
        let reference = RunRef {
            namespace: "default".to_owned(),
            name: "net-0a-1".to_owned(),
        };
        let access = RunAccess::new(own, serving.credential_issuer())
            .access(reference)
            .await
            .unwrap();
        (
            client_of(&access.run).await,
            client_of(&access.backend).await,
            serving,
        )
    }

    fn secret(name: &str) -> Value {
        json!({ "metadata": { "name": name, "labels": { "infra.sluice.dev/applied-files": "0a" } } })
    }

    async fn assert_denied(run: &Client, backend: &Client, secrets: &str) {
        for (client, method, path, body) in [
            (
                run,
                "GET",
                format!("{secrets}/tfplan-default-network-0"),
                Value::Null,
            ),
            (run, "GET", format!("{secrets}/tfstate-default-net"), Value::Null),
            (run, "GET", format!("{secrets}/net-0a-1-bundle"), Value::Null),
            (run, "GET", format!("{secrets}/net-0a-2-bundle"), Value::Null),
            (
                run,
                "PUT",
                format!("{STACKS}/net"),
                stack("net", &json!({ "approvePlan": "auto" })),
            ),
            (run, "GET", format!("{STACKS}/network"), Value::Null),
            (run, "POST", RUNS.to_owned(), self::run("net-0a-2", "net")),
            (run, "DELETE", format!("{RUNS}/net-0a-1"), Value::Null),
            (
                run,
                "GET",
                "/api/v1/namespaces/other/secrets/tffiles-0a-0".to_owned(),
                Value::Null,
            ),
            (backend, "GET", format!("{STACKS}/net"), Value::Null),
            (backend, "GET", format!("{RUNS}/net-0a-1"), Value::Null),
            (backend, "GET", format!("{secrets}/tffiles-0a-0"), Value::Null),
            (
                backend,
                "GET",
                format!("{secrets}/tfstate-default-net-b"),
                Value::Null,
            ),
            (
                backend,
                "DELETE",
                format!("{LEASES}/lock-tfstate-default-other"),
                Value::Null,
            ),
        ] {
            assert_eq!(code(client, method, &path, &body).await, 403, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn a_run_has_only_the_permissions_it_needs() {
        let dir = tempfile::tempdir().unwrap();
        let (run, backend, serving) = access(dir.path(), &json!({})).await;
        let secrets = format!("{TEAM}/secrets");
        for name in [
            "tffiles-0a-0",
            "tfplan-default-net-0",
            "tfapplied-default-net-0",
            "tferrored-default-net-0",
            "tfcopy-default-net-0a-00",
            "outputs",
        ] {
            assert_eq!(code(&run, "POST", &secrets, &secret(name)).await, 200, "{name}");
        }
        let owned = json!({ "metadata": { "ownerReferences": [] } });
        let request = Request::patch(format!("{secrets}/tffiles-0a-0"))
            .header("content-type", "application/merge-patch+json");
        let request = request.body(owned.to_string().into_bytes()).unwrap();
        run.request::<Value>(request).await.unwrap();
        for selector in [
            "infra.sluice.dev/applied-files",
            "infra.sluice.dev/applied-files%3D0a",
        ] {
            let request = Request::get(format!("{secrets}?labelSelector={selector}"))
                .body(Vec::new())
                .unwrap();
            let found = run.request::<Value>(request).await.unwrap();
            assert_eq!(found["items"].as_array().unwrap().len(), 6, "{selector}");
        }
        let copies = state_copy::selector("net", "default")
            .replace('=', "%3D")
            .replace(',', "%2C");
        let copies = format!("{secrets}?labelSelector={copies}");
        assert_eq!(code(&run, "GET", &copies, &Value::Null).await, 200);
        assert_eq!(
            code(&run, "DELETE", &format!("{secrets}/tffiles-0a-0"), &Value::Null).await,
            200
        );
        for path in ["tfplan-default-net", "tfplan-default-net.json"] {
            assert_eq!(
                code(&run, "GET", &format!("{secrets}/{path}"), &Value::Null).await,
                404,
                "{path}"
            );
        }
        assert_eq!(
            code(&backend, "POST", &secrets, &secret("tfstate-default-net")).await,
            200
        );
        assert_denied(&run, &backend, &secrets).await;
        serving.stop().await;
    }

    #[tokio::test]
    async fn a_run_may_read_but_not_write_a_state_that_labels_select() {
        let generated = json!({ "secretSuffix": "net", "labels": { "team": "network" } });
        let custom = "backend \"kubernetes\" {\n secret_suffix = \"net\"\n namespace = \"default\"\n labels = { team = \"x\" }\n}";
        for (place, config) in [
            ("generated", generated),
            ("custom", json!({ "customConfiguration": custom })),
        ] {
            let more = json!({ "workspace": "blue", "backendConfig": config });
            let dir = tempfile::tempdir().unwrap();
            let (run, _, serving) = access(dir.path(), &more).await;
            for (method, name, expected) in [
                ("GET", "tfstate-default-net", 404),
                ("GET", "tfstate-blue-net", 404),
                ("DELETE", "tfstate-blue-net", 403),
                ("GET", "tfstate-blue-other", 403),
            ] {
                let path = format!("{TEAM}/secrets/{name}");
                assert_eq!(
                    code(&run, method, &path, &Value::Null).await,
                    expected,
                    "{place}: {method} {name}"
                );
            }
            serving.stop().await;
        }
    }

    #[tokio::test]
    async fn a_custom_backend_may_use_all_states_of_its_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let custom = "backend \"kubernetes\" {\n secret_suffix = \"x\"\n namespace = \"default\"\n}";
        let more = json!({ "backendConfig": { "customConfiguration": custom } });
        let (_, backend, serving) = access(dir.path(), &more).await;
        let state = format!("{TEAM}/secrets/tfstate-default-x");
        assert_eq!(code(&backend, "GET", &state, &Value::Null).await, 404);
        let lock = format!("{LEASES}/lock-tfstate-default-x");
        assert_eq!(code(&backend, "GET", &lock, &Value::Null).await, 404);
        assert_eq!(
            code(&backend, "GET", &format!("{TEAM}/secrets/outputs"), &Value::Null).await,
            403
        );
        serving.stop().await;
    }
}
