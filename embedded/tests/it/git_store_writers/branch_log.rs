//! The versions of ConfigMaps in the history of a branch, read from the commits: revisions from their trailers, texts from their files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::linearizability::Version;
use crate::git_store::git;

/// Begins a commit in the log.
const SEPARATOR: char = '\u{1e}';
/// Directory of the files.
const FILES: &str = "+++ b/core/v1/configmaps/default/";

/// Returns the versions of each ConfigMap in the namespace `default`, oldest first.
pub(super) fn versions(repository: &Path) -> BTreeMap<String, Vec<Version>> {
    let log = git(
        repository,
        &[
            "log",
            "--reverse",
            "--first-parent",
            "--patch",
            "--unified=0",
            "--no-color",
            "--no-renames",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            "--format=%x1e%B",
            "main",
        ],
    );
    parse(&log)
}

fn parse(log: &str) -> BTreeMap<String, Vec<Version>> {
    let mut versions: BTreeMap<String, Vec<Version>> = BTreeMap::new();
    for commit in log.split(SEPARATOR) {
        for (name, version) in versions_of(commit) {
            versions.entry(name).or_default().push(version);
        }
    }
    versions
}

/// Returns the versions that one commit makes. Each has its text in the same commit, or the commit is half-written.
fn versions_of(commit: &str) -> Vec<(String, Version)> {
    let (mut revisions, mut removed, mut tokens) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
    let mut file = None;
    for line in commit.lines() {
        let changed = line.strip_prefix("Resource-Version: ");
        if let Some((revision, name)) = changed.and_then(|rest| rest.split_once(" configmaps/default/")) {
            revisions.push((name, revision.parse().unwrap()));
        } else if let Some(name) = line.strip_prefix("Removed: configmaps/default/") {
            removed.insert(name);
        } else if line.starts_with("+++ ") {
            file = line
                .strip_prefix(FILES)
                .and_then(|path| path.strip_suffix(".yaml"));
        } else if let (Some(file), Some(token)) = (file, line.strip_prefix("+  token: ")) {
            tokens.insert(file, token);
        }
    }
    let version = |(name, revision): (&str, u64)| {
        let token = tokens.get(name).map(|token| (*token).to_owned());
        assert!(
            token.is_some() != removed.contains(name),
            "a version without its content: {commit}"
        );
        (name.to_owned(), Version { revision, token })
    };
    revisions.into_iter().map(version).collect()
}

#[test]
fn a_log_has_the_versions_of_each_object() {
    let log = "\u{1e}create configmaps default/a\n\nResource-Version: 5 configmaps/default/a\nUser: admin\n\n\
        diff --git a/core/v1/configmaps/default/a.yaml b/core/v1/configmaps/default/a.yaml\n--- /dev/null\n\
        +++ b/core/v1/configmaps/default/a.yaml\n@@ -0,0 +1,2 @@\n+data:\n+  token: one\n\
        \u{1e}write 2 objects\n\nResource-Version: 8 configmaps/default/a\nRemoved: configmaps/default/a\n\
        Resource-Version: 9 configmaps/default/b\n\n--- a/core/v1/configmaps/default/a.yaml\n+++ /dev/null\n\
        -  token: one\n--- /dev/null\n+++ b/core/v1/configmaps/default/b.yaml\n+  token: two\n";
    let version = |revision, token: Option<&str>| Version {
        revision,
        token: token.map(str::to_owned),
    };
    let expected = BTreeMap::from([
        ("a".to_owned(), vec![version(5, Some("one")), version(8, None)]),
        ("b".to_owned(), vec![version(9, Some("two"))]),
    ]);
    assert_eq!(parse(log), expected);
}
