//! Replacements of Secrets by an attacker, and runs that meet them.

use std::sync::{Arc, Mutex};

use http::Request;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, PostParams};
use kube::client::Body;
use kube::{Client, ResourceExt as _};
use sluice_api::run::TerraformRun;
use sluice_tf_core::bundle::secret_name;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use crate::environment::{NAMESPACE, RunSetup, TestEnvironment};

/// The step before which the Secrets are replaced.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// After the plan, before its approval.
    Approval,
    /// The run exists, and no runner has claimed it.
    Claim,
    /// The runner has claimed the run, and has not loaded the bundle.
    Load,
}

/// A replacement of Secrets.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) what: &'static str,
    removed: Vec<Secret>,
    pub(super) added: Vec<Secret>,
}

impl Change {
    pub(super) fn new(what: &'static str, removed: &[Secret], added: Vec<Secret>) -> Self {
        let removed = removed.to_vec();
        Self { what, removed, added }
    }

    /// Returns the reverse replacement.
    pub(super) fn reversed(&self) -> Self {
        Self::new(self.what, &self.added, self.removed.clone())
    }

    pub(super) async fn make(self, client: Client) {
        let api: Api<Secret> = Api::namespaced(client, NAMESPACE);
        for secret in &self.removed {
            api.delete(&secret.name_any(), &DeleteParams::default())
                .await
                .unwrap();
        }
        for mut secret in self.added {
            secret.metadata.resource_version = None;
            secret.metadata.uid = None;
            api.create(&PostParams::default(), &secret).await.unwrap();
        }
    }
}

/// Returns a client that makes the change immediately before the bundle is read.
pub(super) fn client_with_change(env: &TestEnvironment, change: Change) -> Client {
    let (embedded, due) = (env.embedded.clone(), Arc::new(Mutex::new(Some(change))));
    let service = tower::service_fn(move |request: Request<Body>| {
        let reads = request.uri().path().ends_with(&secret_name(""));
        let change = due.lock().unwrap().take_if(|_| reads);
        let mut embedded = embedded.clone();
        async move {
            if let Some(change) = change {
                change.make(embedded.client()).await;
            }
            embedded.call(request).await
        }
    });
    Client::new(service, NAMESPACE)
}

/// Executes a run and makes the change at that moment.
pub(super) async fn run_with(
    env: &TestEnvironment,
    setup: RunSetup,
    moment: Moment,
    change: Change,
) -> TerraformRun {
    if matches!(moment, Moment::Approval) {
        change.clone().make(env.client()).await;
    }
    let name = env.prepare(setup).await;
    let mut context = env.context(&name);
    match moment {
        Moment::Approval => {}
        Moment::Claim => change.make(env.client()).await,
        Moment::Load => context.client = client_with_change(env, change),
    }
    env.execute_run(&name, context, CancellationToken::new()).await;
    env.get(&name).await
}
