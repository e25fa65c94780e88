//! What a run of `sluice up` may do with the API: its runner with what belongs to the run and its stack, the CLI's backend with the
//! stack's state and lock.

use std::collections::BTreeSet;

use futures::future::{BoxFuture, FutureExt};
use kube::{Api, Client, ResourceExt};
use sluice_api::{
    annotation::TERRAFORM_LABEL,
    run::TerraformRun,
    terraform::{Terraform, label_value},
};
use sluice_embedded::{Grant, GrantRule, Lender};
use sluice_tf_controller::{
    executor::{Credentials, RunRef},
    inputs::default_suffix,
};
use sluice_tf_runner::{
    applied,
    args::Access,
    plan::store::{object_name, selector_of_all},
    run::errored_state_selector,
};

const WRITE: [&str; 5] = ["get", "create", "update", "patch", "delete"];
/// What the runner stores of a stack begins so.
const STORED: [&str; 3] = ["tfplan", "tfapplied", "tferrored"];
/// The files of applies: all stacks of a namespace share them.
const FILES: &str = "tffiles-*";

/// Makes the credentials of runs.
#[derive(Debug)]
pub(super) struct RunAccess {
    client: Owner,
    lender: Lender,
}

/// The client of this program, which has no `Debug`.
struct Owner(Client);

impl std::fmt::Debug for Owner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Owner").finish_non_exhaustive()
    }
}

impl RunAccess {
    pub(super) const fn new(client: Client, lender: Lender) -> Self {
        Self {
            client: Owner(client),
            lender,
        }
    }

    async fn of(&self, run: &RunRef) -> Result<Access, String> {
        let unread = |error: kube::Error| error.to_string();
        let runs: Api<TerraformRun> = Api::namespaced(self.client.0.clone(), &run.namespace);
        let stack = runs.get(&run.name).await.map_err(unread)?.spec.terraform.name;
        let stacks: Api<Terraform> = Api::namespaced(self.client.0.clone(), &run.namespace);
        let stack = stacks.get(&stack).await.map_err(unread)?;
        let kubeconfig = |rules: Vec<GrantRule>| {
            let namespace = run.namespace.clone();
            let grant = Grant { namespace, rules };
            self.lender.kubeconfig(&grant).map_err(|error| error.to_string())
        };
        Ok(Access {
            run: kubeconfig(of_runner(&stack, &run.name))?,
            backend: kubeconfig(of_backend(&stack))?,
        })
    }
}

impl Credentials for RunAccess {
    fn access(&self, run: RunRef) -> BoxFuture<'_, Result<Access, String>> {
        async move { self.of(&run).await }.boxed()
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

fn list(group: &str, resource: &str, selector: String) -> GrantRule {
    GrantRule {
        selector,
        ..rule(group, resource, &["list"], Vec::new())
    }
}

/// The workspaces that a run touches: `init` comes before the selection of the stack's own.
fn workspaces(stack: &Terraform) -> BTreeSet<&str> {
    ["default", stack.spec.workspace_name()].into()
}

/// The suffix of the Secret with the state; none where text or arguments of the author's own may say another.
fn suffix(stack: &Terraform) -> Option<String> {
    let spec = &stack.spec;
    match &spec.backend_config {
        _ if !spec.backend_configs_from.is_empty() => None,
        Some(config) if !config.custom_configuration.is_empty() => None,
        Some(config) => Some(config.secret_suffix.clone()),
        None => Some(default_suffix(&stack.name_any())),
    }
}

/// Names of states or of their locks, which begin with `front`: those of the stack, or of the namespace where the suffix is not known.
fn of_states(stack: &Terraform, front: &str) -> Vec<String> {
    let Some(suffix) = suffix(stack) else {
        return vec![format!("{front}-*")];
    };
    let name = |workspace| format!("{front}-{workspace}-{suffix}");
    workspaces(stack).into_iter().map(name).collect()
}

fn locks(stack: &Terraform) -> Vec<String> {
    of_states(stack, "lock-tfstate")
}

/// The label of states and their locks.
fn state_label(stack: &Terraform) -> String {
    suffix(stack).map_or_else(
        || "tfstate=true".to_owned(),
        |suffix| format!("tfstateSecretSuffix={suffix}"),
    )
}

/// The state, which Terraform cuts into parts where it is large, and its lock.
fn of_backend(stack: &Terraform) -> Vec<GrantRule> {
    let states = of_states(stack, "tfstate").into_iter();
    let states = states.flat_map(|state| [format!("{state}-part-*"), state]);
    vec![
        rule("", "secrets", &WRITE, states.collect()),
        list("", "secrets", state_label(stack)),
        rule("coordination.k8s.io", "leases", &WRITE, locks(stack)),
    ]
}

/// Names of what is stored of the stack: the name itself, its parts, and the readable plan as JSON with its parts. Other stacks have
/// names that begin with this one's.
fn stored(stack: &Terraform, kinds: &[&str]) -> Vec<String> {
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

/// The run, and what it stores. Its bundle is handed to it.
fn of_runner(stack: &Terraform, run: &str) -> Vec<GrantRule> {
    let name = stack.name_any();
    let (runs, stacks) = ("infra.sluice.dev", "infra.contrib.fluxcd.io");
    let siblings = run.rsplit_once('-').map_or(run, |(front, _)| front);
    let label = format!("{TERRAFORM_LABEL}={}", label_value(&name));
    let outputs = stack.spec.write_outputs_to_secret.iter();
    let mut rules = vec![
        rule(stacks, "terraforms", &["get"], vec![name.clone()]),
        rule(runs, "terraformruns", &["get"], vec![format!("{siblings}-*")]),
        list(runs, "terraformruns", label),
        rule(runs, "terraformruns/status", &["patch"], vec![run.to_owned()]),
        rule("", "secrets", &WRITE, stored(stack, &STORED)),
        rule("", "secrets", &WRITE, vec![FILES.to_owned()]),
        rule("", "configmaps", &WRITE, stored(stack, &["tfplan"])),
        list("", "configmaps", selector_of_all(&name)),
        rule(
            "coordination.k8s.io",
            "leases",
            &["get", "update", "patch"],
            locks(stack),
        ),
        list("coordination.k8s.io", "leases", state_label(stack)),
    ];
    let selectors = [
        selector_of_all(&name),
        selector_of_all(&format!("{name}.json")),
        applied::selector_of(&name),
        errored_state_selector(&name),
        applied::shared::FILES_LABEL.to_owned(),
    ];
    rules.extend(selectors.map(|selector| list("", "secrets", selector)));
    rules.extend(outputs.map(|target| {
        let names = vec![target.name.clone()];
        rule("", "secrets", &["get", "create", "update"], names)
    }));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use serde_json::{Value, json};
    use sluice_embedded::Server;
    use sluice_runtime::client;

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

    /// The ways to the API of the run `net-0a-1` of this stack; the server lives as long as the rest.
    async fn access(dir: &std::path::Path, more: &Value) -> (Client, Client, sluice_embedded::Serving) {
        sluice_runtime::http::install_crypto();
        let embedded = Server::builder().crds(sluice_api::crds()).build().unwrap();
        let serving = embedded.serve(([127, 0, 0, 1], 0).into(), dir).await.unwrap();
        let own = embedded.client();
        assert_eq!(code(&own, "POST", STACKS, &stack("net", more)).await, 200);
        assert_eq!(code(&own, "POST", RUNS, &run("net-0a-1", "net")).await, 200);
        let reference = RunRef {
            namespace: "default".to_owned(),
            name: "net-0a-1".to_owned(),
        };
        let access = RunAccess::new(own, serving.lender())
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

    async fn nothing_to_others(run: &Client, backend: &Client, secrets: &str) {
        for (who, method, path, body) in [
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
            assert_eq!(code(who, method, &path, &body).await, 403, "{method} {path}");
        }
    }

    #[tokio::test]
    async fn a_run_may_do_what_it_does_and_nothing_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let (run, backend, serving) = access(dir.path(), &json!({})).await;
        let secrets = format!("{TEAM}/secrets");
        for name in [
            "tffiles-0a-0",
            "tfplan-default-net-0",
            "tfapplied-default-net-0",
            "tferrored-default-net-0",
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
            assert_eq!(found["items"].as_array().unwrap().len(), 5, "{selector}");
        }
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
        nothing_to_others(&run, &backend, &secrets).await;
        serving.stop().await;
    }

    #[tokio::test]
    async fn a_backend_of_the_authors_own_reaches_the_states_of_its_namespace() {
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
