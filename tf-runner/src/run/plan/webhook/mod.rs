//! Post-planning webhooks: services that may reject a plan before it is stored.
//!
//! They are called in order. The first rejection or invalid answer ends the run, and the plan is not stored. The payload type
//! selects the request (the plan's JSON contains sensitive values). Only the two templates of the webhook see the answer.

mod call;
mod payload;
mod verdict;

use std::path::Path;

use call::WebhookClient;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;
use sluice_tf_core::redaction::Redactor;

use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;

/// Calls all webhooks with the JSON of the plan; `None` for an unsaved plan. `secrets` are redacted in their messages.
pub(crate) async fn call_all(
    session: &RunSession<'_>,
    plan: Option<&Path>,
    secrets: &Redactor,
) -> Result<(), RunError> {
    let RunSession {
        context, run, bundle, ..
    } = session;
    if bundle.webhooks.is_empty() {
        return Ok(());
    }
    let object = read_object(context, run).await?;
    let client = WebhookClient::new(context);
    for (index, webhook) in bundle.webhooks.iter().enumerate() {
        let endpoint = client.endpoint(index, &webhook.url)?;
        let body = payload::build(&endpoint.host, &webhook.payload, &object, plan).await?;
        let answer = client.call(&endpoint, body).await?;
        verdict::check(&endpoint.host, webhook, &answer, secrets)?;
    }
    Ok(())
}

/// The Terraform object with all fields, including those of other versions.
async fn read_object(context: &Context, run: &TerraformRun) -> Result<serde_json::Value, RunError> {
    let resource = ApiResource::erase::<Terraform>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &context.settings.namespace, &resource);
    let read = context.retry(|| api.get(&run.spec.terraform.name)).await;
    let object = read.map_err(RunError::api("read the Terraform object for its webhooks"))?;
    Ok(serde_json::to_value(object).unwrap_or_default())
}
