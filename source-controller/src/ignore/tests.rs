//! Vectors that were verified with Flux's own matcher, and properties of any input.

use proptest::prelude::*;

use super::{IgnoreFile, MAX_LINE_BYTES, Rules};

/// `(ignore text, path, is a directory, excluded)`.
const VECTORS: &[(&str, &str, bool, bool)] = &[
    ("", ".", true, false),
    ("", ".git", true, true),
    ("", ".git/config", false, true),
    ("", "sub/.git", false, false),
    ("", "sub/.git", true, true),
    ("", "a/.gitmodules", false, true),
    ("", ".sourceignore", false, false),
    ("", "x.tar.gz", false, true),
    ("", "a/b.png", false, true),
    ("", "a/b.PNG", false, false),
    ("", "dir.zip", true, true),
    ("", "dir.zip/file.txt", false, true),
    ("", "sub/.github/w.yml", false, true),
    ("", "a/.sops.yaml", false, true),
    ("", ".goreleaser.yml", false, true),
    ("", "a.webp", false, false),
    ("foo", "x.png", false, false),
    ("foo", ".gitignore", false, true),
    ("foo", "foo", false, true),
    ("!.gitignore", ".gitignore", false, false),
    ("# c\n\n", "x.png", false, true),
    ("   ", "x.png", false, true),
    ("/*\n!/deploy", "deploy", true, false),
    ("/*\n!/deploy", "deploy/a/b.yaml", false, false),
    ("/*\n!/deploy", "other", true, true),
    ("/*\n!/deploy", "other/deploy", true, true),
    ("/*\n!/deploy\n/deploy/**/*.md", "deploy/x.md", false, true),
    ("/*\n!/deploy\n/deploy/**/*.md", "deploy/s/x.md", false, true),
    ("/*\n!/apps/", "apps", true, false),
    ("/*\n!/apps/", "apps/x", false, false),
    ("/*\n!/apps/", "apps", false, true),
    ("foo/", "foo", true, true),
    ("foo/", "foo", false, false),
    ("foo/", "foo/x", false, true),
    ("foo/", "a/foo/x", false, true),
    ("a/b", "a/b/c", false, true),
    ("a/b", "x/a/b", false, false),
    ("/a", "x/a", false, false),
    ("abc/**", "abc", true, true),
    ("abc/**", "abc/x", false, true),
    ("**/foo", "foo", false, true),
    ("**/foo", "x/y/foo", false, true),
    ("**/foo/bar", "x/foo/y/bar", false, false),
    ("a/**/b", "a/b", false, true),
    ("a/**/b", "a/x/y/b", false, true),
    ("**.txt", "x/y.txt", false, true),
    ("a**/b", "aa/b", false, false),
    ("x/**.txt", "x/y.txt", false, false),
    ("*.md\n!README.md", "README.md", false, false),
    ("!README.md\n*.md", "README.md", false, true),
    ("docs\n!docs/keep.md", "docs/keep.md", false, false),
    ("docs\n!docs/keep.md", "docs/x.md", false, true),
    ("\\#x", "#x", false, true),
    ("\\!x", "!x", false, true),
    ("foo ", "foo", false, true),
    (" foo", "foo", false, false),
    ("foo\t", "foo", false, false),
    ("foo\r", "foo", false, true),
    ("[!a]x", "bx", false, false),
    ("[^a]x", "bx", false, true),
    ("{a,b}", "a", false, false),
    ("/", "a", false, false),
    ("*", "a", false, true),
    ("*", ".", true, false),
    ("**/", "a", true, true),
    ("[a", "[a", false, false),
];

fn root_file(content: impl Into<Vec<u8>>) -> Vec<IgnoreFile> {
    vec![IgnoreFile {
        directory: Vec::new(),
        content: content.into(),
    }]
}

#[test]
fn the_verified_vectors_pass_in_a_file_and_in_the_spec() {
    for (text, path, directory, excluded) in VECTORS {
        let kind = if *directory { "directory" } else { "file" };
        let in_spec = Rules::new(Vec::new(), Some(text));
        assert_eq!(
            in_spec.excludes(path.as_bytes(), *directory),
            *excluded,
            "spec {text:?} on {kind} {path}"
        );
        let in_file = Rules::new(root_file(*text), None);
        assert_eq!(
            in_file.excludes(path.as_bytes(), *directory),
            *excluded,
            "file {text:?} on {kind} {path}"
        );
    }
}

#[test]
fn the_spec_takes_precedence_over_files_and_deeper_files_over_others() {
    let files = vec![
        IgnoreFile {
            directory: b"a".to_vec(),
            content: b"!keep.txt\n".to_vec(),
        },
        IgnoreFile {
            directory: Vec::new(),
            content: b"*.txt\n".to_vec(),
        },
    ];
    let rules = Rules::new(files.clone(), None);
    assert!(rules.excludes(b"keep.txt", false));
    assert!(!rules.excludes(b"a/keep.txt", false));
    let rules = Rules::new(files, Some("a/keep.txt"));
    assert!(rules.excludes(b"a/keep.txt", false));
}

#[test]
fn the_spec_can_include_files_excluded_by_nested_ignore_files() {
    let files = vec![IgnoreFile {
        directory: b"dir".to_vec(),
        content: b"*\n".to_vec(),
    }];
    assert!(Rules::new(files.clone(), None).excludes(b"dir/x", false));
    assert!(!Rules::new(files, Some("!/dir")).excludes(b"dir/x", false));
}

#[test]
fn files_apply_in_name_order_not_in_gits_tree_order() {
    // Git sorts `a.b` before `a/`; Flux's walk visits `a` first.
    let files = vec![
        IgnoreFile {
            directory: b"a.b".to_vec(),
            content: b"x\n".to_vec(),
        },
        IgnoreFile {
            directory: b"a".to_vec(),
            content: b"x\n".to_vec(),
        },
    ];
    let rules = Rules::new(files, None);
    assert!(
        rules.excludes(b"a.b/x", false) && rules.excludes(b"a/x", false) && !rules.excludes(b"b/x", false)
    );
}

#[test]
fn an_overlong_line_ends_its_file() {
    let long = "y".repeat(MAX_LINE_BYTES);
    let rules = Rules::new(root_file(format!("one\n{long}\ntwo\n")), None);
    assert!(rules.excludes(b"one", false));
    assert!(!rules.excludes(b"two", false));
}

proptest! {
    #[test]
    fn any_bytes_are_an_ignore_file(
        directory in "[a-c/]{0,6}",
        content in proptest::collection::vec(any::<u8>(), 0..256),
        spec in proptest::option::of(any::<String>()),
        path in proptest::collection::vec(any::<u8>(), 0..32),
        is_directory: bool,
    ) {
        let files = vec![IgnoreFile { directory: directory.into_bytes(), content }];
        let _ = Rules::new(files, spec.as_deref()).excludes(&path, is_directory);
    }
}
