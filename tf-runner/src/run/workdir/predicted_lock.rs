//! What `init` made of the module's dependency lock file at an earlier run of the same stack. With it the CLI can tell that
//! packages which are there already are the right ones, also where the module has no lock file, or one without the digest for
//! this platform.
//!
//! The file lies where the code of other stacks may write, so it carries a MAC under the key of the stack's object.

use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::run::lifecycle::error::RunError;
use crate::run::workdir;
use crate::run::workdir::lock_file;
use crate::run::workdir::prepare::write_private;

/// Hexadecimal digits of the MAC.
const MAC: usize = 64;

/// What the answer of `init` depends on, as far as it is known.
pub(crate) struct Question<'a> {
    /// Key of the stack's object.
    pub(crate) key: &'a [u8],
    /// uid of the stack's object.
    pub(crate) stack: &'a str,
    /// The module's own lock file.
    pub(crate) before: Option<&'a str>,
    /// Where providers come from: the program, and what it is told of registries and mirrors.
    pub(crate) ways: &'a [u8],
}

impl Question<'_> {
    fn mac(&self, after: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key).ok()?;
        let has_one = [u8::from(self.before.is_some())];
        for part in [
            b"sluice predicted lock 1".as_slice(),
            self.stack.as_bytes(),
            &has_one,
            self.before.unwrap_or_default().as_bytes(),
            self.ways,
            after.as_bytes(),
        ] {
            // Lengths let no part pass for the end of another.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Some(mac)
    }

    /// The lock file that `init` made, if it answered this question; nothing else counts.
    pub(crate) fn answer(&self, file: &Path) -> Option<String> {
        let bytes = workdir::read_limited(file, lock_file::LIMIT + MAC as u64).ok()?;
        let (mac, after) = bytes.split_at_checked(MAC)?;
        let (mac, after) = (hex::decode(mac).ok()?, std::str::from_utf8(after).ok()?);
        self.mac(after)?.verify_slice(&mac).ok()?;
        Some(after.to_owned())
    }

    /// Notes the answer for the next run.
    pub(crate) fn note(&self, file: &Path, after: &str) -> Result<(), RunError> {
        let Some(mac) = self.mac(after) else {
            return Ok(());
        };
        let text = format!("{}{after}", hex::encode(mac.finalize().into_bytes()));
        write_private(file, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_its_question_and_its_stack_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lock.hcl");
        let asked = || Question {
            key: &[1; 32],
            stack: "u1",
            before: None,
            ways: b"tofu",
        };
        assert_eq!(asked().answer(&file), None);
        asked().note(&file, "provider").unwrap();
        assert_eq!(asked().answer(&file).as_deref(), Some("provider"));
        for other in [
            Question {
                key: &[2; 32],
                ..asked()
            },
            Question {
                stack: "u2",
                ..asked()
            },
            Question {
                before: Some(""),
                ..asked()
            },
            Question {
                ways: b"terraform",
                ..asked()
            },
        ] {
            assert_eq!(other.answer(&file), None);
        }
        let mut text = std::fs::read_to_string(&file).unwrap();
        text.push('s');
        std::fs::write(&file, text).unwrap();
        assert_eq!(asked().answer(&file), None, "somebody else wrote it");
        std::fs::write(&file, "short").unwrap();
        assert_eq!(asked().answer(&file), None);
    }
}
