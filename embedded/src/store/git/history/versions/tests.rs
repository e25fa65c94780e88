//! Generations of commits.

use std::collections::BTreeMap;

use super::*;

#[test]
fn trailers_that_are_far_ahead_are_ignored() {
    let at = |generation| History {
        generation,
        ..History::default()
    };
    let next_of = |history: &History, revision: u64| {
        let key = Key::new("configmaps", "default", "a");
        let versions = BTreeMap::from([(key, revision)]);
        let trailers = Trailers {
            versions,
            ..Trailers::default()
        };
        history.next_generation(&trailers).unwrap()
    };
    let history = at(7);
    let next = |revision| next_of(&history, revision);
    assert_eq!(next(first_revision(12)), 12, "after a rewrite");
    assert_eq!(next(first_revision(7)), 8, "versions never fall");
    assert_eq!(next(first_revision(8 + MAX_JUMP)), 8);
    assert_eq!(next(u64::MAX), 8);
    let last = at(MAX_CLAIMED - 3);
    assert_eq!(next_of(&last, first_revision(MAX_CLAIMED)), MAX_CLAIMED);
    assert_eq!(
        next_of(&last, first_revision(MAX_CLAIMED + 1)),
        MAX_CLAIMED - 2,
        "forged trailers leave versions for the others"
    );
    let last = at(MAX_GENERATION);
    last.next_generation(&Trailers::default()).unwrap_err();
    assert_eq!(first_revision(u64::MAX), u64::MAX, "never an overflow");
}
