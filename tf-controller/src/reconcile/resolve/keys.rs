//! The keys of a run: the object's own key, with which digests of its inputs and of sensitive values are keyed, so that they
//! reveal nothing; and the keys that seal its plans.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use rand::RngCore;
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::terraform::{Terraform, label_value};
use sluice_tf_core::bundle::{Bundle, PlanKey};

use super::bundle::identity;
use super::reader::read_secret;
use super::{Context, ResolveError, api_message};
use crate::inputs::{file_keys, plan_keys, state_copy_keys};

const KEY: &str = "key";
const LENGTH: usize = 32;

/// Returns the name of the Secret: `<stack>-sluice-key`, shortened to a valid name.
fn secret_name(stack: &str) -> String {
    let prefix: String = stack.chars().take(240).collect();
    format!("{}-sluice-key", prefix.trim_end_matches(['-', '.']))
}

/// Reads or creates the key: random, in an immutable Secret that the object owns.
pub(super) async fn object_key(stack: &Terraform, context: &Context) -> Result<Vec<u8>, ResolveError> {
    let name = secret_name(&stack.name_any());
    let api: Api<Secret> = context.api_of(stack);
    let failed = |error: kube::Error| ResolveError::Key {
        name: name.clone(),
        text: api_message(&error),
    };
    let uid = stack.uid().unwrap_or_default();
    // A new stack has no key, so no request looks for it.
    let is_new = stack
        .status
        .as_ref()
        .is_none_or(|status| status.last_attempted_revision.is_empty());
    let found = if is_new {
        None
    } else {
        api.get_opt(&name).await.map_err(failed)?
    };
    let secret = match found {
        Some(found) => found,
        None => match api
            .create(&PostParams::default(), &new_secret(&name, stack))
            .await
        {
            Ok(created) => created,
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                api.get(&name).await.map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        },
    };
    // The key of an earlier object of the same name would be deleted later, at any time.
    if !secret.owner_references().iter().any(|owner| owner.uid == uid) {
        let text = "it belongs to another object; delete it".to_owned();
        return Err(ResolveError::Key { name, text });
    }
    let bytes = secret
        .data
        .and_then(|mut data| data.remove(KEY))
        .map(|bytes| bytes.0)
        .unwrap_or_default();
    if bytes.len() == LENGTH {
        return Ok(bytes);
    }
    Err(ResolveError::Key {
        name,
        text: format!("its key {KEY:?} does not have {LENGTH} bytes; delete it"),
    })
}

fn new_secret(name: &str, stack: &Terraform) -> Secret {
    let mut bytes = vec![0; LENGTH];
    rand::rng().fill_bytes(&mut bytes);
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(TERRAFORM_LABEL.to_owned(), label_value(&stack.name_any()))].into()),
            owner_references: super::super::owner(stack).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some([(KEY.to_owned(), ByteString(bytes))].into()),
        ..Secret::default()
    }
}

/// The keys of the Secret for one stack. Without keys nothing is sealed.
#[derive(Default)]
pub(super) struct SealKeys {
    /// The keys of the stack's plans and inputs.
    pub(super) plans: Vec<PlanKey>,
    /// The keys of the files that it shares with other stacks of its namespace.
    files: Vec<PlanKey>,
    /// The keys of the copies of its state.
    state_copies: Vec<PlanKey>,
}

impl SealKeys {
    /// Adds the keys to a bundle.
    pub(super) fn add_to(self, bundle: &mut Bundle) {
        bundle.plan_keys = self.plans;
        bundle.file_keys = self.files;
        bundle.state_copies.keys = self.state_copies;
    }
}

/// Reads the keys of this stack; none if the controller has no such Secret.
pub(super) async fn seal_keys(stack: &Terraform, context: &Context) -> Result<SealKeys, ResolveError> {
    let Some(secret) = &context.plan_encryption else {
        return Ok(SealKeys::default());
    };
    let failed = |text: String| ResolveError::PlanKeys {
        name: secret.to_string(),
        text,
    };
    let read = read_secret(secret, &context.client).await;
    let entries = read.map_err(|error| failed(api_message(&error)))?;
    let stack = identity(stack);
    let keys = plan_keys(&entries, &stack).and_then(|plans| {
        let files = file_keys(&entries, &stack.namespace)?;
        let state_copies = state_copy_keys(&entries, &stack)?;
        Ok(SealKeys {
            plans,
            files,
            state_copies,
        })
    });
    keys.map_err(|error| failed(error.to_string()))
}
