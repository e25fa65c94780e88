//! The object's own key: digests of its inputs and of sensitive values are keyed with it, so that they tell nothing.

use super::{Context, ResolveError, held};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use rand::RngCore;
use sluice_api::{
    annotation::TERRAFORM_LABEL,
    terraform::{Terraform, label_value},
};

const KEY: &str = "key";
const LENGTH: usize = 32;

/// The Secret's name: `<stack>-sluice-key`, cut so that it stays a name.
fn secret_name(stack: &str) -> String {
    let front: String = stack.chars().take(240).collect();
    format!("{}-sluice-key", front.trim_end_matches(['-', '.']))
}

/// Reads the key, or makes it: random, in an immutable Secret that goes with the object.
pub(super) async fn object_key(stack: &Terraform, context: &Context) -> Result<Vec<u8>, ResolveError> {
    let name = secret_name(&stack.name_any());
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &stack.namespace().unwrap_or_default());
    let failed = |error: kube::Error| ResolveError::Key {
        name: name.clone(),
        text: held::words(&error),
    };
    let uid = stack.uid().unwrap_or_default();
    let secret = match api.get_opt(&name).await.map_err(failed)? {
        // A namesake's key that is about to be collected would go in the middle of things.
        Some(found) if found.owner_references().iter().any(|owner| owner.uid == uid) => found,
        Some(_) => {
            let text = "it belongs to another object; delete it".to_owned();
            return Err(ResolveError::Key { name, text });
        }
        None => match api.create(&PostParams::default(), &fresh(&name, stack)).await {
            Ok(made) => made,
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                api.get(&name).await.map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        },
    };
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
        text: format!("its key {KEY:?} does not hold {LENGTH} bytes; delete it"),
    })
}

fn fresh(name: &str, stack: &Terraform) -> Secret {
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
