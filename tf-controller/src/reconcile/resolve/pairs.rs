//! Reads the Secrets and ConfigMaps of `varsFrom`.

use super::ResolveError;
use crate::inputs::{Selected, select};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use sluice_api::terraform::{KeySource, VariablesSource};
use std::collections::BTreeMap;

/// The variables of one entry. `optional` forgives whatever keeps the object from being read.
pub(super) async fn variables(
    from: &VariablesSource,
    namespace: &str,
    client: &Client,
) -> Result<Selected, ResolveError> {
    let is_secret = from.kind == KeySource::Secret;
    let read = if is_secret {
        secret(from, namespace, client).await
    } else {
        config(from, namespace, client).await
    };
    let pairs = match read {
        Ok(pairs) => pairs,
        Err(_) if from.optional => return Ok(Selected::new()),
        Err(error) => {
            let kind = if is_secret { "Secret" } else { "ConfigMap" };
            return Err(ResolveError::Missing {
                kind,
                name: from.name.clone(),
                text: error.to_string(),
            });
        }
    };
    select(&pairs, &from.vars_keys, is_secret).map_err(|source| ResolveError::Pairs {
        name: from.name.clone(),
        source,
    })
}

async fn secret(
    from: &VariablesSource,
    namespace: &str,
    client: &Client,
) -> Result<BTreeMap<String, Vec<u8>>, kube::Error> {
    let secret = Api::<Secret>::namespaced(client.clone(), namespace)
        .get(&from.name)
        .await?;
    Ok(secret
        .data
        .unwrap_or_default()
        .into_iter()
        .map(|(key, value)| (key, value.0))
        .collect())
}

async fn config(
    from: &VariablesSource,
    namespace: &str,
    client: &Client,
) -> Result<BTreeMap<String, Vec<u8>>, kube::Error> {
    let map = Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .get(&from.name)
        .await?;
    let text = map
        .data
        .unwrap_or_default()
        .into_iter()
        .map(|(key, value)| (key, value.into_bytes()));
    let binary = map
        .binary_data
        .unwrap_or_default()
        .into_iter()
        .map(|(key, value)| (key, value.0));
    Ok(text.chain(binary).collect())
}
