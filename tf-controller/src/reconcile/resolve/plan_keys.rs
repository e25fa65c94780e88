//! Reads the Secret of `--plan-encryption-secret` for one stack.

use super::{Context, ResolveError, config_refs};
use crate::inputs::{Holder, file_keys, plan_keys};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use sluice_api::terraform::Terraform;
use sluice_tf_core::bundle::{Bundle, PlanKey};

/// The keys of the Secret for one stack. Without keys nothing is sealed.
#[derive(Default)]
pub(super) struct SealKeys {
    /// The keys of the stack's plans and inputs.
    pub(super) plans: Vec<PlanKey>,
    /// The keys of the files that it shares with other stacks of its namespace.
    files: Vec<PlanKey>,
}

impl SealKeys {
    /// Adds the keys to a bundle.
    pub(super) fn add_to(self, bundle: &mut Bundle) {
        bundle.plan_keys = self.plans;
        bundle.file_keys = self.files;
    }
}

/// Reads the keys of this stack; none if the controller has no such Secret.
pub(super) async fn read(stack: &Terraform, context: &Context) -> Result<SealKeys, ResolveError> {
    let Some(place) = &context.plan_encryption else {
        return Ok(SealKeys::default());
    };
    let failed = |text: String| ResolveError::PlanKeys {
        name: place.to_string(),
        text,
    };
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &place.namespace);
    let secret = api
        .get(&place.name)
        .await
        .map_err(|error| failed(config_refs::api_message(&error)))?;
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
    let keys = plan_keys(&entries, holder).and_then(|plans| {
        let files = file_keys(&entries, &namespace)?;
        Ok(SealKeys { plans, files })
    });
    keys.map_err(|error| failed(error.to_string()))
}
