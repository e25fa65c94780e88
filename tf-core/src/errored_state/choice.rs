//! Which of the kept states is pushed (pure). Most often there is one. Where there are more, one is the stack's state only if it
//! is the successor of all others: of their lineage, with a higher serial, and with every object that they hold. Else something
//! would be forgotten, and a person has to look.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use serde_json::Value;

use super::{COUNT, DIGEST, INDEX, LIMIT, held};
use crate::chunk;

/// How long pieces may wait for the rest of their state.
const UNFINISHED: SignedDuration = SignedDuration::from_hours(1);

/// What is done with the kept states of a stack.
#[derive(Debug, Default)]
pub struct Choice {
    /// The state to push, with the names of its Secrets; `None` where no whole state is kept.
    pub push: Option<(Vec<u8>, Vec<String>)>,
    /// Secrets with nothing that is still needed once the state is pushed, in the order in which they go.
    pub done: Vec<String>,
}

/// Why none is pushed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// All pieces are there and make no state.
    #[error(
        "what the Secrets {} hold is damaged: look what the state lacks, mend it by hand, and delete them",
        .0.join(", ")
    )]
    Damaged(Vec<String>),
    /// None of several is the newest for certain.
    #[error(
        "the Secrets {} hold states of which none is the successor of all others: push the right one by hand, with all \
         objects of the others, and delete the Secrets",
        .0.join(", ")
    )]
    NoSuccessor(Vec<String>),
}

/// One kept state.
struct Kept {
    names: Vec<String>,
    bytes: Vec<u8>,
}

/// What is compared of a state.
#[derive(Deserialize)]
struct Heading {
    serial: u64,
    lineage: String,
    // One that is encrypted has none to be seen: nothing is known of what it holds.
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

impl Heading {
    /// The objects that it holds: those that two applies made of one resource are two.
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

/// Chooses the state to push. The chunks of an unfinished write are not a state; recent ones are kept, since they may become one.
///
/// # Errors
/// The states cannot be ordered, or one cannot be read.
pub fn choose(secrets: &[Secret], now: Timestamp) -> Result<Choice, ChoiceError> {
    let (mut states, mut pieces) = (Vec::new(), Vec::new());
    let digests: BTreeSet<_> = secrets.iter().map(|secret| held(secret, DIGEST)).collect();
    for digest in &digests {
        let of_it = |secret: &&Secret| held(secret, DIGEST) == *digest;
        let chunks: Vec<_> = secrets.iter().filter(of_it).collect();
        let names: Vec<_> = chunks.iter().map(|chunk| name(chunk)).collect();
        match state(&chunks, digest) {
            Some(bytes) => states.push(Kept { names, bytes }),
            None if is_complete(&chunks) => return Err(ChoiceError::Damaged(names)),
            None if is_abandoned(&chunks, now) => pieces.extend(names),
            None => {}
        }
    }
    let push = newest(&states)?.map(|at| states.swap_remove(at));
    // The pushed one goes last: of the others alone nobody could tell that they are done with.
    let others = states.into_iter().flat_map(|kept| kept.names);
    let pushed = push.iter().flat_map(|kept| kept.names.clone());
    Ok(Choice {
        done: others.chain(pieces).chain(pushed).collect(),
        push: push.map(|kept| (kept.bytes, kept.names)),
    })
}

/// The successor of all others, if there is a state at all.
fn newest(states: &[Kept]) -> Result<Option<usize>, ChoiceError> {
    if states.len() < 2 {
        return Ok((!states.is_empty()).then_some(0)); // whatever it is, the CLI knows whether it takes it
    }
    let successor = || {
        let read = |kept: &Kept| serde_json::from_slice::<Heading>(&kept.bytes).ok();
        let headings: Vec<_> = states.iter().map(read).collect::<Option<_>>()?;
        let (at, newest) = headings
            .iter()
            .enumerate()
            .max_by_key(|(_, heading)| heading.serial)?;
        let mut others = headings.iter().enumerate().filter(|(other, _)| *other != at);
        others.all(|(_, other)| newest.succeeds(other)).then_some(at)
    };
    successor().map(Some).ok_or_else(|| {
        let names = states.iter().flat_map(|kept| kept.names.clone());
        ChoiceError::NoSuccessor(names.collect())
    })
}

fn name(secret: &Secret) -> String {
    secret.metadata.name.clone().unwrap_or_default()
}

fn index(secret: &Secret) -> Option<usize> {
    held(secret, INDEX).parse().ok()
}

/// Whether no piece is missing, as far as is known.
fn is_complete(chunks: &[&Secret]) -> bool {
    let count = chunks.first().and_then(|chunk| held(chunk, COUNT).parse().ok());
    let found: BTreeSet<_> = chunks.iter().filter_map(|chunk| index(chunk)).collect();
    count.is_none_or(|count: usize| found.len() >= count)
}

/// Whether whoever wrote these pieces writes no more of them: a runner that is thought to be gone may live.
fn is_abandoned(chunks: &[&Secret], now: Timestamp) -> bool {
    let made = |chunk: &&Secret| chunk.metadata.creation_timestamp.as_ref().map(|time| time.0);
    chunks
        .iter()
        .all(|chunk| made(chunk).is_some_and(|made| now.duration_since(made) > UNFINISHED))
}

/// The state out of its pieces, if it is whole.
fn state(chunks: &[&Secret], digest: &str) -> Option<Vec<u8>> {
    let mut chunks = chunks.to_vec();
    chunks.sort_by_key(|chunk| index(chunk).unwrap_or(usize::MAX));
    let packed = chunk::joined(chunks.iter().filter_map(|secret| secret.data.as_ref()), "state");
    (super::digest(&packed) == digest)
        .then(|| chunk::decompress(&packed, LIMIT).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::super::tests::kept;
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

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
    fn beside(other: &[Secret], below: bool, state: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
        let made = (0..).map(|n| state(&format!("{n}")));
        let mut of_order = made.filter(|state| {
            let digest = held(&kept(state)[0], DIGEST);
            (digest < held(&other[0], DIGEST)) == below
        });
        of_order.next().unwrap()
    }

    #[test]
    fn a_kept_state_is_read_only_when_it_is_whole() {
        let secrets = kept(b"{\"serial\": 4}");
        let choice = choose(&secrets, now()).unwrap();
        assert_eq!(choice.push.unwrap().0, b"{\"serial\": 4}");
        assert_eq!(choice.done, [name(&secrets[0])]);
        let mut broken = secrets.clone();
        broken[0].data.as_mut().unwrap().get_mut("state").unwrap().0.pop();
        assert_eq!(
            choose(&broken, now()).unwrap_err(),
            ChoiceError::Damaged(vec![name(&broken[0])])
        );
        let mut part = broken;
        let marks = part[0].metadata.annotations.as_mut().unwrap();
        marks.insert(COUNT.to_owned(), "2".to_owned());
        for (age, gone) in [(59, false), (61, true)] {
            let made = now() - SignedDuration::from_mins(age);
            part[0].metadata.creation_timestamp = Some(Time(made));
            let choice = choose(&part, now()).unwrap();
            assert!(
                choice.push.is_none() && choice.done.is_empty() != gone,
                "{age} min"
            );
        }
        assert!(choose(&[], now()).unwrap().push.is_none());
    }

    #[test]
    fn of_two_states_the_successor_is_pushed_whatever_their_digests() {
        for below in [true, false] {
            let older = kept(&state("l", 4, &["a"], ""));
            let newer = beside(&older, below, |more| state("l", 5, &["a", "b"], more));
            let all = [older.clone(), kept(&newer)].concat();
            let choice = choose(&all, now()).unwrap();
            let (pushed, names) = choice.push.unwrap();
            assert_eq!((pushed, names), (newer.clone(), vec![name(&kept(&newer)[0])]));
            assert_eq!(choice.done, [name(&older[0]), name(&kept(&newer)[0])]);
        }
    }

    #[test]
    fn a_state_whose_objects_are_not_to_be_seen_is_succeeded_by_none() {
        let encrypted = json!({ "serial": 4, "lineage": "l", "encrypted_data": "eA==" }).to_string();
        let all = [kept(encrypted.as_bytes()), kept(&state("l", 5, &["a"], ""))].concat();
        assert!(matches!(choose(&all, now()), Err(ChoiceError::NoSuccessor(_))));
    }

    #[test]
    fn of_states_that_are_no_successors_of_each_other_none_is_pushed() {
        let first = state("l", 4, &["a"], "");
        for (what, other) in [
            ("another lineage", state("m", 5, &["a"], "")),
            ("no lineage", state("", 5, &["a"], "")),
            ("the same serial", state("l", 4, &["a"], "x")),
            ("less in it", state("l", 5, &["b"], "")),
            ("no state at all", b"no json".to_vec()),
        ] {
            for below in [true, false] {
                let (one, two) = (kept(&first), kept(&other));
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
