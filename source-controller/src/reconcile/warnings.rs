//! Detects content that deserves an event: Git LFS pointers, whose files are missing from the artifact, and names that
//! consumers refuse. Pure.

use std::borrow::Cow;

use sluice_runtime::event::Event;

/// The first line of every pointer (Git LFS specification, "The Pointer").
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1";
/// Maximum size of a pointer, in bytes.
const MAX_POINTER_BYTES: usize = 1024;

/// A number of paths and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PathCount {
    count: u64,
    /// The first path, escaped for messages.
    first: String,
}

impl PathCount {
    /// Adds `count` paths, the first of which is `path`.
    fn add(&mut self, count: u64, path: &[u8]) {
        if self.count == 0 {
            self.first = path.escape_ascii().to_string();
            if let Cow::Borrowed(text) = String::from_utf8_lossy(path)
                && !text.contains(|c: char| c.is_control() || c == '\\')
            {
                text.clone_into(&mut self.first);
            }
        }
        self.count += count;
    }
}

/// Warnings collected while packing an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ContentWarnings {
    pointers: PathCount,
    unreadable: PathCount,
}

impl ContentWarnings {
    /// Checks the name of an entry.
    pub(super) fn inspect(&mut self, path: &[u8]) {
        if !is_readable(path) {
            self.unreadable.add(1, path);
        }
    }

    /// Returns the number of names that consumers refuse.
    pub(super) const fn unreadable(&self) -> u64 {
        self.unreadable.count
    }

    /// Adds the pointers of an archive: their number, and the path of the first.
    pub(super) fn add_pointers(&mut self, count: u64, first: &[u8]) {
        if count > 0 {
            self.pointers.add(count, first);
        }
    }

    /// Returns the events for a new artifact.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.pointers.count > 0 {
            let PathCount { count, first } = &self.pointers;
            let text = format!(
                "Git LFS pointers instead of files in the artifact: {count}, the first is '{first}'; LFS content is not fetched"
            );
            tracing::info!(count, first, "the artifact contains Git LFS pointers");
            events.push(Event::normal("GitLFSPointers", text));
        }
        if self.unreadable.count > 0 {
            let PathCount { count, first } = &self.unreadable;
            let text = format!(
                "consumers reject artifacts with a backslash, a tab or a line break in a name, or a directory that ends in \
                 '..'; such names: {count}, the first is '{first}'; rename them or exclude them with spec.ignore"
            );
            tracing::warn!(count, first, "consumers reject names in the artifact");
            events.push(Event::warning("UnreadablePath", text));
        }
        events
    }
}

/// Returns whether the content of a file is a Git LFS pointer.
pub(super) fn is_pointer(content: &[u8]) -> bool {
    content.len() <= MAX_POINTER_BYTES && content.starts_with(POINTER)
}

/// Returns whether Flux's consumers unpack an entry of this name. One refused entry fails the whole artifact.
fn is_readable(path: &[u8]) -> bool {
    let strange = path.iter().any(|byte| matches!(byte, b'\\' | b'\t' | b'\n'));
    !strange && !path.windows(3).any(|part| part == b"../")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_lfs_pointers_are_detected() {
        let pointer = [POINTER, b"\noid sha256:00\nsize 1\n"].concat();
        let long = [&pointer[..], &[b'x'; MAX_POINTER_BYTES]].concat();
        for (content, expected) in [
            (&pointer[..], true),
            (&pointer[1..], false),
            (&long, false),
            (b"", false),
        ] {
            assert_eq!(is_pointer(content), expected, "{}", content.escape_ascii());
        }
        let mut warnings = ContentWarnings::default();
        warnings.add_pointers(0, b"");
        assert_eq!(warnings, ContentWarnings::default());
        assert!(warnings.events().is_empty());
        warnings.add_pointers(2, "\u{e9}/c".as_bytes());
        assert_eq!(
            (warnings.pointers.count, warnings.pointers.first.as_str()),
            (2, "\u{e9}/c")
        );
        assert_eq!(warnings.events().len(), 1);
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
        let mut warnings = ContentWarnings::default();
        warnings.inspect(b"a\\\nb");
        assert_eq!(warnings.unreadable.first, "a\\\\\\nb");
        assert_eq!(warnings.events().len(), 1);
    }
}
