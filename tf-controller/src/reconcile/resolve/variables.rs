//! The variables of a stack: `values`, then `vars` in order, then `varsFrom` in order; the last of a name wins.

use serde_json::{Map, Value};
use sluice_api::terraform::{KeySource, Terraform, Variable, VariablesSource};

use super::{InputReader, ReadError, ResolveError};
use crate::inputs::{InputsError, ValuesError, Variables, decode_inputs, render_values, select_variables};

/// Why a variable has no value. Never contains a value.
#[derive(Debug, thiserror::Error)]
pub(in crate::reconcile) enum VariableError {
    /// A Secret or ConfigMap cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// `valueFrom` names a missing key.
    #[error(
        "{kind:?} {name} of vars[{variable}].valueFrom has no key {key:?}; add it, or set optional: true"
    )]
    NoKey {
        /// Kind of the object.
        kind: KeySource,
        /// Its name.
        name: String,
        /// The variable.
        variable: String,
        /// The key.
        key: String,
    },
    /// The value is not text.
    #[error("the value of key {key:?} of {kind:?} {name} is not UTF-8 text")]
    NotText {
        /// Kind of the object.
        kind: KeySource,
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// `valueFrom` has another kind.
    #[error("vars[{0}].valueFrom names neither secretKeyRef nor configMapKeyRef")]
    Source(String),
    /// A Secret does not hold valid inputs.
    #[error("Secret {name} of readInputsFromSecrets: {source}")]
    Inputs {
        /// Name of the Secret.
        name: String,
        /// Why.
        source: InputsError,
    },
    /// `values` cannot be rendered.
    #[error(transparent)]
    Values(#[from] ValuesError),
}

/// Returns all variables, in the order in which they override each other.
pub(super) async fn variables(stack: &Terraform, reader: &InputReader) -> Result<Variables, ResolveError> {
    let mut all = Variables::new();
    if let Some(values) = &stack.spec.values {
        let inputs = inputs(stack, reader).await?;
        let values = values.clone();
        // A template may take a while; other reconciliations continue meanwhile.
        let rendered = tokio::task::spawn_blocking(move || render_values(&values, inputs));
        let rendered = rendered.await.map_err(std::io::Error::other)?;
        all.push(("values".to_owned(), rendered.map_err(VariableError::from)?));
    }
    for variable in &stack.spec.vars {
        let value = match (&variable.value, &variable.value_from) {
            (Some(value), _) => Some(value.clone()),
            (None, None) => Some(Value::Null),
            (None, Some(_)) => value_from(variable, reader).await?,
        };
        all.extend(value.map(|value| (variable.name.clone(), value)));
    }
    for from in &stack.spec.vars_from {
        all.extend(variables_from(from, reader).await?);
    }
    Ok(all)
}

/// Returns the variables of one entry. `optional` covers an object that is absent.
async fn variables_from(from: &VariablesSource, reader: &InputReader) -> Result<Variables, ResolveError> {
    let pairs = match reader.read(from.kind, &from.name, "varsFrom").await {
        Ok(pairs) => pairs,
        Err(error) if from.optional && error.is_absent() => return Ok(Variables::new()),
        Err(error) => return Err(error.into()),
    };
    select_variables(&pairs, &from.vars_keys, from.kind == KeySource::Secret).map_err(|source| {
        ResolveError::Pairs {
            name: from.name.clone(),
            source,
        }
    })
}

/// Reads `readInputsFromSecrets` under the names that templates use.
async fn inputs(stack: &Terraform, reader: &InputReader) -> Result<Map<String, Value>, VariableError> {
    let mut all = Map::new();
    for input in &stack.spec.read_inputs_from_secrets {
        let pairs = reader
            .read(KeySource::Secret, &input.name, "readInputsFromSecrets")
            .await?;
        let inputs = decode_inputs(&pairs).map_err(|source| VariableError::Inputs {
            name: input.name.clone(),
            source,
        })?;
        all.insert(input.alias.clone(), Value::Object(inputs));
    }
    Ok(all)
}

/// Returns the value of `valueFrom`; `None` if it is optional and missing, so that the module's default applies.
async fn value_from(variable: &Variable, reader: &InputReader) -> Result<Option<Value>, VariableError> {
    let from = variable.value_from.as_ref();
    let secret = from.and_then(|from| from.secret_key_ref.as_ref());
    let config = from.and_then(|from| from.config_map_key_ref.as_ref());
    let (kind, name, key, optional) = match (secret, config) {
        (Some(secret), _) => (KeySource::Secret, &secret.name, &secret.key, secret.optional),
        (None, Some(config)) => (KeySource::ConfigMap, &config.name, &config.key, config.optional),
        (None, None) => return Err(VariableError::Source(variable.name.clone())),
    };
    let optional = optional.unwrap_or(false);
    let (name, key) = (name.clone(), key.clone());
    match reader.read(kind, &name, "vars[].valueFrom").await {
        Ok(mut pairs) => match pairs.remove(&key) {
            Some(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Some(Value::String(text))),
                Err(_) => Err(VariableError::NotText { kind, name, key }),
            },
            None if optional => Ok(None),
            None => Err(VariableError::NoKey {
                kind,
                name,
                variable: variable.name.clone(),
                key,
            }),
        },
        Err(error) if optional && error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
