//! One status write per report: the difference of before and after as a JSON merge patch with `resourceVersion`.
//!
//! Never server-side apply: next to the merge patches of other controllers it does not clear what is omitted and
//! deletes foreign conditions. [`difference`] is pure, [`apply`] is the one writer.

mod difference;

pub use difference::{difference, keep_foreign_conditions};

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How often a write that lost against another writer is computed again.
pub const TRIES: u32 = 5;

/// What came of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied<K> {
    /// Nothing differed, nothing was sent; the object as it was seen.
    Unchanged(K),
    /// The object as the API answered it.
    Written(K),
    /// The object is gone, or another of the same name stands in its place.
    Gone,
}

impl<K> Applied<K> {
    /// The newest known form of the object, unless it is gone.
    pub fn object(self) -> Option<K> {
        match self {
            Self::Unchanged(object) | Self::Written(object) => Some(object),
            Self::Gone => None,
        }
    }
}

/// Why a status or finalizer could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The API refused or did not answer.
    #[error("cannot write {what} of {kind} {name}")]
    Api {
        /// `status` or `finalizers`.
        what: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// What the client said.
        #[source]
        source: Box<kube::Error>,
    },
    /// Other writers were faster each time.
    #[error("cannot write {what} of {kind} {name}: {TRIES} conflicts in a row")]
    Conflicts {
        /// `status` or `finalizers`.
        what: &'static str,
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
    },
    /// A status has no JSON form.
    #[error("the status has no JSON form")]
    Form(#[from] serde_json::Error),
}

/// Writes the status that `compute` makes of an object.
///
/// `compute` is called with `seen`, and again with a freshly read object after each conflict (its duty: build the
/// whole status from what the pass found *and* the object it is given). Condition types outside `owned` are kept as
/// they stand, whatever `compute` returns. Nothing is sent when nothing differs.
///
/// # Errors
/// The API refuses or cannot be reached, or there were [`TRIES`] conflicts in a row. An object that is gone is no error.
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
        keep_foreign_conditions(&before, &mut after, owned);
        Ok(difference(&before, &after).map(|patch| json!({ "status": patch })))
    })
    .await
}

/// The part of an object that a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Through the status subresource.
    Status,
    /// The list in the metadata.
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

/// Sends the merge patch that `patch` makes of the object, with the object's `resourceVersion`; a conflict reads the
/// object again and starts over.
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
    for _ in 0..TRIES {
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
                // Not found, yet there: the kind has no status subresource. Trying again would not help.
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

#[cfg(test)]
mod tests;
