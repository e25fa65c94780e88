//! Pure, bounded parsers for raw commit, tree and tag objects.
//!
//! libgit2's own parsers need a `Repository`, which reads the user's configuration and checks the owner of the
//! directory. The object database alone needs neither.

use std::ops::Range;

use git2::Oid;

use super::protocol::parse_object_id;

/// Maximum number of characters of an author in a status.
const AUTHOR_LIMIT: usize = 512;

/// A commit, limited to the fields for revision, message and signature check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Object name of the commit.
    pub id: Oid,
    /// Object name of its tree.
    pub tree: Oid,
    /// Author as written: `Name <address> seconds zone`.
    pub author: String,
    /// Committer in the same format.
    pub committer: String,
    /// The whole message.
    pub message: String,
}

impl Commit {
    /// Parses a raw commit object.
    ///
    /// # Errors
    /// The object is not a valid commit.
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
            .and_then(|rest| parse_object_id(rest.get(..40)?))
            .ok_or_else(malformed)?;
        Ok(Self {
            id,
            tree,
            author: lossy(value(b"author").ok_or_else(malformed)?),
            committer: lossy(value(b"committer").ok_or_else(malformed)?),
            message: lossy(message),
        })
    }

    /// Returns the author as `Name <address>`, shortened; empty without an address.
    #[must_use]
    pub(crate) fn author_identity(&self) -> String {
        let end = self.author.rfind('>').map_or(0, |at| at + 1);
        self.author[..end].chars().take(AUTHOR_LIMIT).collect()
    }

    /// Returns the committer date in seconds since 1970.
    #[must_use]
    pub(crate) fn committed_at(&self) -> Option<i64> {
        self.committer.rsplit(' ').nth(1)?.parse().ok()
    }

    /// Returns the first line of the message.
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

/// Type of a tree entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Another tree.
    Directory,
    /// A file.
    File,
    /// An executable file.
    Executable,
    /// A symlink; its target is the object's content.
    Symlink,
    /// A submodule: a commit of another repository.
    Gitlink,
}

impl Kind {
    /// Maps the mode of a tree entry. Old writers left unusual permission bits there.
    const fn from_mode(mode: u32) -> Option<Self> {
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

/// One tree entry. The name is a range in the raw object, which avoids a copy of each name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Range of the name in the raw object.
    pub name: Range<usize>,
    /// Type of the entry.
    pub kind: Kind,
    /// Object name of the entry.
    pub id: Oid,
}

/// Returns the object that a raw tag points to.
///
/// # Errors
/// The object is not a valid tag.
pub(crate) fn tag_target(id: Oid, raw: &[u8]) -> Result<Oid, ObjectError> {
    let line = raw.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let target = line.strip_prefix(b"object ").and_then(parse_object_id);
    target.ok_or(ObjectError { id, kind: "tag" })
}

/// Parses a raw tree object; the order of the entries is preserved.
///
/// # Errors
/// The object is not a valid tree, or has an unsafe name: empty, `.`, `..`, `.git` or with a slash.
pub fn parse_tree(id: Oid, raw: &[u8]) -> Result<Vec<TreeEntry>, ObjectError> {
    tree_entries(id, raw).collect()
}

/// Like [`parse_tree`], but as an iterator without allocation. It ends after the first error.
pub(crate) fn tree_entries(id: Oid, raw: &[u8]) -> impl Iterator<Item = Result<TreeEntry, ObjectError>> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = raw.get(offset..).filter(|rest| !rest.is_empty())?;
        let entry = tree_entry(offset, rest);
        offset = entry.as_ref().map_or(raw.len(), |(_, next)| *next);
        Some(
            entry
                .map(|(entry, _)| entry)
                .ok_or(ObjectError { id, kind: "tree" }),
        )
    })
}

/// Parses the entry at the start of `rest`, which is byte `offset` of the tree. Returns it with the position of the next
/// one.
fn tree_entry(offset: usize, rest: &[u8]) -> Option<(TreeEntry, usize)> {
    let space = rest.iter().take(8).position(|byte| *byte == b' ')?;
    let nul = rest
        .iter()
        .position(|byte| *byte == 0)
        .filter(|nul| *nul > space)?;
    let kind = parse_octal(&rest[..space]).and_then(Kind::from_mode)?;
    let id = Oid::from_bytes(rest.get(nul + 1..nul + 21)?).ok()?;
    let name = offset + space + 1..offset + nul;
    is_safe_name(&rest[space + 1..nul]).then_some((TreeEntry { name, kind, id }, offset + nul + 21))
}

fn is_safe_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.eq_ignore_ascii_case(b".git") && !name.contains(&b'/')
}

fn parse_octal(digits: &[u8]) -> Option<u32> {
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

/// An object that is malformed, or a tree that has an unsafe name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("object {id} is not a valid {kind}")]
pub struct ObjectError {
    /// The object.
    pub id: Oid,
    /// The expected type.
    pub kind: &'static str,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    fn id() -> Oid {
        parse_object_id(A.as_bytes()).unwrap()
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
        assert_eq!(commit.author_identity(), "Ä <a@b>");
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
        let commit = Commit::parse(id(), raw.as_bytes()).unwrap();
        assert_eq!((commit.subject(), commit.author_identity()), ("", String::new()));
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
    fn tree_entries_have_types() {
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
        let expected = [
            ("d", Kind::Directory),
            ("f", Kind::File),
            ("x", Kind::Executable),
            ("l", Kind::Symlink),
            ("m", Kind::Gitlink),
            ("odd", Kind::File),
        ];
        assert_eq!(read, expected.map(|(name, kind)| (name.to_owned(), kind)));
    }

    #[test]
    fn unsafe_names_are_refused() {
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
        fn any_bytes_are_parsed_or_refused_as_an_object(raw in proptest::collection::vec(any::<u8>(), 0..2048)) {
            let _ = Commit::parse(id(), &raw);
            if let Ok(entries) = parse_tree(id(), &raw) {
                prop_assert!(entries.iter().all(|entry| is_safe_name(&raw[entry.name.clone()])));
            }
        }
    }
}
