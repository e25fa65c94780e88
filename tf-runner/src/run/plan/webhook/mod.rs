//! Post-planning webhooks: services that are asked, between the plan and its storing, whether it may go on.
//!
//! They are asked in their order, and the first that says no, or nothing that can be understood, ends the run: the plan is
//! not stored. What a service is sent is what its payload type says (the plan's JSON holds sensitive values); what it answers
//! is seen by the two templates of the webhook and by nobody else.

mod call;
mod payload;
mod verdict;

use std::path::Path;
use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;

use crate::run::lifecycle::api_retry::patiently;
use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::RunError;
use call::Caller;
use sluice_tf_core::bundle::Bundle;
use sluice_tf_core::redaction::Redactor;
use sluice_tf_core::template::TemplateError;

/// Why a plan may not go on. No text holds anything that a service answered, but for what its own message says.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The address is none.
    #[error("webhook {index}: its url is no http or https address")]
    Address {
        /// Its place in `spec.webhooks`, among those that are enabled.
        index: usize,
    },
    /// Plain http.
    #[error(
        "webhook {host}: a plan is sent in clear over http only with DISABLE_WEBHOOK_TLS_VERIFY=1 in the runner's \
         environment"
    )]
    Clear {
        /// The host.
        host: String,
    },
    /// There is no such payload.
    #[error("webhook {host}: payloadType {payload:?} is none of SpecAndPlan, SpecOnly, PlanOnly")]
    Payload {
        /// The host.
        host: String,
        /// What was asked for.
        payload: String,
    },
    /// The CLI gives no JSON of the plan.
    #[error(
        "webhook {host}: the CLI gives no JSON of a plan that it cannot save; payloadType SpecOnly has none"
    )]
    NoPlan {
        /// The host.
        host: String,
    },
    /// The plan's JSON is more than is sent.
    #[error(
        "webhook {host}: the plan's JSON has {size} bytes, more than the {limit} that are sent; payloadType SpecOnly has none"
    )]
    TooLarge {
        /// The host.
        host: String,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A certificate or key in the directory of certificates cannot be used.
    #[error("webhook {host}: cannot use the certificates in {directory}: {text}")]
    Certificates {
        /// The host.
        host: String,
        /// Where they lie.
        directory: String,
        /// Why.
        text: String,
    },
    /// There is no answer.
    #[error("webhook {host}: no answer: {text}")]
    Unreachable {
        /// The host.
        host: String,
        /// Why.
        text: String,
    },
    /// There is no answer in time.
    #[error("webhook {host}: no answer within {limit:?}")]
    Late {
        /// The host.
        host: String,
        /// How long was waited.
        limit: Duration,
    },
    /// The answer has another status than 200.
    #[error("webhook {host}: it answered with status {status}, not 200")]
    Status {
        /// The host.
        host: String,
        /// The status.
        status: u16,
    },
    /// The answer is too long.
    #[error("webhook {host}: its answer has more than {limit} bytes")]
    Long {
        /// The host.
        host: String,
        /// The limit.
        limit: usize,
    },
    /// The answer is no JSON object.
    #[error("webhook {host}: its answer is no JSON object")]
    NoObject {
        /// The host.
        host: String,
    },
    /// A template cannot be rendered.
    #[error("webhook {host}: {field}: {source}")]
    Template {
        /// The host.
        host: String,
        /// `testExpression` or `errorMessageTemplate`.
        field: &'static str,
        /// Why.
        source: TemplateError,
    },
    /// The test gives neither yes nor no.
    #[error("webhook {host}: testExpression gives none of true, yes, false, no")]
    Undecided {
        /// The host.
        host: String,
    },
    /// The service says no, in the words of `errorMessageTemplate`.
    #[error("{0}")]
    Refused(String),
}

/// Asks all of them about the plan whose JSON lies in this file; `None`: the CLI gives no JSON of it. None of `secrets` is in
/// what is told of their answers.
pub(crate) async fn ask(
    context: &Context,
    bundle: &Bundle,
    run: &TerraformRun,
    plan: Option<&Path>,
    secrets: &Redactor,
) -> Result<(), RunError> {
    if bundle.webhooks.is_empty() {
        return Ok(());
    }
    let object = object(context, run).await?;
    let caller = Caller::new(context);
    for (index, webhook) in bundle.webhooks.iter().enumerate() {
        let place = caller.place(index, &webhook.url)?;
        let body = payload::of(&place.host, &webhook.payload, &object, plan).await?;
        let answer = caller.call(&place, body).await?;
        verdict::of(&place.host, webhook, &answer, secrets)?;
    }
    Ok(())
}

/// The Terraform object with every field that it has, those of other versions included.
async fn object(context: &Context, run: &TerraformRun) -> Result<serde_json::Value, RunError> {
    let resource = ApiResource::erase::<Terraform>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), &context.settings.namespace, &resource);
    let read = patiently(context.settings.patience, || api.get(&run.spec.terraform.name)).await;
    let object = read.map_err(|source| RunError::Api {
        doing: "read the Terraform object for its webhooks",
        source,
    })?;
    Ok(serde_json::to_value(object).unwrap_or_default())
}
