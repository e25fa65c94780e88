//! Git's commit and tree objects as bytes: pure, bounded parsers.
//!
//! libgit2 has its own, but they need a `Repository`, which reads the configuration of the user and checks who owns
//! the directory; the object database alone needs neither.

use std::ops::Range;

use git2::Oid;

use super::protocol::object_id;

/// A commit, as far as a revision, a message or a signature check needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its object name.
    pub id: Oid,
    /// The tree that it records.
    pub tree: Oid,
    /// Author, as written: `Name <address> seconds zone`.
    pub author: String,
    /// Committer, in the same form.
    pub committer: String,
    /// The whole message.
    pub message: String,
}

impl Commit {
    /// Reads the raw object of a commit.
    ///
    /// # Errors
    /// The object is no commit that Git would write.
    pub fn parse(id: Oid, raw: &[u8]) -> Result<Self, ObjectError> {
        let malformed = || ObjectError { id, kind: "commit" };
        let end = find(raw, b"\n\n").unwrap_or(raw.len());
        let (head, message) = (&raw[..end], raw.get(end + 2..).unwrap_or_default());
        let value = |key: &[u8]| {
            head.split(|byte| *byte == b'\n')
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(b" "))
        };
        let tree = head
            .strip_prefix(b"tree ")
            .and_then(|rest| object_id(rest.get(..40)?))
            .ok_or_else(malformed)?;
        Ok(Self {
            id,
            tree,
            author: lossy(value(b"author").ok_or_else(malformed)?),
            committer: lossy(value(b"committer").ok_or_else(malformed)?),
            message: lossy(message),
        })
    }

    /// When it was made, by its committer's word, in seconds since 1970.
    #[must_use]
    pub fn committed_at(&self) -> Option<i64> {
        self.committer.rsplit(' ').nth(1)?.parse().ok()
    }

    /// The first line of the message.
    #[must_use]
    pub fn subject(&self) -> &str {
        self.message
            .trim_start()
            .lines()
            .next()
            .unwrap_or_default()
            .trim_end()
    }
}

/// What a name in a tree stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Another tree.
    Directory,
    /// A file.
    File,
    /// A file that may be executed.
    Executable,
    /// A link; its target is the object's content.
    Symlink,
    /// A commit of another repository: a submodule.
    Gitlink,
}

impl Kind {
    /// From the mode of a tree entry; old writers left odd permission bits there.
    const fn of(mode: u32) -> Option<Self> {
        match mode & 0o170_000 {
            0o040_000 => Some(Self::Directory),
            0o100_000 if mode & 0o100 != 0 => Some(Self::Executable),
            0o100_000 => Some(Self::File),
            0o120_000 => Some(Self::Symlink),
            0o160_000 => Some(Self::Gitlink),
            _ => None,
        }
    }
}

/// One name in a tree. The name lies in the raw object, to spare a copy of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Where in the raw object the name stands.
    pub name: Range<usize>,
    /// What it stands for.
    pub kind: Kind,
    /// The object.
    pub id: Oid,
}

/// The object that a raw tag names.
///
/// # Errors
/// The object is no tag that Git would write.
pub fn tag_target(id: Oid, raw: &[u8]) -> Result<Oid, ObjectError> {
    let line = raw.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let target = line.strip_prefix(b"object ").and_then(object_id);
    target.ok_or(ObjectError { id, kind: "tag" })
}

/// Reads the raw object of a tree, in the order in which it is written.
///
/// # Errors
/// The object is no tree, or has a name that must not become a path: empty, `.`, `..`, `.git` or with a slash.
pub fn parse_tree(id: Oid, raw: &[u8]) -> Result<Vec<TreeEntry>, ObjectError> {
    tree_entries(id, raw).collect()
}

/// As [`parse_tree`], one entry after the other, in no memory. After an error it ends.
pub fn tree_entries(id: Oid, raw: &[u8]) -> impl Iterator<Item = Result<TreeEntry, ObjectError>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = raw.get(at..).filter(|rest| !rest.is_empty())?;
        let entry = tree_entry(at, rest);
        at = entry.as_ref().map_or(raw.len(), |(_, next)| *next);
        Some(
            entry
                .map(|(entry, _)| entry)
                .ok_or(ObjectError { id, kind: "tree" }),
        )
    })
}

/// The entry with which `rest` begins, which stands at byte `at`, and where the next one stands.
fn tree_entry(at: usize, rest: &[u8]) -> Option<(TreeEntry, usize)> {
    let space = rest.iter().take(8).position(|byte| *byte == b' ')?;
    let zero = rest
        .iter()
        .position(|byte| *byte == 0)
        .filter(|zero| *zero > space)?;
    let kind = octal(&rest[..space]).and_then(Kind::of)?;
    let id = Oid::from_bytes(rest.get(zero + 1..zero + 21)?).ok()?;
    let name = at + space + 1..at + zero;
    is_safe(&rest[space + 1..zero]).then_some((TreeEntry { name, kind, id }, at + zero + 21))
}

fn is_safe(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.eq_ignore_ascii_case(b".git") && !name.contains(&b'/')
}

fn octal(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u32, |value, digit| {
        Some(value * 8 + char::from(*digit).to_digit(8)?)
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An object that does not have its kind's form, or that holds a name that must not become a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("object {id} is no {kind} that can be used")]
pub struct ObjectError {
    /// The object.
    pub id: Oid,
    /// What it was read as.
    pub kind: &'static str,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    fn id() -> Oid {
        object_id(A.as_bytes()).unwrap()
    }

    fn entry(mode: &str, name: &[u8]) -> Vec<u8> {
        [mode.as_bytes(), b" ", name, b"\0", id().as_bytes()].concat()
    }

    #[test]
    fn a_commit_is_read() {
        let raw = format!(
            "tree {A}\nparent {A}\nauthor Ä <a@b> 1 +0000\ncommitter C <c@d> 2 +0100\ngpgsig x\n y\n\nSubject\n\nBody\n"
        );
        let commit = Commit::parse(id(), raw.as_bytes()).unwrap();
        assert_eq!((commit.tree, commit.author.as_str()), (id(), "Ä <a@b> 1 +0000"));
        assert_eq!(
            (commit.subject(), commit.message.as_str()),
            ("Subject", "Subject\n\nBody\n")
        );
        assert_eq!(
            (commit.committer.as_str(), commit.committed_at()),
            ("C <c@d> 2 +0100", Some(2))
        );
    }

    #[test]
    fn a_message_may_be_missing() {
        let raw = format!("tree {A}\nauthor a\ncommitter b");
        assert_eq!(Commit::parse(id(), raw.as_bytes()).unwrap().subject(), "");
        for bad in [
            "",
            "tree",
            &format!("tree {A}\nauthor a\n"),
            &format!("author a\ncommitter b\ntree {A}"),
        ] {
            assert!(Commit::parse(id(), bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tree_is_read_with_its_kinds() {
        let raw = [
            entry("40000", b"d"),
            entry("100644", b"f"),
            entry("100755", b"x"),
            entry("120000", b"l"),
            entry("160000", b"m"),
            entry("100664", b"odd"),
        ]
        .concat();
        let read: Vec<_> = parse_tree(id(), &raw)
            .unwrap()
            .iter()
            .map(|entry| {
                (
                    String::from_utf8_lossy(&raw[entry.name.clone()]).into_owned(),
                    entry.kind,
                )
            })
            .collect();
        let wanted = [
            ("d", Kind::Directory),
            ("f", Kind::File),
            ("x", Kind::Executable),
            ("l", Kind::Symlink),
            ("m", Kind::Gitlink),
            ("odd", Kind::File),
        ];
        assert_eq!(read, wanted.map(|(name, kind)| (name.to_owned(), kind)));
    }

    #[test]
    fn names_that_leave_the_tree_are_refused() {
        for name in [&b""[..], b".", b"..", b".git", b".GIT", b"a/b", b"/"] {
            assert!(parse_tree(id(), &entry("100644", name)).is_err(), "{name:?}");
        }
        for name in [&b".github"[..], b"...", b"\xff", b".gitignore"] {
            assert!(parse_tree(id(), &entry("100644", name)).is_ok(), "{name:?}");
        }
        for raw in [
            entry("", b"a"),
            entry("9", b"a"),
            entry("644", b"a"),
            entry("777777777", b"a"),
            entry("100644", b"a")[..20].to_vec(),
        ] {
            assert!(parse_tree(id(), &raw).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_object_or_not(raw in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = Commit::parse(id(), &raw);
            if let Ok(entries) = parse_tree(id(), &raw) {
                prop_assert!(entries.iter().all(|entry| is_safe(&raw[entry.name.clone()])));
            }
        }
    }
}
