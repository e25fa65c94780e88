//! Reads the state of the kubernetes backend from its Secret. That is one request, where `state pull` starts the CLI, which reads the
//! Secret twice.
//!
//! Only what `init` recorded counts, and only a backend that uses the API of the run: else the CLI has to read the state.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use sluice_runtime::client;
use sluice_tf_core::chunk::decompress;
use sluice_tf_core::state_summary::StateSummary;

use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::Step;
use crate::run::lifecycle::session::RunSession;
use crate::run::state::backend_record;
use crate::run::state::labels::DATA_KEY;
use crate::run::workdir::run_environment::kubeconfig_path;

/// Timeout of the request. It is not repeated: the CLI does that.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest state that is read.
const LIMIT: u64 = 64 * 1024 * 1024;
/// The variables by which the backend finds the API in a pod.
const POD_VARIABLES: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];

/// How a kubernetes backend uses the API of the run.
struct OwnApi {
    namespace: String,
    /// The kubeconfig that an argument of `init` names.
    config_path: Option<String>,
    /// Otherwise the kubeconfig that `KUBE_CONFIG_PATH` names. Without both, the backend uses the account of the pod.
    variable: Option<String>,
}

impl OwnApi {
    fn of(session: &RunSession<'_>) -> Self {
        let RunSession { context, cli, .. } = session;
        let argument = context
            .backend_kubeconfig
            .as_ref()
            .map(|_| kubeconfig_path(&cli.directory.root).display().to_string());
        let variable = context.kubeconfig.as_ref().filter(|_| argument.is_none());
        Self {
            namespace: context.settings.namespace.clone(),
            config_path: argument,
            variable: variable.map(|path| path.display().to_string()),
        }
    }

    fn is_pod(&self) -> bool {
        self.config_path.is_none() && self.variable.is_none()
    }

    /// Whether an argument of the backend leaves it at the API and in the namespace of the run. `init` records arguments that are not
    /// set too.
    fn permits_argument(&self, name: &str, value: &Value) -> bool {
        match name {
            "secret_suffix" | "labels" => true,
            "namespace" => value.as_str() == Some(&*self.namespace),
            "in_cluster_config" => value.as_bool().unwrap_or(false) == self.is_pod(),
            "config_path" if self.config_path.is_some() => value.as_str() == self.config_path.as_deref(),
            "config_path" if !is_unset(value) => value.as_str() == self.variable.as_deref(),
            _ => is_unset(value),
        }
    }

    /// Whether a variable of the CLI leaves the backend at the API of the run. Arguments take precedence.
    fn permits_variable(&self, name: &str, value: &str) -> bool {
        match name {
            "KUBE_CONFIG_PATH" | "KUBE_CONFIG_PATHS" if self.config_path.is_some() => true,
            "KUBE_CONFIG_PATH" => self.variable.as_deref() == Some(value),
            name => !name.starts_with("KUBE_"),
        }
    }
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// Returns the summary of the stored state. `None`: it is not known to be in a Secret of the run's API, or it cannot be read there.
pub(super) async fn read(session: &RunSession<'_>) -> Option<StateSummary> {
    let RunSession {
        context, bundle, cli, ..
    } = session;
    // A run that was stopped has few seconds.
    if cli.stop_error(Step::Inventory).is_some() {
        return None;
    }
    let own = OwnApi::of(session);
    let has_other_pod_api = |name: &&str| cli.environment.get(*name) != context.environment.get(*name);
    if own.is_pod() && POD_VARIABLES.iter().any(has_other_pod_api) {
        return None;
    }
    let name = secret_name(
        &backend_record(&cli.module),
        &cli.environment,
        &own,
        &bundle.workspace,
    )?;
    let api = api_of_backend(context).await?;
    match tokio::time::timeout(TIMEOUT, api.get_opt(&name)).await {
        Ok(Ok(found)) => {
            let secret = found?;
            // A state of 64 MiB takes long enough to delay a heartbeat.
            let summary = tokio::task::spawn_blocking(move || summarize(&secret));
            summary.await.ok().flatten()
        }
        Ok(Err(error)) => {
            tracing::debug!(
                name,
                error = &error as &dyn std::error::Error,
                "the Secret of the state cannot be read: the CLI reads the state"
            );
            None
        }
        Err(_) => None,
    }
}

/// Returns the API with the rights of the backend: those of the run may not include states.
async fn api_of_backend(context: &Context) -> Option<Api<Secret>> {
    let Some(kubeconfig) = &context.backend_kubeconfig else {
        return Some(context.api());
    };
    let settings = client::Settings {
        kubeconfig_text: Some(kubeconfig.clone()),
        user_agent: crate::USER_AGENT,
        ..client::Settings::default()
    };
    let client = client::build(&settings).await.ok()?;
    Some(Api::namespaced(client, &context.settings.namespace))
}

/// Returns the name of the Secret with the state of a workspace, if the backend of the record uses the API of the run.
fn secret_name(
    record: &Value,
    environment: &BTreeMap<String, String>,
    own: &OwnApi,
    workspace: &str,
) -> Option<String> {
    let backend = &record["backend"];
    if backend["type"] != "kubernetes" {
        return None;
    }
    let arguments = backend["config"].as_object()?;
    let is_own = arguments
        .iter()
        .all(|(name, value)| own.permits_argument(name, value))
        && environment
            .iter()
            .all(|(name, value)| own.permits_variable(name, value));
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    // The CLI takes both from its environment if the configuration has none.
    let (Some(_), Some(suffix)) = (text("namespace"), text("secret_suffix")) else {
        return None;
    };
    (is_own && !suffix.is_empty()).then(|| format!("tfstate-{workspace}-{suffix}"))
}

/// Summarizes the state in its Secret. `None`: it is in several Secrets, encrypted by OpenTofu, or none.
fn summarize(secret: &Secret) -> Option<StateSummary> {
    /// The mark of an encrypted state, which has a lineage and a serial, and no resources.
    #[derive(Deserialize)]
    struct Encryption {
        encrypted_data: Option<IgnoredAny>,
    }

    let packed = secret.data.as_ref()?.get(DATA_KEY)?;
    let state = decompress(&packed.0, LIMIT).ok()?;
    let encryption: Encryption = serde_json::from_slice(&state).ok()?;
    if encryption.encrypted_data.is_some() {
        return None;
    }
    let summary = StateSummary::parse(&state).ok().flatten();
    summary.filter(|summary| !summary.lineage.is_empty())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;
    use sluice_tf_core::chunk::compress;

    use super::*;

    const KUBECONFIG: &str = "/run/kubeconfig";

    /// The arguments that `init` records for the generated backend.
    fn arguments() -> Value {
        json!({ "config_context": null, "config_path": null, "config_paths": null, "exec": [], "host": null,
            "in_cluster_config": false, "insecure": null, "labels": {}, "namespace": "team", "secret_suffix": "net" })
    }

    fn own(argument: bool, variable: bool) -> OwnApi {
        let path = |is_set: bool| is_set.then(|| KUBECONFIG.to_owned());
        OwnApi {
            namespace: "team".to_owned(),
            config_path: path(argument),
            variable: path(variable),
        }
    }

    fn name_of(kind: &str, changes: &Value, variables: &[(&str, &str)], own: &OwnApi) -> Option<String> {
        let mut config = arguments();
        let changes = changes.as_object()?.clone();
        config.as_object_mut()?.extend(changes);
        let record = json!({ "version": 3, "backend": { "type": kind, "config": config } });
        let variables = variables.iter();
        let variables = variables
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        secret_name(&record, &variables, own, "default")
    }

    #[test]
    fn the_secret_of_a_backend_at_the_api_of_the_run_is_known() {
        let expected = Some("tfstate-default-net".to_owned());
        let variable = [("KUBE_CONFIG_PATH", KUBECONFIG), ("PATH", "/bin")];
        let of = |changes: Value, variables: &[(&str, &str)], own: &OwnApi| {
            name_of("kubernetes", &changes, variables, own)
        };
        assert_eq!(of(json!({}), &variable, &own(false, true)), expected);
        let labelled = json!({ "labels": { "team": "network" } });
        assert_eq!(of(labelled, &variable, &own(false, true)), expected);
        let in_pod = json!({ "in_cluster_config": true });
        assert_eq!(of(in_pod, &[], &own(false, false)), expected);
        let argument = json!({ "config_path": KUBECONFIG });
        let others = [("KUBE_CONFIG_PATH", "/home/user/.kube/config")];
        assert_eq!(of(argument, &others, &own(true, false)), expected);
    }

    #[test]
    fn a_backend_that_may_use_another_api_is_left_to_the_cli() {
        let variable = [("KUBE_CONFIG_PATH", KUBECONFIG)];
        for changes in [
            json!({ "namespace": "other" }),
            json!({ "namespace": null }),
            json!({ "secret_suffix": null }),
            json!({ "host": "https://elsewhere" }),
            json!({ "config_path": "/elsewhere" }),
            json!({ "config_paths": ["/elsewhere"] }),
            json!({ "config_context": "elsewhere" }),
            json!({ "exec": [{ "command": "login" }] }),
            json!({ "insecure": true }),
            json!({ "in_cluster_config": true }),
        ] {
            let found = name_of("kubernetes", &changes, &variable, &own(false, true));
            assert_eq!(found, None, "{changes}");
        }
        assert_eq!(name_of("s3", &json!({}), &variable, &own(false, true)), None);
        for variables in [
            [("KUBE_CONFIG_PATH", "/elsewhere")],
            [("KUBE_CONFIG_PATHS", KUBECONFIG)],
            [("KUBE_HOST", "https://elsewhere")],
            [("KUBE_CTX", "elsewhere")],
        ] {
            let found = name_of("kubernetes", &json!({}), &variables, &own(false, true));
            assert_eq!(found, None, "{variables:?}");
        }
        let argument = json!({ "config_path": KUBECONFIG });
        let host = [("KUBE_HOST", "https://elsewhere")];
        assert_eq!(name_of("kubernetes", &argument, &host, &own(true, false)), None);
        assert_eq!(name_of("kubernetes", &json!({}), &[], &own(true, false)), None);
    }

    #[test]
    fn only_a_complete_and_readable_state_is_summarized() {
        let secret = |state: &[u8]| Secret {
            data: Some([(DATA_KEY.to_owned(), ByteString(state.to_vec()))].into()),
            ..Secret::default()
        };
        let packed = |text: &str| compress(text.as_bytes()).unwrap();
        let state =
            r#"{"version":4,"serial":3,"lineage":"l","resources":[{"mode":"managed","instances":[{},{}]}]}"#;
        let summary = summarize(&secret(&packed(state))).unwrap();
        assert_eq!(
            (summary.lineage.as_str(), summary.serial, summary.resources),
            ("l", 3, 2)
        );
        let whole = packed(state);
        assert_eq!(
            summarize(&secret(&whole[..whole.len() / 2])),
            None,
            "one of several Secrets"
        );
        for text in [
            r#"{"serial":3,"lineage":"l","meta":{},"encrypted_data":"x","encryption_version":"v0"}"#,
            r#"{"version":4,"serial":0,"lineage":"","resources":[]}"#,
            "no state",
        ] {
            assert_eq!(summarize(&secret(&packed(text))), None, "{text}");
        }
        assert_eq!(summarize(&Secret::default()), None);
    }
}
