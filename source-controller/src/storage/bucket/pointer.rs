//! The pointer of an artifact: a small object at a key that follows from the path, which says which content the path has. Contents
//! are stored under their digests, so that two writers of one content do not disturb each other.

use std::fmt;

use sluice_api::digest::Digest;

/// Maximum length of a pointer that is read, in bytes.
pub(super) const MAX_BYTES: u64 = 1024;
/// What follows the size in the pointer of a damaged content.
const DAMAGED: &str = " damaged";

/// The content that the path of an artifact has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    /// Digest of the content.
    pub(super) digest: Digest,
    /// Size of the content in bytes.
    pub(super) size: u64,
    /// Whether a replica has found that the stored content is not that of the digest. Then the leader must store it again.
    pub(super) is_damaged: bool,
}

impl Pointer {
    /// Reads a pointer: the digest, a space, the size, perhaps ` damaged`, and a newline.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(bytes).ok()?.trim_end();
        let marked = line.strip_suffix(DAMAGED);
        let (digest, size) = marked.unwrap_or(line).split_once(' ')?;
        Some(Self {
            digest: digest.parse().ok()?,
            size: size.parse().ok()?,
            is_damaged: marked.is_some(),
        })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let damaged = if self.is_damaged { DAMAGED } else { "" };
        writeln!(f, "{} {}{damaged}", self.digest, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_one_line() {
        let text = format!("sha256:{} 17\n", "0a".repeat(32));
        let pointer = Pointer::parse(text.as_bytes()).unwrap();
        assert!(!pointer.is_damaged);
        assert_eq!((pointer.size, pointer.to_string()), (17, text));
        let damaged = Pointer {
            is_damaged: true,
            ..pointer
        };
        assert_eq!(Pointer::parse(damaged.to_string().as_bytes()), Some(damaged));
        for bad in ["", "sha256:00 1", "x 1", "17", " damaged", "\u{0}"] {
            assert_eq!(Pointer::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
