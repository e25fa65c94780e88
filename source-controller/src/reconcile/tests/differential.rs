//! Archives against a reference that is written here from the rules alone: a sorted walk of a work tree that the real `git`
//! checks out, a matcher and a tar writer of its own.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::shutdown::Token;

use crate::archive::Algorithm;
use crate::git::{Address, Credentials, Head, Limits, Mirrors, Oid, Reference, Remote, Transport, fetch};
use crate::reconcile::pack::pack;
use crate::tree::Tree;

const TREES: u64 = 300;

/// Numbers that differ for each seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const NAMES: &[&str] = &[
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
    "tab\ttab",
    "q\"uote",
];
const PATTERNS: &[&str] = &[
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

/// A commit in the form of `git fast-import`, with what `spec.ignore` is for it.
fn random_tree(number: u64, stream: &mut Vec<u8>) -> Option<String> {
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
        let quoted = path
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\t', "\\t");
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

fn import(repository: &Repository, stream: &[u8]) {
    let mut child = Command::new("git")
        .args(["fast-import", "--quiet", "--force"])
        .current_dir(repository.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stream).unwrap();
    assert!(child.wait().unwrap().success());
}

/// A work tree made by the real `git`.
fn checked_out(repository: &Repository, commit: &str) -> tempfile::TempDir {
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

struct Pattern {
    text: String,
    scope: Vec<String>,
}

fn lines(text: &str, scope: &[String], into: &mut Vec<Pattern>) {
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if !line.starts_with('#') && !line.trim().is_empty() {
            into.push(Pattern {
                text: line.to_owned(),
                scope: scope.to_vec(),
            });
        }
    }
}

/// Go's `filepath.Match` for one component, nothing if the pattern is malformed.
fn glob(pattern: &[char], name: &[char]) -> Option<bool> {
    match pattern {
        [] => Some(name.is_empty()),
        ['*', rest @ ..] => (0..=name.len())
            .map(|skip| glob(rest, &name[skip..]))
            .find(|result| *result != Some(false))
            .unwrap_or(Some(false)),
        ['[', rest @ ..] => {
            let end = rest.iter().position(|c| *c == ']')?;
            let (not, set) = if rest[0] == '^' {
                (true, &rest[1..end])
            } else {
                (false, &rest[..end])
            };
            match name {
                [first, more @ ..] if set.contains(first) != not => glob(&rest[end + 1..], more),
                _ => Some(false),
            }
        }
        ['?', rest @ ..] => name
            .split_first()
            .map_or(Some(false), |(_, more)| glob(rest, more)),
        ['\\', literal, rest @ ..] | [literal, rest @ ..] => match name {
            [first, more @ ..] if first == literal => glob(rest, more),
            _ => Some(false),
        },
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    glob(&chars(pattern), &chars(name)) == Some(true)
}

fn along(pattern: &[&str], path: &[String], only: bool, directory: bool) -> bool {
    match pattern {
        [] => !(path.is_empty() && only && !directory),
        ["**"] => true,
        ["**", rest @ ..] => (0..=path.len()).any(|skip| along(rest, &path[skip..], only, directory)),
        [part, ..] if part.contains("**") => false,
        [part, rest @ ..] => path
            .first()
            .is_some_and(|name| fits(part, name) && along(rest, &path[1..], only, directory)),
    }
}

/// Whether the pattern speaks about the path, and what it says: kept or not.
fn verdict(pattern: &Pattern, path: &[String], directory: bool) -> Option<bool> {
    if path.len() <= pattern.scope.len() || !path.starts_with(&pattern.scope) {
        return None;
    }
    let path = &path[pattern.scope.len()..];
    let (kept, text) = pattern
        .text
        .strip_prefix('!')
        .map_or((false, pattern.text.as_str()), |rest| (true, rest));
    let text = text.trim_end_matches(' ');
    let (only, text) = text.strip_suffix('/').map_or((false, text), |rest| (true, rest));
    let hit = if text.contains('/') {
        let parts: Vec<_> = text.split('/').filter(|part| !part.is_empty()).collect();
        !parts.is_empty() && along(&parts, path, only, directory)
    } else {
        let last = path.len() - 1;
        // The first component that is hit decides.
        path.iter()
            .position(|name| fits(text, name))
            .is_some_and(|at| !(only && at == last && !directory))
    };
    hit.then_some(kept)
}

const FIRST: &str = ".git/\n.gitignore\n.gitmodules\n.gitattributes";
const DEFAULTS: &str = "*.jpg\n*.jpeg\n*.gif\n*.png\n*.wmv\n*.flv\n*.tar.gz\n*.zip\n.github/\n.circleci/\n.travis.yml\n.gitlab-ci.yml\n\
    appveyor.yml\n.drone.yml\ncloudbuild.yaml\ncodeship-services.yml\ncodeship-steps.yml\n**/.goreleaser.yml\n**/.sops.yaml\n**/.flux.yaml";

/// Children in the order of their names' bytes.
fn children(directory: &Path) -> Vec<std::fs::DirEntry> {
    let mut entries: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    entries.sort_by(|one, other| one.file_name().as_bytes().cmp(other.file_name().as_bytes()));
    entries
}

fn collect(directory: &Path, scope: &[String], own: &mut Vec<Pattern>) {
    if let Ok(text) = std::fs::read_to_string(directory.join(".sourceignore")) {
        lines(&text, scope, own);
    }
    for entry in children(directory)
        .iter()
        .filter(|entry| entry.file_type().unwrap().is_dir())
    {
        let scope = [scope, &[entry.file_name().into_string().unwrap()]].concat();
        collect(&entry.path(), &scope, own);
    }
}

/// The uncompressed archive of a work tree.
fn reference(work: &Path, spec_ignore: Option<&str>) -> Vec<u8> {
    let (mut own, mut patterns) = (Vec::new(), Vec::new());
    collect(work, &[], &mut own);
    lines(spec_ignore.unwrap_or_default(), &[], &mut own);
    lines(FIRST, &[], &mut patterns);
    if own.is_empty() {
        lines(DEFAULTS, &[], &mut patterns);
    }
    patterns.extend(own);
    let mut tar = Vec::new();
    entry(&mut tar, ".", b'5', 0o750, b"");
    walk(work, &[], &patterns, &mut tar);
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn walk(directory: &Path, at: &[String], patterns: &[Pattern], tar: &mut Vec<u8>) {
    for child in children(directory) {
        let path = [at, &[child.file_name().into_string().unwrap()]].concat();
        let metadata = std::fs::symlink_metadata(child.path()).unwrap();
        let spoken = patterns
            .iter()
            .rev()
            .find_map(|pattern| verdict(pattern, &path, metadata.is_dir()));
        let kept = spoken.unwrap_or(true);
        if metadata.is_dir() {
            if kept {
                entry(tar, &path.join("/"), b'5', 0o750, b"");
            }
            walk(&child.path(), &path, patterns, tar);
        } else if kept && metadata.is_file() {
            let mode = if metadata.permissions().mode() & 0o111 == 0 {
                0o600
            } else {
                0o700
            };
            entry(
                tar,
                &path.join("/"),
                b'0',
                mode,
                &std::fs::read(child.path()).unwrap(),
            );
        }
    }
}

fn entry(tar: &mut Vec<u8>, path: &str, kind: u8, mode: u32, content: &[u8]) {
    let divided = (1..path.len())
        .rev()
        .find(|at| path.as_bytes()[*at] == b'/' && *at <= 155);
    let (prefix, name) = match divided {
        _ if path.len() <= 100 => ("", path),
        Some(at) if path.len() - at - 1 <= 100 => (&path[..at], &path[at + 1..]),
        _ => ("", ""),
    };
    if path.is_ascii() && !name.is_empty() {
        block(tar, prefix, name, kind, mode, content.len());
    } else {
        let ascii: String = path.chars().filter(char::is_ascii).collect();
        let cut = |text: &str| text[..text.len().min(100)].trim_end_matches('/').to_owned();
        let (directory, base) = ascii.rsplit_once('/').map_or_else(
            || (String::new(), ascii.clone()),
            |(up, base)| (format!("{up}/"), base.to_owned()),
        );
        let fixed = " path=\n".len() + path.len();
        let digits = (1..9)
            .find(|digits| (fixed + digits).to_string().len() == *digits)
            .unwrap();
        let record = format!("{} path={path}\n", fixed + digits);
        block(
            tar,
            "",
            &cut(&format!("{directory}PaxHeaders.0/{base}")),
            b'x',
            0,
            record.len(),
        );
        padded(tar, record.as_bytes());
        let name = if ascii.len() > 100 { cut(&ascii) } else { ascii };
        block(tar, "", &name, kind, mode, content.len());
    }
    padded(tar, content);
}

fn padded(tar: &mut Vec<u8>, content: &[u8]) {
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512), 0);
}

fn block(tar: &mut Vec<u8>, prefix: &str, name: &str, kind: u8, mode: u32, size: usize) {
    let mut text = Vec::new();
    // An extended header is of no device.
    let device = if kind == b'x' {
        "\0".repeat(8)
    } else {
        "0000000\0".to_owned()
    };
    write!(
        text,
        "{name:\0<100}{mode:07o}\0{:07o}\0{:07o}\0{size:011o}\0{:011o}\0        ",
        0, 0, 0
    )
    .unwrap();
    text.push(kind);
    write!(
        text,
        "{:\0<100}ustar\x0000{:\0<64}{device}{device}{prefix:\0<155}{:\0<12}",
        "", "", ""
    )
    .unwrap();
    assert_eq!(text.len(), 512);
    let sum: u32 = text.iter().copied().map(u32::from).sum();
    text[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend(text);
}

/// The uncompressed archive as the controller makes it.
async fn packed(
    remote: &Remote,
    mirrors: &Mirrors,
    name: &str,
    commit: &str,
    ignore: Option<String>,
) -> Vec<u8> {
    let id = Oid::from_str(commit).unwrap();
    let head = Head {
        commit: id,
        object: id,
        reference: Reference::Branch(name.to_owned()),
    };
    let checkout = fetch(&mirrors.open(remote), remote, &head, &Token::new())
        .await
        .unwrap();
    let work = move || {
        let tree = Tree::new(checkout, None);
        let (gzip, ..) = pack(
            &tree,
            ignore.as_deref(),
            Algorithm::Sha256,
            Vec::new(),
            &Token::new(),
        )
        .unwrap();
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(gzip.as_slice())
            .read_to_end(&mut tar)
            .unwrap();
        tar
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Names, kinds and sizes, for a difference that can be read.
fn listing(tar: &[u8]) -> String {
    let mut text = String::new();
    for entry in tar::Archive::new(tar).entries().unwrap() {
        let entry = entry.unwrap();
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        writeln!(
            text,
            "{path:?} {:?} {}",
            entry.header().entry_type(),
            entry.size()
        )
        .unwrap();
    }
    text
}

async fn compare(repository: &Repository, trees: Vec<(String, Option<String>)>) {
    let server = GitServer::start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mirrors = Mirrors::new(directory.path()).unwrap();
    let remote = Remote {
        transport: Transport::new().unwrap(),
        address: Address::parse(&server.serve("trees", repository)).unwrap(),
        credentials: Credentials::Anonymous,
        tls: std::sync::Arc::default(),
        proxy: None,
        timeout: std::time::Duration::from_secs(60),
        limits: Limits::default(),
    };
    for (name, ignore) in trees {
        let commit = repository.resolve(&format!("refs/heads/{name}")).unwrap();
        let ours = packed(&remote, &mirrors, &name, &commit, ignore.clone()).await;
        let work = checked_out(repository, &commit);
        let wanted = reference(&work.path().join("work"), ignore.as_deref());
        if ours != wanted {
            assert_eq!(listing(&ours), listing(&wanted), "{name} {ignore:?}");
            panic!("{name}: the same entries, in other bytes");
        }
    }
}

#[tokio::test]
async fn random_trees_are_packed_as_the_reference_packs_a_work_tree_of_git() {
    let repository = Repository::create().unwrap();
    let mut stream = Vec::new();
    let trees = (0..TREES)
        .map(|number| (format!("t{number}"), random_tree(number, &mut stream)))
        .collect();
    import(&repository, &stream);
    compare(&repository, trees).await;
}

#[tokio::test]
async fn trees_of_unusual_shape_are_packed_as_the_reference_packs_a_work_tree_of_git() {
    let repository = Repository::create().unwrap();
    let mut stream = Vec::new();
    let file = |stream: &mut Vec<u8>, mode: &str, path: &str, content: &str| {
        write!(
            stream,
            "M {mode} inline \"{path}\"\ndata {}\n{content}\n",
            content.len()
        )
        .unwrap();
    };
    let begin = |stream: &mut Vec<u8>, name: &str| {
        write!(
            stream,
            "commit refs/heads/{name}\ncommitter T <t@t> 1 +0000\ndata 0\ndeleteall\n"
        )
        .unwrap();
    };
    begin(&mut stream, "wide");
    for number in 0..10_000 {
        file(&mut stream, "100644", &format!("wide/{number}"), "");
    }
    begin(&mut stream, "shapes");
    for (mode, path, content) in [
        ("100644", "crlf.txt", "a\r\nb\r\n"),
        ("100755", "bin/run", "#!/bin/sh\n"),
        ("120000", "link", "bin/run"),
        ("120000", "only/links", "nowhere"),
        ("100644", "é/ü", "x"),
        ("100644", &format!("{}f", "d/".repeat(1000)), "deep"),
        ("100644", &"n".repeat(255), "long"),
        (
            "100644",
            &format!("{}/{}", "p".repeat(155), "n".repeat(100)),
            "split",
        ),
        (
            "100644",
            &format!("{}/{}", "p".repeat(156), "n".repeat(99)),
            "no split",
        ),
        ("100644", &"e".repeat(100), "just"),
        ("100644", &"e".repeat(101), "over"),
        ("100644", "block", &"b".repeat(512)),
    ] {
        file(&mut stream, mode, path, content);
    }
    writeln!(stream, "M 160000 {} \"vendor/empty\"", "1".repeat(40)).unwrap();
    begin(&mut stream, "empty");
    import(&repository, &stream);
    let trees = ["wide", "shapes", "empty"].map(|name| (name.to_owned(), None));
    compare(&repository, trees.to_vec()).await;
}
