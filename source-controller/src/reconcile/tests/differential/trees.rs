//! Random trees, imported into a repository and checked out by the real `git`.

use std::io::Write as _;
use std::process::{Command, Stdio};

use sluice_harness::git::Repository;

pub(super) const TREES: u64 = 300;

/// A pseudo-random generator.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    pub(super) fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

pub(super) const NAMES: &[&str] = &[
    "a",
    "b",
    "foo",
    "foo.txt",
    "A",
    "x.png",
    "doc.zip",
    ".github",
    ".travis.yml",
    ".gitignore",
    "é",
    "日本",
    "#x",
    "!x",
    " sp",
    "a.b",
    "a-b",
    "a0",
    "run.sh",
    ".sops.yaml",
    "README.md",
    ".gitattributes",
    "con",
    "q\"uote",
];
pub(super) const PATTERNS: &[&str] = &[
    "*.txt",
    "foo",
    "foo/",
    "/a",
    "a/b",
    "a/",
    "!foo.txt",
    "!/a",
    "/*",
    "**/foo",
    "a/**/b",
    "a/**",
    "**.txt",
    "a**/b",
    "# c",
    "",
    "   ",
    "\\#x",
    "\\!x",
    "[ab]*",
    "[^a]*",
    "[!a]x",
    "f?o",
    "*.md",
    "!README.md",
    "é",
    "*",
    "[a",
    " sp",
    "foo  ",
    "b\r",
    "!*.png",
    "x.png",
    "/b/a/",
    "A",
    ".github/",
    "!.gitignore",
    "a//b",
    "/",
    "日?",
];

/// Writes a commit in the format of `git fast-import`; returns its `spec.ignore`.
pub(super) fn random_tree(number: u64, stream: &mut Vec<u8>) -> Option<String> {
    let mut dice = Dice(number.wrapping_mul(7919) + 17);
    write!(
        stream,
        "commit refs/heads/t{number}\ncommitter T <t@t> 1 +0000\ndata 0\ndeleteall\n"
    )
    .unwrap();
    let patterns = |dice: &mut Dice| {
        let end = ["\n", "\r\n"][dice.below(2)];
        (0..=dice.below(4))
            .map(|_| dice.of(PATTERNS).to_owned() + end)
            .collect::<Vec<_>>()
            .concat()
    };
    for _ in 0..=dice.below(24) {
        let depth = dice.below(4) + 1;
        let mut path = (0..depth).map(|_| dice.of(NAMES)).collect::<Vec<_>>().join("/");
        match dice.below(40) {
            0 => path.extend(["/".to_owned(), "n".repeat(255)]),
            1 => path += &"/deep".repeat(40),
            2 => path.extend(["/".to_owned(), "é".repeat(120)]),
            _ => {}
        }
        let quoted = path.replace('\\', "\\\\").replace('"', "\\\"");
        let content = match dice.below(4) {
            0 => String::new(),
            1 => "line\r\nline\r\n".to_owned(),
            _ => "x".repeat(dice.below(1500)),
        };
        let mode = ["100644", "100644", "100755", "120000"][dice.below(4)];
        if dice.below(20) == 0 {
            writeln!(stream, "M 160000 {} \"{quoted}\"", "1".repeat(40)).unwrap();
        } else {
            let content = if mode == "120000" { "a".to_owned() } else { content };
            write!(
                stream,
                "M {mode} inline \"{quoted}\"\ndata {}\n{content}\n",
                content.len()
            )
            .unwrap();
        }
    }
    for _ in 0..dice.below(3) {
        let directory = ["", "a/", "foo/", "b/a/"][dice.below(4)];
        let content = patterns(&mut dice);
        write!(
            stream,
            "M 100644 inline \"{directory}.sourceignore\"\ndata {}\n{content}\n",
            content.len()
        )
        .unwrap();
    }
    [None, None, Some(String::new()), Some(patterns(&mut dice))][dice.below(4)].clone()
}

pub(super) fn import(repository: &Repository, stream: &[u8]) {
    let mut child = Command::new("git")
        .args(["fast-import", "--quiet", "--force"])
        .current_dir(repository.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stream).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Returns a work tree checked out by the real `git`.
pub(super) fn checked_out(repository: &Repository, commit: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let work = directory.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let status = Command::new("git")
        .args(["-c", "core.autocrlf=false", "--git-dir"])
        .arg(repository.git_dir())
        .arg("--work-tree")
        .arg(&work)
        .args(["read-tree", "--reset", "-u", commit])
        .env("GIT_INDEX_FILE", directory.path().join("index"))
        .current_dir(&work)
        .status()
        .unwrap();
    assert!(status.success());
    directory
}
