//! Selects the errored state to push. Usually there is one. Of several, one is pushed only if it succeeds all others: same lineage,
//! higher serial, and all their objects. Otherwise the push would lose objects, and a user has to decide.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use serde_json::Value;

use super::{COUNT, DIGEST, INDEX, LIMIT, annotation};
use crate::chunk;

/// Age at which an incomplete state counts as abandoned.
const INCOMPLETE_TIMEOUT: SignedDuration = SignedDuration::from_hours(1);

/// The selected state.
#[derive(Debug, Default)]
pub struct Choice {
    /// The state to push, with the names of its Secrets; `None` if there is no complete state.
    pub push: Option<(Vec<u8>, Vec<String>)>,
    /// Secrets to delete after the push, in order.
    pub obsolete: Vec<String>,
}

/// No state can be selected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// All chunks exist, but do not form a state.
    #[error(
        "the errored state in the Secrets {} is damaged: add the missing resources to the state manually, and delete the Secrets",
        .0.join(", ")
    )]
    Damaged(Vec<String>),
    /// No state succeeds all others.
    #[error(
        "no errored state in the Secrets {} is the successor of all others: push the right one manually, with all objects \
         of the others, and delete the Secrets",
        .0.join(", ")
    )]
    NoSuccessor(Vec<String>),
}

/// A complete state.
struct Candidate {
    names: Vec<String>,
    bytes: Vec<u8>,
}

/// The compared part of a state.
#[derive(Deserialize)]
struct StateHeader {
    serial: u64,
    lineage: String,
    // Required: an encrypted state has no visible resources and cannot be compared.
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    module: String,
    mode: String,
    #[serde(rename = "type")]
    kind: String,
    name: String,
    #[serde(default)]
    instances: Vec<Instance>,
}

#[derive(Deserialize)]
struct Instance {
    #[serde(default)]
    index_key: Value,
    #[serde(default)]
    deposed: String,
    #[serde(default)]
    attributes: Option<Identity>,
}

#[derive(Deserialize)]
struct Identity {
    #[serde(default)]
    id: Value,
}

impl StateHeader {
    /// Returns the keys of all objects. Two objects of one resource instance differ in their id.
    fn objects(&self) -> BTreeSet<String> {
        let managed = self.resources.iter().filter(|found| found.mode == "managed");
        let each = managed.flat_map(|found| found.instances.iter().map(move |instance| (found, instance)));
        each.map(|(found, instance)| {
            let id = instance.attributes.as_ref().map(|identity| &identity.id);
            let key = (&found.module, &found.kind, &found.name);
            format!("{key:?} {} {:?} {id:?}", instance.index_key, instance.deposed)
        })
        .collect()
    }

    fn succeeds(&self, other: &Self) -> bool {
        !self.lineage.is_empty()
            && self.lineage == other.lineage
            && self.serial > other.serial
            && self.objects().is_superset(&other.objects())
    }
}

/// Selects the state to push. Recent incomplete states are left alone, since a runner may still write them.
///
/// # Errors
/// No state succeeds all others, or one is damaged.
pub fn choose(secrets: &[Secret], now: Timestamp) -> Result<Choice, ChoiceError> {
    let (mut states, mut abandoned) = (Vec::new(), Vec::new());
    let digests: BTreeSet<_> = secrets.iter().map(|secret| annotation(secret, DIGEST)).collect();
    for digest in &digests {
        let has_digest = |secret: &&Secret| annotation(secret, DIGEST) == *digest;
        let chunks: Vec<_> = secrets.iter().filter(has_digest).collect();
        let names: Vec<_> = chunks.iter().map(|chunk| name(chunk)).collect();
        match decode(&chunks, digest) {
            Some(bytes) => states.push(Candidate { names, bytes }),
            None if is_complete(&chunks) => return Err(ChoiceError::Damaged(names)),
            None if is_abandoned(&chunks, now) => abandoned.extend(names),
            None => {}
        }
    }
    let push = newest(&states)?.map(|at| states.swap_remove(at));
    // The pushed state is deleted last: without it, the others would look current.
    let others = states.into_iter().flat_map(|state| state.names);
    let pushed = push.iter().flat_map(|state| state.names.clone());
    Ok(Choice {
        obsolete: others.chain(abandoned).chain(pushed).collect(),
        push: push.map(|state| (state.bytes, state.names)),
    })
}

/// Returns the index of the state that succeeds all others, if there is any state.
fn newest(states: &[Candidate]) -> Result<Option<usize>, ChoiceError> {
    if states.len() < 2 {
        return Ok((!states.is_empty()).then_some(0)); // the CLI validates it
    }
    let successor = || {
        let read = |state: &Candidate| serde_json::from_slice::<StateHeader>(&state.bytes).ok();
        let headers: Vec<_> = states.iter().map(read).collect::<Option<_>>()?;
        let (at, newest) = headers
            .iter()
            .enumerate()
            .max_by_key(|(_, header)| header.serial)?;
        let mut others = headers.iter().enumerate().filter(|(other, _)| *other != at);
        others.all(|(_, other)| newest.succeeds(other)).then_some(at)
    };
    successor().map(Some).ok_or_else(|| {
        let names = states.iter().flat_map(|state| state.names.clone());
        ChoiceError::NoSuccessor(names.collect())
    })
}

fn name(secret: &Secret) -> String {
    secret.metadata.name.clone().unwrap_or_default()
}

fn index(secret: &Secret) -> Option<usize> {
    annotation(secret, INDEX).parse().ok()
}

/// Whether no chunk is missing, as far as known.
fn is_complete(chunks: &[&Secret]) -> bool {
    let count = chunks
        .first()
        .and_then(|chunk| annotation(chunk, COUNT).parse().ok());
    let found: BTreeSet<_> = chunks.iter().filter_map(|chunk| index(chunk)).collect();
    count.is_none_or(|count: usize| found.len() >= count)
}

/// Whether the chunks are too old for a runner to still write the rest.
fn is_abandoned(chunks: &[&Secret], now: Timestamp) -> bool {
    let created = |chunk: &&Secret| chunk.metadata.creation_timestamp.as_ref().map(|time| time.0);
    chunks
        .iter()
        .all(|chunk| created(chunk).is_some_and(|created| now.duration_since(created) > INCOMPLETE_TIMEOUT))
}

/// Decodes a state from its chunks, if it is complete.
fn decode(chunks: &[&Secret], digest: &str) -> Option<Vec<u8>> {
    let mut chunks = chunks.to_vec();
    chunks.sort_by_key(|chunk| index(chunk).unwrap_or(usize::MAX));
    let packed = chunk::join(chunks.iter().filter_map(|secret| secret.data.as_ref()), "state");
    (super::digest(&packed) == digest)
        .then(|| chunk::decompress(&packed, LIMIT).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::super::tests::stored;
    use super::*;

    fn now() -> Timestamp {
        "2026-11-21T11:37:00Z".parse().unwrap()
    }

    fn state(lineage: &str, serial: u64, ids: &[&str], more: &str) -> Vec<u8> {
        let instance = |id: &&str| json!({ "index_key": id, "attributes": { "id": id } });
        let instances: Vec<_> = ids.iter().map(instance).collect();
        let resource = json!({ "mode": "managed", "type": "t", "name": "it", "instances": instances });
        let state = json!({ "version": 4, "serial": serial, "lineage": lineage, "resources": [resource], "more": more });
        state.to_string().into_bytes()
    }

    /// As [`state`], with a digest below or above that of another.
    fn state_with_digest_order(other: &[Secret], below: bool, state: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
        let states = (0..).map(|n| state(&format!("{n}")));
        let mut matching = states.filter(|state| {
            let secrets = stored(state);
            let digest = annotation(&secrets[0], DIGEST);
            (digest < annotation(&other[0], DIGEST)) == below
        });
        matching.next().unwrap()
    }

    #[test]
    fn an_incomplete_errored_state_is_not_read() {
        let secrets = stored(b"{\"serial\": 4}");
        let choice = choose(&secrets, now()).unwrap();
        assert_eq!(choice.push.unwrap().0, b"{\"serial\": 4}");
        assert_eq!(choice.obsolete, [name(&secrets[0])]);
        let mut broken = secrets.clone();
        broken[0].data.as_mut().unwrap().get_mut("state").unwrap().0.pop();
        assert_eq!(
            choose(&broken, now()).unwrap_err(),
            ChoiceError::Damaged(vec![name(&broken[0])])
        );
        let mut incomplete = broken;
        let annotations = incomplete[0].metadata.annotations.as_mut().unwrap();
        annotations.insert(COUNT.to_owned(), "2".to_owned());
        for (age, is_removed) in [(59, false), (61, true)] {
            let created = now() - SignedDuration::from_mins(age);
            incomplete[0].metadata.creation_timestamp = Some(Time(created));
            let choice = choose(&incomplete, now()).unwrap();
            assert!(
                choice.push.is_none() && choice.obsolete.is_empty() != is_removed,
                "{age} min"
            );
        }
        assert!(choose(&[], now()).unwrap().push.is_none());
    }

    #[test]
    fn the_successor_of_two_errored_states_is_pushed() {
        for below in [true, false] {
            let older = stored(&state("l", 4, &["a"], ""));
            let newer = state_with_digest_order(&older, below, |more| state("l", 5, &["a", "b"], more));
            let all = [older.clone(), stored(&newer)].concat();
            let choice = choose(&all, now()).unwrap();
            let (pushed, names) = choice.push.unwrap();
            assert_eq!((pushed, names), (newer.clone(), vec![name(&stored(&newer)[0])]));
            assert_eq!(choice.obsolete, [name(&older[0]), name(&stored(&newer)[0])]);
        }
    }

    #[test]
    fn a_state_with_unreadable_objects_has_no_successor() {
        let encrypted = json!({ "serial": 4, "lineage": "l", "encrypted_data": "eA==" }).to_string();
        let all = [stored(encrypted.as_bytes()), stored(&state("l", 5, &["a"], ""))].concat();
        assert!(matches!(choose(&all, now()), Err(ChoiceError::NoSuccessor(_))));
    }

    #[test]
    fn unrelated_errored_states_are_not_pushed() {
        let first = state("l", 4, &["a"], "");
        for (what, other) in [
            ("another lineage", state("m", 5, &["a"], "")),
            ("no lineage", state("", 5, &["a"], "")),
            ("the same serial", state("l", 4, &["a"], "x")),
            ("less in it", state("l", 5, &["b"], "")),
            ("no state at all", b"no json".to_vec()),
        ] {
            for below in [true, false] {
                let (one, two) = (stored(&first), stored(&other));
                let all = if below {
                    [one, two].concat()
                } else {
                    [two, one].concat()
                };
                let error = choose(&all, now()).unwrap_err();
                let ChoiceError::NoSuccessor(names) = &error else {
                    unreachable!("{what}: {error}")
                };
                assert_eq!(names.len(), 2, "{what}");
                assert!(names.iter().all(|name| error.to_string().contains(name)));
            }
        }
    }
}
