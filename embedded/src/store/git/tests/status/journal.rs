//! A journal that others move or merge, and one that this process cannot move.

use super::super::remote;
use super::*;

/// Moves the journal as the push of a person.
fn move_journal(environment: &Environment, to: Option<git2::Oid>) {
    let known = heads(environment);
    let branch = environment.branch().with_journal();
    let new = Heads { journal: to, ..known };
    branch.advance_heads(known, new).unwrap().unwrap();
}

#[test]
fn a_merge_into_the_journal_is_no_commit_of_the_branch() {
    let environment = Environment::new();
    environment.commit([("mine.yaml", Some(WIDGET))]);
    let store = open(&environment, "a");
    status(&store, "Ready");
    let branch = environment.branch().with_journal();
    let known = heads(&environment);
    let text = read_status(&environment).unwrap().replace("Ready", "Edited");
    let edits = Edits::from([(STATUS_PATH.to_owned(), Some(text))]);
    let write = |parent, second, message| branch.write_entry(parent, second, &edits, message, 0).unwrap();
    let side = write(known.journal, None, "by hand\n");
    let merge = write(known.journal, Some(side), "Merge branch 'side'\n");
    move_journal(&environment, Some(merge));
    store.poll();
    let object = widget(&store).unwrap();
    assert_eq!(
        (&object["spec"]["size"], &object["status"]["phase"]),
        (&1.into(), &"Edited".into())
    );
    assert_eq!(heads(&environment).journal, Some(merge));
    status(&store, "Failed");
    assert_same_in_a_new_process(&environment, &store);
}

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
