//! Reads the Secrets and ConfigMaps of `varsFrom`.

use super::{ResolveError, config_refs};
use crate::inputs::{Selected, select};
use kube::Client;
use sluice_api::terraform::{KeySource, VariablesSource};

/// Returns the variables of one entry. `optional` covers an object that is missing or forbidden.
pub(super) async fn variables(
    from: &VariablesSource,
    namespace: &str,
    client: &Client,
) -> Result<Selected, ResolveError> {
    let pairs = match config_refs::pairs(from.kind, &from.name, namespace, client).await {
        Ok(pairs) => pairs,
        Err(error) if from.optional && config_refs::is_absent(&error) => return Ok(Selected::new()),
        Err(error) => {
            return Err(ResolveError::Missing {
                kind: config_refs::kind_name(from.kind),
                name: from.name.clone(),
                text: config_refs::api_message(&error),
            });
        }
    };
    select(&pairs, &from.vars_keys, from.kind == KeySource::Secret).map_err(|source| ResolveError::Pairs {
        name: from.name.clone(),
        source,
    })
}
