//! Reads the Secrets and ConfigMaps of `varsFrom`.

use super::{ResolveError, held};
use crate::inputs::{Selected, select};
use kube::Client;
use sluice_api::terraform::{KeySource, VariablesSource};

/// The variables of one entry. `optional` forgives an object that is not there, or not to be seen.
pub(super) async fn variables(
    from: &VariablesSource,
    namespace: &str,
    client: &Client,
) -> Result<Selected, ResolveError> {
    let pairs = match held::pairs(from.kind, &from.name, namespace, client).await {
        Ok(pairs) => pairs,
        Err(error) if from.optional && held::is_absent(&error) => return Ok(Selected::new()),
        Err(error) => {
            return Err(ResolveError::Missing {
                kind: held::kind_name(from.kind),
                name: from.name.clone(),
                text: held::words(&error),
            });
        }
    };
    select(&pairs, &from.vars_keys, from.kind == KeySource::Secret).map_err(|source| ResolveError::Pairs {
        name: from.name.clone(),
        source,
    })
}
