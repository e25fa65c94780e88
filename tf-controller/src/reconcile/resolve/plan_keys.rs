//! Reads the Secret of `--plan-encryption-secret` for one stack.

use super::{Context, ResolveError, held};
use crate::inputs::{Holder, plan_keys};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use sluice_api::terraform::Terraform;
use sluice_tf_runner::bundle::PlanKey;

/// The keys that this stack's plans are sealed with; none when the controller was given no Secret.
pub(super) async fn read(stack: &Terraform, context: &Context) -> Result<Vec<PlanKey>, ResolveError> {
    let Some(place) = &context.plan_encryption else {
        return Ok(Vec::new());
    };
    let failed = |text: String| ResolveError::PlanKeys {
        name: place.to_string(),
        text,
    };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &place.namespace);
    let secret = api
        .get(&place.name)
        .await
        .map_err(|error| failed(held::words(&error)))?;
    let entries = secret
        .data
        .unwrap_or_default()
        .into_iter()
        .map(|(name, bytes)| (name, bytes.0))
        .collect();
    let (namespace, name) = (stack.namespace().unwrap_or_default(), stack.name_any());
    let holder = Holder {
        namespace: &namespace,
        name: &name,
        uid: &stack.uid().unwrap_or_default(),
    };
    plan_keys(&entries, holder).map_err(|error| failed(error.to_string()))
}
