//! Post-planning webhooks: services that may reject a plan before it is stored.
//!
//! They are called in order. The first rejection or invalid answer ends the run, and the plan is not stored. The payload type
//! selects the request (the plan's JSON contains sensitive values). Only the two templates of the webhook see the answer.

mod call;
mod payload;
mod verdict;

use std::path::Path;
use std::time::Duration;

use call::WebhookClient;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;
use sluice_tf_core::redaction::Redactor;
use sluice_tf_core::template::TemplateError;

use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use crate::run::lifecycle::session::RunSession;

/// The reason why a webhook stopped the run. Only [`WebhookError::Rejected`] quotes the answer of the service.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookError {
    #[error("webhook {index}: its url is not an http or https URL")]
    Address {
        /// The index in `spec.webhooks` among the enabled ones.
        index: usize,
    },
    #[error(
        "webhook {host}: plans are sent over plain http only if DISABLE_WEBHOOK_TLS_VERIFY=1 is set in the runner's environment"
    )]
    PlainHttp { host: String },
    #[error("webhook {host}: payloadType {payload:?} is not SpecAndPlan, SpecOnly or PlanOnly")]
    Payload { host: String, payload: String },
    #[error("webhook {host}: the CLI has no JSON of an unsaved plan; use payloadType SpecOnly")]
    NoPlanJson { host: String },
    #[error(
        "webhook {host}: the plan's JSON has {size} bytes, more than the limit of {limit}; use payloadType SpecOnly"
    )]
    PlanTooLarge { host: String, size: u64, limit: u64 },
    #[error("webhook {host}: cannot use the certificates in {directory}: {text}")]
    Certificates {
        host: String,
        directory: String,
        text: String,
    },
    #[error("webhook {host}: request failed: {text}")]
    Unreachable { host: String, text: String },
    #[error("webhook {host}: no response within {limit:?}")]
    Timeout { host: String, limit: Duration },
    #[error("webhook {host}: HTTP status {status} instead of 200")]
    Status { host: String, status: u16 },
    #[error("webhook {host}: its response has more than {limit} bytes")]
    AnswerTooLong { host: String, limit: usize },
    #[error("webhook {host}: its response is not a JSON object")]
    NotJsonObject { host: String },
    #[error("webhook {host}: {field}: {source}")]
    Template {
        host: String,
        /// `testExpression` or `errorMessageTemplate`.
        field: &'static str,
        source: TemplateError,
    },
    #[error("webhook {host}: testExpression does not render true, yes, false or no")]
    InvalidVerdict { host: String },
    /// The service rejected the plan. The text is that of `errorMessageTemplate`.
    #[error("{0}")]
    Rejected(String),
}

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
