//! A journal that others move or merge, and one that this process cannot move.

use super::super::remote;
use super::*;

#[test]
fn a_look_that_shows_the_journal_before_its_branch_is_repeated() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let first = open_remote(&environment, "a");
    let options = remote::options(&environment, "b");
    let (mut git, _) = Git::open(options.clone(), &[widgets()]).unwrap();
    let before = heads(&environment).branch;
    set(&first, "spec", &json!({"size": 2})).unwrap();
    git.remote.as_ref().unwrap().fetch(&git.branch).unwrap();
    // As if the branch had been read before the push, and the journal after it.
    let pushed = heads(&environment).branch;
    assert!(git.branch.advance(pushed, before.unwrap()).unwrap());
    // A push without a branch would fail: the one that the settings name does not exist.
    let clone = git2::Repository::open_bare(&options.repository).unwrap();
    clone.set_head("refs/heads/absent").unwrap();
    let foreign = git.follow().unwrap();
    assert_eq!(foreign.records.len(), 1);
    assert_eq!(git.health(), StorageHealth::Writable);
    assert_eq!(git.branch.heads().unwrap(), heads(&environment));
}
