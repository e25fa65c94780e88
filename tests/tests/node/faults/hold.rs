//! Holds a run at a moment outside of its provider: the download of the artifact or of a module, or the write of its outputs.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_harness::admission::Webhook;
use sluice_harness::git::{self, Gate, Injection, Repository, Scope};
use sluice_tests::scenario::retry;

use super::moment::Moment;
use super::stack::failure;
use super::stage::Stage;

/// Seconds until the API gives up a write that is held, and answers 500: the runner writes again.
const WRITE_LIMIT: u32 = 10;

/// The gate that holds the runs of a stack at the moment of its trial.
pub(super) enum Holds {
    /// The provider, or nothing.
    Nothing,
    /// The download of the artifact waits at the gate.
    Fetch(Gate),
    /// `tofu init` waits for a module.
    Init(InitModule),
    /// The write of the outputs waits for a webhook.
    Outputs {
        webhook: Box<Webhook>,
        /// The object with which the API asks it.
        configuration: Value,
    },
}

impl Holds {
    /// Prepares the gate for the runs of a stack.
    pub(super) async fn prepare(stage: &Stage<'_>, stack: &str, moment: Moment) -> Result<Self, String> {
        match moment {
            Moment::Fetch => Ok(Self::Fetch(stage.artifacts.hold(stack, stack))),
            Moment::Init => InitModule::create(stage, stack).map(Self::Init),
            Moment::Outputs => {
                let webhook = Webhook::start().await.map_err(failure("start the webhook"))?;
                let address = stage.node.expose(webhook.address());
                let address = address.map_err(failure("expose the webhook"))?;
                Ok(Self::Outputs {
                    configuration: configuration(stack, &address, webhook.authority_pem()),
                    webhook: Box::new(webhook),
                })
            }
            _ => Ok(Self::Nothing),
        }
    }

    fn gate(&self) -> Option<&Gate> {
        match self {
            Self::Nothing => None,
            Self::Fetch(gate) => Some(gate),
            Self::Init(module) => Some(&module.gate),
            Self::Outputs { webhook, .. } => Some(webhook.gate()),
        }
    }

    /// Returns whether a run waits; `None` if nothing of this holds it.
    pub(super) fn is_reached(&self) -> Option<bool> {
        self.gate().map(|gate| gate.count() > 0)
    }

    /// Lets the runs continue.
    pub(super) fn open(&self) {
        if let Some(gate) = self.gate() {
            gate.open();
        }
    }

    /// Returns the block that calls the module, or nothing.
    pub(super) fn call(&self) -> &str {
        match self {
            Self::Init(module) => &module.call,
            _ => "",
        }
    }

    /// Creates what is not in the namespace of the stack.
    pub(super) async fn configure(&self, stage: &Stage<'_>) -> Result<(), String> {
        let Self::Outputs { configuration, .. } = self else {
            return Ok(());
        };
        let applied = stage.node.apply(&configuration.to_string()).await;
        applied.map_err(failure("configure the webhook"))
    }

    /// Deletes what is not in the namespace of the stack.
    pub(super) async fn delete(&self, client: &Client, stack: &str) {
        if matches!(self, Self::Outputs { .. }) {
            let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
            let how = DeleteParams::default();
            // It is absent if the stack was not created.
            let _absent = retry(|| api.delete(stack, &how)).await;
        }
    }
}

/// Returns the configuration with which the API asks the webhook about the Secret of the outputs.
fn configuration(stack: &str, address: &str, authority: &str) -> Value {
    let port = address.rsplit(':').next().unwrap_or_default();
    // The API server is in the network of the node, and the certificate is for loopback.
    let url = format!("https://127.0.0.1:{port}/");
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": stack },
        "webhooks": [{
            "name": "outputs.sluice.test", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": WRITE_LIMIT,
            "clientConfig": { "url": url, "caBundle": ByteString(authority.as_bytes().to_vec()) },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": stack } },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
                "operations": ["CREATE", "UPDATE"], "scope": "Namespaced" }],
            "matchConditions": [{ "name": "outputs",
                "expression": format!("object.metadata.name == '{stack}-outputs'") }],
        }],
    })
}

/// A module that `tofu init` clones. The clone waits.
pub(super) struct InitModule {
    /// The block that calls it.
    call: String,
    gate: Gate,
    /// Removed at its end.
    _repository: Repository,
}

impl InitModule {
    fn create(stage: &Stage<'_>, stack: &str) -> Result<Self, String> {
        let repository = Repository::create().map_err(failure("make the repository of the module"))?;
        let committed = repository.commit_files(&[("main.tf", "locals {}\n")], "A module");
        committed.map_err(failure("commit the module"))?;
        let name = format!("{stack}-module");
        let url = stage.serve(&name, &repository);
        let gate = Gate::default();
        let injection = Injection::new(Scope::Any, git::Fault::Wait(gate.clone()));
        stage.server.inject(injection.repository(&name));
        Ok(Self {
            call: format!("module \"cloned\" {{\n  source = \"git::{url}\"\n}}\n"),
            gate,
            _repository: repository,
        })
    }
}
