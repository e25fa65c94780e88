//! `spec.webhooks` for a run (pure): those that are enabled, in their order.

use sluice_api::terraform::{TerraformSpec, WebhookStage};
use sluice_tf_core::bundle::Webhook;

/// The services that are asked before a plan is stored.
#[must_use]
pub fn webhooks(spec: &TerraformSpec) -> Vec<Webhook> {
    let asked = spec
        .webhooks
        .iter()
        .filter(|webhook| webhook.enabled && webhook.stage == WebhookStage::PostPlanning);
    asked
        .map(|webhook| Webhook {
            url: webhook.url.clone(),
            payload: webhook.payload_type.clone(),
            test_expression: webhook.test_expression.clone(),
            error_message_template: webhook.error_message_template.clone(),
        })
        .collect()
}
