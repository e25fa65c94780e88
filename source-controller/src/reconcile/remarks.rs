//! What is worth telling about the content of an artifact: Git LFS pointers that stand for files which are not there, and
//! names that consumers refuse. Pure.

use std::borrow::Cow;

use sluice_runtime::event::Event;

/// Every pointer begins with this (Git LFS specification, "The Pointer").
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1";
/// Pointers are shorter than this, in bytes.
const LONGEST_POINTER: usize = 1024;

/// How many paths something is true of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    count: u64,
    /// The first of them, as shown.
    first: String,
}

impl Tally {
    fn add(&mut self, path: &[u8]) {
        if self.count == 0 {
            self.first = path.escape_ascii().to_string();
            if let Cow::Borrowed(text) = String::from_utf8_lossy(path)
                && !text.contains(|c: char| c.is_control() || c == '\\')
            {
                text.clone_into(&mut self.first);
            }
        }
        self.count += 1;
    }
}

/// What was noticed while an artifact was packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remarks {
    pointers: Tally,
    unreadable: Tally,
}

impl Remarks {
    /// Looks at an entry; directories have no content.
    pub(super) fn look(&mut self, path: &[u8], content: &[u8]) {
        if content.len() <= LONGEST_POINTER && content.starts_with(POINTER) {
            self.pointers.add(path);
        }
        if !is_readable(path) {
            self.unreadable.add(path);
        }
    }

    /// What a user should know about a new artifact.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.pointers.count > 0 {
            let Tally { count, first } = &self.pointers;
            let text = format!(
                "the artifact holds Git LFS pointers instead of files: {count}, the first is '{first}'; LFS content is not fetched"
            );
            tracing::info!(count, first, "the artifact holds Git LFS pointers");
            events.push(Event::normal("GitLFSPointers", text));
        }
        if self.unreadable.count > 0 {
            let Tally { count, first } = &self.unreadable;
            let text = format!(
                "consumers refuse the artifact for names with a backslash, a tab, a line break or a directory that ends in '..': \
                 {count}, the first is '{first}'; rename them or leave them out with spec.ignore"
            );
            tracing::warn!(count, first, "consumers refuse names in the artifact");
            events.push(Event::warning("UnreadablePath", text));
        }
        events
    }
}

/// Whether Flux's consumers unpack an entry of this name. One that they do not fails the whole artifact.
fn is_readable(path: &[u8]) -> bool {
    let strange = path.iter().any(|byte| matches!(byte, b'\\' | b'\t' | b'\n'));
    !strange && !path.windows(3).any(|part| part == b"../")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_told_apart_from_what_only_looks_like_one() {
        let pointer = [POINTER, b"\noid sha256:00\nsize 1\n"].concat();
        let long = [&pointer[..], &[b'x'; LONGEST_POINTER]].concat();
        let mut remarks = Remarks::default();
        remarks.look(b"a", &pointer[1..]);
        remarks.look(b"b", &long);
        remarks.look(b"directory", b"");
        assert_eq!(remarks, Remarks::default());
        assert!(remarks.events().is_empty());
        remarks.look("\u{e9}/c".as_bytes(), &pointer);
        remarks.look(b"d", &pointer);
        assert_eq!(
            (remarks.pointers.count, remarks.pointers.first.as_str()),
            (2, "\u{e9}/c")
        );
        assert_eq!(remarks.events().len(), 1);
    }

    #[test]
    fn names_that_consumers_refuse_are_found() {
        for (path, readable) in [
            (&b"a/b.."[..], true),
            (b"a../b", false),
            (b"../b", false),
            (b"a..b/c", true),
            (b"a\\b", false),
            (b"a\tb", false),
            (b"a\nb", false),
            (b"con.txt", true),
            (b"a\x01b", true),
        ] {
            assert_eq!(is_readable(path), readable, "{}", path.escape_ascii());
        }
        let mut remarks = Remarks::default();
        remarks.look(b"a\\\nb", b"");
        assert_eq!(remarks.unreadable.first, "a\\\\\\nb");
        assert_eq!(remarks.events().len(), 1);
    }
}
