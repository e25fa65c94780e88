//! Status writes: one JSON merge patch with the `resourceVersion` and the difference of before and after.
//!
//! Never server-side apply: combined with the merge patches of other controllers it does not clear omitted fields and
//! deletes foreign conditions. [`difference`] is pure, [`apply`] is the only writer.

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Maximum number of attempts after conflicts with other writers.
const MAX_ATTEMPTS: u32 = 5;

/// The result of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied<K> {
    /// No difference, so no request was sent; the object as passed in.
    Unchanged(K),
    /// The object as returned by the API.
    Written(K),
    /// The object was deleted, or replaced by another one of the same name.
    Gone,
}

impl<K> Applied<K> {
    /// Returns the latest version of the object, unless it was deleted.
    pub fn object(self) -> Option<K> {
        match self {
            Self::Unchanged(object) | Self::Written(object) => Some(object),
            Self::Gone => None,
        }
    }

    /// Converts the object.
    #[must_use]
    pub fn map<T>(self, convert: impl FnOnce(K) -> T) -> Applied<T> {
        match self {
            Self::Unchanged(object) => Applied::Unchanged(convert(object)),
            Self::Written(object) => Applied::Written(convert(object)),
            Self::Gone => Applied::Gone,
        }
    }
}

/// A status or finalizer could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The API rejected the request or did not respond.
    #[error("cannot write {what} of {kind} {name}")]
    Api {
        /// `status` or `finalizers`.
        what: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// Error of the client.
        #[source]
        source: Box<kube::Error>,
    },
    /// Each attempt had a conflict with another writer.
    #[error("cannot write {what} of {kind} {name}: {MAX_ATTEMPTS} conflicts in a row")]
    Conflicts {
        /// `status` or `finalizers`.
        what: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
    },
    /// A status cannot be serialized.
    #[error("the status has no JSON form")]
    Form(#[from] serde_json::Error),
}

/// Writes the status that `compute` returns for an object.
///
/// `compute` is called with `seen`, and again with the current object after each conflict. It must build the complete status
/// from the results of the reconciliation *and* the object that it receives. Conditions of types outside `owned` are
/// retained, whatever `compute` returns. Sends no request without a difference.
///
/// # Errors
/// The API rejects the request or cannot be reached, or each of 5 attempts had a conflict. A deleted object is not an error.
pub async fn apply<K, S>(
    api: &Api<K>,
    seen: &K,
    owned: &[&str],
    compute: impl Fn(&K) -> S,
) -> Result<Applied<K>, WriteError>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    S: Serialize,
{
    write(api, seen, Part::Status, |object| {
        let before = serde_json::to_value(object)?
            .get("status")
            .cloned()
            .unwrap_or(Value::Null);
        let mut after = serde_json::to_value(compute(object))?;
        retain_foreign_conditions(&before, &mut after, owned);
        Ok(difference(&before, &after).map(|patch| json!({ "status": patch })))
    })
    .await
}

/// The part of an object that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The status subresource.
    Status,
    /// The finalizers in the metadata.
    Finalizers,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Finalizers => "finalizers",
        }
    }
}

/// Sends the merge patch that `patch` returns for the object, with the object's `resourceVersion`; after a conflict, reads
/// the object again and retries.
pub(crate) async fn write<K>(
    api: &Api<K>,
    seen: &K,
    part: Part,
    patch: impl Fn(&K) -> Result<Option<Value>, WriteError>,
) -> Result<Applied<K>, WriteError>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let name = seen.name_any();
    let kind = || K::kind(&()).into_owned();
    let failed = |source| WriteError::Api {
        what: part.name(),
        kind: kind(),
        name: name.clone(),
        source: Box::new(source),
    };
    let mut object = seen.clone();
    for _ in 0..MAX_ATTEMPTS {
        let Some(mut body) = patch(&object)? else {
            return Ok(Applied::Unchanged(object));
        };
        body["metadata"]["resourceVersion"] = json!(object.resource_version());
        let (params, body) = (PatchParams::default(), Patch::Merge(body));
        let sent = match part {
            Part::Status => api.patch_status(&name, &params, &body).await,
            Part::Finalizers => api.patch(&name, &params, &body).await,
        };
        let refusal = match sent {
            Ok(written) => return Ok(Applied::Written(written)),
            Err(error @ kube::Error::Api(_)) => error,
            Err(error) => return Err(failed(error)),
        };
        let kube::Error::Api(status) = &refusal else {
            return Err(failed(refusal));
        };
        if status.code != 409 && status.code != 404 {
            return Err(failed(refusal));
        }
        match api.get_opt(&name).await.map_err(failed)? {
            Some(fresh) if fresh.meta().uid == seen.meta().uid => {
                // The object exists, but its kind has no status subresource: a retry cannot succeed.
                if status.code == 404 {
                    return Err(failed(refusal));
                }
                object = fresh;
            }
            _ => return Ok(Applied::Gone),
        }
    }
    Err(WriteError::Conflicts {
        what: part.name(),
        kind: kind(),
        name,
    })
}

/// Returns the merge patch (RFC 7396) from `before` to `after`, or `None` if they are equal. Removed keys are `null`; lists are replaced
/// as a whole. `null` members count as absent on both sides.
#[must_use]
pub fn difference(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let patch = object_difference(before, after);
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        // The target becomes an object in any case, so its nulls can be omitted.
        (_, Value::Object(after)) => Some(Value::Object(object_difference(&Map::new(), after))),
        _ => (before != after).then(|| after.clone()),
    }
}

fn object_difference(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for (key, held) in before {
        if !held.is_null() && after.get(key).is_none_or(Value::is_null) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    for (key, wanted) in after.iter().filter(|(_, wanted)| !wanted.is_null()) {
        if let Some(change) = difference(before.get(key).unwrap_or(&Value::Null), wanted) {
            patch.insert(key.clone(), change);
        }
    }
    patch
}

/// Restores in `after` the conditions of `before` whose type is not in `owned`: they belong to another controller.
pub fn retain_foreign_conditions(before: &Value, after: &mut Value, owned: &[&str]) {
    let foreign: Vec<Value> = conditions(before)
        .filter(|held| !owned.contains(&type_of(held)))
        .cloned()
        .collect();
    if foreign.is_empty() {
        return;
    }
    if after.is_null() {
        *after = Value::Object(Map::new());
    }
    let Value::Object(after) = after else { return };
    let list = after
        .entry("conditions")
        .or_insert_with(|| Value::Array(Vec::new()));
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    let Value::Array(list) = list else { return };
    for held in foreign {
        match list.iter_mut().find(|wanted| type_of(wanted) == type_of(&held)) {
            Some(wanted) => *wanted = held,
            None => list.push(held),
        }
    }
}

fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    status
        .get("conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn type_of(condition: &Value) -> &str {
    condition.get("type").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
