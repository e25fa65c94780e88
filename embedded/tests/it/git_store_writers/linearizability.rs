//! Checks the answers that concurrent clients got about one object against its versions in the store.
//!
//! The versions are the one order of the writes. Each acknowledged write has to be in it once, a refused one never, preconditions have
//! to hold in it, and it must not contradict real time. A server may lag behind the writes of another server, but never behind what it
//! has answered itself: reads and refusals have to fit a version between these two.

use std::collections::BTreeSet;

/// The request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Create the object.
    Create,
    /// Replace the object if it has this resourceVersion.
    Update(u64),
    /// Change the object, whatever its version.
    Patch,
    /// Delete the object if it has this resourceVersion.
    Delete(u64),
    /// Read the object.
    Read,
}

/// The answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The write is stored with this version. The answer to a deletion has none.
    Stored(Option<u64>),
    /// The object has this version; `None` if it does not exist.
    Found(Option<u64>),
    /// 409 `AlreadyExists`.
    Exists,
    /// 404.
    Missing,
    /// 409 Conflict: another version.
    Conflict,
    /// 409 Conflict: other processes were faster each time. The write is not stored, whatever the version is.
    Outpaced,
    /// An error of the store. The write may be stored or not.
    Unknown,
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// Number of the server.
    pub(crate) server: usize,
    /// When the request was sent. Times are numbers of one counter.
    pub(crate) start: u64,
    /// When its answer was there.
    pub(crate) end: u64,
    /// The unique text that the write stores.
    pub(crate) token: String,
    /// The request.
    pub(crate) action: Action,
    /// The answer of the server.
    pub(crate) answer: Answer,
}

/// A version of the object in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Its resourceVersion.
    pub(crate) revision: u64,
    /// The text of its write; `None` if the object was removed.
    pub(crate) token: Option<String>,
}

/// Checks the operations on an object. The error is the first contradiction.
pub(crate) fn check(versions: &[Version], operations: &[Operation]) -> Result<(), String> {
    check_revisions(versions)?;
    let writes = writes_of(versions, operations)?;
    check_acknowledged(operations, &writes)?;
    for (number, write) in writes.iter().enumerate() {
        check_precondition(versions, number, &operations[*write])?;
    }
    check_order(operations, &writes)?;
    check_answers(versions, operations, &writes)
}

fn check_revisions(versions: &[Version]) -> Result<(), String> {
    let mut pairs = versions.windows(2);
    let falling = pairs.find(|pair| pair[0].revision >= pair[1].revision);
    falling.map_or(Ok(()), |pair| Err(format!("versions do not rise: {pair:?}")))
}

/// Returns for each version the number of the operation that wrote it.
fn writes_of(versions: &[Version], operations: &[Operation]) -> Result<Vec<usize>, String> {
    let mut tokens = BTreeSet::new();
    let mut found = Vec::new();
    for (number, version) in versions.iter().enumerate() {
        if version.token.as_ref().is_some_and(|token| !tokens.insert(token)) {
            return Err(format!("the write of {version:?} is stored twice"));
        }
        let before = number.checked_sub(1).map(|number| &versions[number]);
        let mut candidates: Vec<usize> = (0..operations.len())
            .filter(|number| can_have_written(&operations[*number], before, version))
            .collect();
        // An acknowledged deletion has done it, rather than one whose outcome is unknown.
        candidates.sort_by_key(|number| operations[*number].answer == Answer::Unknown);
        let first = candidates.first();
        found.push(*first.ok_or_else(|| format!("no write that may be stored made {version:?}"))?);
    }
    Ok(found)
}

/// Whether an operation can have made a version.
fn can_have_written(operation: &Operation, before: Option<&Version>, version: &Version) -> bool {
    let acknowledged = match &version.token {
        Some(token) if *token == operation.token => Answer::Stored(Some(version.revision)),
        None if before.is_some_and(|before| operation.action == Action::Delete(before.revision)) => {
            Answer::Stored(None)
        }
        _ => return false,
    };
    operation.answer == acknowledged || operation.answer == Answer::Unknown
}

fn check_acknowledged(operations: &[Operation], writes: &[usize]) -> Result<(), String> {
    for (number, operation) in operations.iter().enumerate() {
        let count = writes.iter().filter(|write| **write == number).count();
        if matches!(operation.answer, Answer::Stored(_)) && count != 1 {
            return Err(format!(
                "acknowledged, and {count} times in the store: {operation:?}"
            ));
        }
    }
    Ok(())
}

/// Checks that a write was permitted on top of the version before it.
fn check_precondition(versions: &[Version], number: usize, write: &Operation) -> Result<(), String> {
    let before = number.checked_sub(1).map(|number| &versions[number]);
    let existing = before.filter(|before| before.token.is_some());
    let holds = match write.action {
        Action::Create => existing.is_none(),
        Action::Patch => existing.is_some(),
        Action::Update(revision) | Action::Delete(revision) => {
            existing.is_some_and(|existing| existing.revision == revision)
        }
        Action::Read => false,
    };
    if holds {
        Ok(())
    } else {
        Err(format!("stored on top of {before:?}: {write:?}"))
    }
}

/// Checks that no write is before one that had ended when it began.
fn check_order(operations: &[Operation], writes: &[usize]) -> Result<(), String> {
    let mut earliest: Option<&Operation> = None;
    for write in writes.iter().rev().map(|number| &operations[*number]) {
        if let Some(later) = earliest.filter(|later| later.end < write.start) {
            return Err(format!(
                "stored before a write that had ended: {write:?}, {later:?}"
            ));
        }
        let is_earlier = earliest.is_none_or(|earliest| write.end < earliest.end);
        if write.answer != Answer::Unknown && is_earlier {
            earliest = Some(write);
        }
    }
    Ok(())
}

/// Checks that each answer fits one of the states that its server can have had. State 0 is before the first version, and state N after
/// version number N - 1.
fn check_answers(versions: &[Version], operations: &[Operation], writes: &[usize]) -> Result<(), String> {
    let answered: Vec<Option<usize>> = (0..operations.len())
        .map(|number| state_of(versions, writes, number, operations[number].answer))
        .collect();
    for operation in operations {
        let newest = writes
            .iter()
            .take_while(|write| operations[**write].start < operation.end)
            .count();
        let earlier = operations.iter().zip(&answered);
        let known = earlier
            .filter(|(earlier, _)| earlier.server == operation.server && earlier.end < operation.start)
            .filter_map(|(_, state)| *state)
            .max();
        let mut states = known.unwrap_or(0)..=newest;
        if !states.any(|state| fits(operation, existing_revision(versions, state))) {
            return Err(format!(
                "fits no state from {known:?} to {newest} of {versions:?}: {operation:?}"
            ));
        }
    }
    Ok(())
}

/// Returns the oldest state of a server after an answer; `None` if the answer does not say.
fn state_of(versions: &[Version], writes: &[usize], number: usize, answer: Answer) -> Option<usize> {
    let at = match answer {
        Answer::Stored(Some(revision)) | Answer::Found(Some(revision)) => {
            versions.iter().position(|version| version.revision == revision)
        }
        Answer::Stored(None) => writes.iter().position(|write| *write == number),
        _ => None,
    };
    at.map(|at| at + 1)
}

/// Returns the resourceVersion in a state; `None` if the object does not exist.
fn existing_revision(versions: &[Version], state: usize) -> Option<u64> {
    let version = state.checked_sub(1).and_then(|number| versions.get(number))?;
    version.token.as_ref().map(|_| version.revision)
}

/// Whether a server in a state with this version can give the answer.
fn fits(operation: &Operation, revision: Option<u64>) -> bool {
    match (operation.answer, operation.action) {
        (Answer::Found(found), _) => found == revision,
        (Answer::Exists, _) => revision.is_some(),
        (Answer::Missing, _) => revision.is_none(),
        (Answer::Conflict, Action::Update(expected) | Action::Delete(expected)) => {
            revision.is_some_and(|revision| revision != expected)
        }
        (Answer::Conflict, _) => false,
        (Answer::Stored(_) | Answer::Outpaced | Answer::Unknown, _) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(start: u64, end: u64, token: &str, action: Action, answer: Answer) -> Operation {
        Operation {
            server: 0,
            start,
            end,
            token: token.to_owned(),
            action,
            answer,
        }
    }

    fn version(revision: u64, token: &str) -> Version {
        Version {
            revision,
            token: Some(token.to_owned()),
        }
    }

    fn removal(revision: u64) -> Version {
        Version {
            revision,
            token: None,
        }
    }

    /// Creates, changes and deletes an object, one after the other.
    fn history() -> (Vec<Version>, Vec<Operation>) {
        let versions = vec![version(5, "a"), version(7, "b"), version(8, "c"), removal(9)];
        let operations = vec![
            operation(0, 1, "a", Action::Create, Answer::Stored(Some(5))),
            operation(2, 3, "b", Action::Update(5), Answer::Stored(Some(7))),
            operation(4, 5, "c", Action::Patch, Answer::Stored(Some(8))),
            operation(6, 7, "d", Action::Delete(8), Answer::Stored(None)),
        ];
        (versions, operations)
    }

    /// Returns the contradiction after one more operation.
    fn refusal_of(added: Operation) -> String {
        let (versions, mut operations) = history();
        operations.push(added);
        check(&versions, &operations).unwrap_err()
    }

    #[test]
    fn a_sequential_history_is_accepted() {
        let (versions, mut operations) = history();
        operations.extend([
            operation(8, 9, "e", Action::Read, Answer::Found(None)),
            operation(8, 9, "f", Action::Update(8), Answer::Missing),
            operation(2, 5, "g", Action::Read, Answer::Found(Some(7))),
            operation(3, 4, "h", Action::Create, Answer::Exists),
            operation(3, 5, "i", Action::Update(5), Answer::Conflict),
            operation(3, 5, "j", Action::Patch, Answer::Outpaced),
            operation(3, 5, "k", Action::Patch, Answer::Unknown),
        ]);
        check(&versions, &operations).unwrap();
    }

    #[test]
    fn an_acknowledged_write_is_stored_once() {
        let lost = operation(2, 9, "x", Action::Patch, Answer::Stored(Some(6)));
        assert!(refusal_of(lost).contains("0 times in the store"));
        let lost = operation(2, 9, "x", Action::Delete(8), Answer::Stored(None));
        assert!(refusal_of(lost).contains("0 times in the store"));
        let (mut versions, operations) = history();
        versions.insert(3, version(9, "c"));
        versions[4].revision = 10;
        let twice = check(&versions, &operations).unwrap_err();
        assert!(twice.contains("stored twice"), "{twice}");
        versions[3].token = Some("c2".to_owned());
        let unknown = check(&versions, &operations).unwrap_err();
        assert!(unknown.contains("no write that may be stored"), "{unknown}");
    }

    #[test]
    fn a_refused_write_is_not_stored_and_an_unknown_one_may_be() {
        let (versions, mut operations) = history();
        for refused in [Answer::Conflict, Answer::Missing, Answer::Outpaced] {
            operations[2].answer = refused;
            let error = check(&versions, &operations).unwrap_err();
            assert!(
                error.contains("no write that may be stored"),
                "{refused:?}: {error}"
            );
        }
        operations[2].answer = Answer::Unknown;
        check(&versions, &operations).unwrap();
        operations[3].answer = Answer::Unknown;
        check(&versions, &operations).unwrap();
    }

    #[test]
    fn versions_rise() {
        let (mut versions, mut operations) = history();
        versions[1].revision = 5;
        operations[1].answer = Answer::Stored(Some(5));
        let error = check(&versions, &operations).unwrap_err();
        assert!(error.contains("do not rise"), "{error}");
    }

    #[test]
    fn preconditions_hold_in_the_order_of_the_versions() {
        for (number, action) in [
            (0, Action::Update(5)),
            (1, Action::Update(4)),
            (1, Action::Create),
            (0, Action::Patch),
        ] {
            let (versions, mut operations) = history();
            operations[number].action = action;
            let error = check(&versions, &operations).unwrap_err();
            assert!(error.contains("stored on top of"), "{action:?}: {error}");
        }
    }

    #[test]
    fn the_order_of_versions_is_that_of_real_time() {
        let (versions, mut operations) = history();
        // The patch began when the deletion on top of it had ended.
        (operations[2].start, operations[2].end) = (8, 9);
        let error = check(&versions, &operations).unwrap_err();
        assert!(error.contains("a write that had ended"), "{error}");
        // At the same time, either order is right.
        operations[3].end = 9;
        check(&versions, &operations).unwrap();
    }

    #[test]
    fn a_server_does_not_forget_what_it_has_answered() {
        let stale = operation(8, 9, "x", Action::Read, Answer::Found(Some(7)));
        assert!(refusal_of(stale.clone()).contains("fits no state"));
        let (versions, mut operations) = history();
        let other_server = Operation { server: 1, ..stale };
        operations.push(other_server.clone());
        check(&versions, &operations).unwrap();
        let back = Operation {
            start: 10,
            end: 11,
            answer: Answer::Found(Some(5)),
            ..other_server
        };
        operations.push(back);
        let error = check(&versions, &operations).unwrap_err();
        assert!(error.contains("fits no state"), "{error}");
    }

    #[test]
    fn a_refusal_fits_the_state_of_the_object() {
        for (action, answer) in [
            (Action::Create, Answer::Exists),
            (Action::Update(8), Answer::Conflict),
            (Action::Patch, Answer::Conflict),
            (Action::Read, Answer::Found(Some(8))),
        ] {
            let after = operation(8, 9, "x", action, answer);
            assert!(
                refusal_of(after).contains("fits no state"),
                "{action:?} {answer:?}"
            );
        }
        // No operation has deleted it yet.
        let before = operation(4, 5, "x", Action::Patch, Answer::Missing);
        assert!(refusal_of(before).contains("fits no state"));
        // No operation had written this version yet.
        let before = operation(2, 3, "x", Action::Read, Answer::Found(Some(8)));
        assert!(refusal_of(before).contains("fits no state"));
    }
}
