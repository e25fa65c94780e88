//! The module's dependency lock file (`.terraform.lock.hcl`), and the prediction of its content after `init`.
//!
//! The effect of a plan covers the lock file, and its apply restores it. Hence it is read completely or not at all.

use std::io::{Error, ErrorKind};
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use sluice_tf_core::workdir::read_limited;

use crate::run::lifecycle::error::RunError;
use crate::run::workdir::{directory_error, write_private};

const FILE: &str = ".terraform.lock.hcl";
/// Maximum number of bytes that are read. A lock file of a hundred providers has some hundred kilobytes, and the last applied record
/// contains it beside the bundle.
const LIMIT: u64 = 2 * 1024 * 1024;
/// Hexadecimal digits of the MAC.
const MAC_LENGTH: usize = 64;

/// Reads the dependency lock file; `None` if it is absent.
pub(crate) fn read(module: &Path) -> Result<Option<String>, RunError> {
    let text = match read_limited(&module.join(FILE), LIMIT) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
        }),
    };
    text.map(Some)
        .map_err(|source| directory_error("read .terraform.lock.hcl", source))
}

pub(crate) fn write(module: &Path, text: &str) -> Result<(), RunError> {
    write_private(&module.join(FILE), text.as_bytes())
}

/// Restores the content from before `init`.
pub(crate) fn restore(module: &Path, text: Option<&str>) -> Result<(), RunError> {
    match text {
        Some(text) => write(module, text),
        None => match std::fs::remove_file(module.join(FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(directory_error("remove .terraform.lock.hcl", error))
            }
            _ => Ok(()),
        },
    }
}

/// A prediction of the dependency lock file after `init`: the result of an earlier run of the stack with the same inputs. With it,
/// the CLI accepts packages that are in place already, even if the module has no lock file or one without the digest of
/// this platform.
///
/// The file is in a directory where the code of other stacks may write, so it has a MAC under the key of the stack's object.
pub(crate) struct LockPrediction<'a> {
    /// Key of the stack's object.
    pub(crate) key: &'a [u8],
    /// uid of the stack's object.
    pub(crate) stack: &'a str,
    /// The module's own lock file.
    pub(crate) before: Option<&'a str>,
    /// The program, and its configuration of registries and mirrors.
    pub(crate) provider_sources: &'a [u8],
}

impl LockPrediction<'_> {
    fn mac(&self, after: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key).ok()?;
        let has_lock_file = [u8::from(self.before.is_some())];
        for part in [
            b"sluice predicted lock 1".as_slice(),
            self.stack.as_bytes(),
            &has_lock_file,
            self.before.unwrap_or_default().as_bytes(),
            self.provider_sources,
            after.as_bytes(),
        ] {
            // The length prefix separates the parts.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        Some(mac)
    }

    /// Reads the lock file, if it was stored for the same inputs.
    pub(crate) fn read(&self, file: &Path) -> Option<String> {
        let bytes = read_limited(file, LIMIT + MAC_LENGTH as u64).ok()?;
        let (mac, after) = bytes.split_at_checked(MAC_LENGTH)?;
        let (mac, after) = (hex::decode(mac).ok()?, std::str::from_utf8(after).ok()?);
        self.mac(after)?.verify_slice(&mac).ok()?;
        Some(after.to_owned())
    }

    /// Stores the lock file for the next run.
    pub(crate) fn store(&self, file: &Path, after: &str) -> Result<(), RunError> {
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
    fn the_lock_file_is_complete_or_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let long = "# a provider\n".repeat(120_000);
        write(dir.path(), &long).unwrap();
        assert_eq!(read(dir.path()).unwrap().as_deref(), Some(long.as_str()));
        std::fs::write(dir.path().join(FILE), [0xff]).unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("lock.hcl") && error.contains("UTF-8"), "{error}");
        let file = std::fs::File::create(dir.path().join(FILE)).unwrap();
        file.set_len(LIMIT + 1).unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("2097153 bytes"), "{error}");
    }

    #[test]
    fn a_prediction_is_valid_only_for_its_inputs_and_stack() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lock.hcl");
        let prediction = || LockPrediction {
            key: &[1; 32],
            stack: "u1",
            before: None,
            provider_sources: b"tofu",
        };
        assert_eq!(prediction().read(&file), None);
        prediction().store(&file, "provider").unwrap();
        assert_eq!(prediction().read(&file).as_deref(), Some("provider"));
        for other in [
            LockPrediction {
                key: &[2; 32],
                ..prediction()
            },
            LockPrediction {
                stack: "u2",
                ..prediction()
            },
            LockPrediction {
                before: Some(""),
                ..prediction()
            },
            LockPrediction {
                provider_sources: b"terraform",
                ..prediction()
            },
        ] {
            assert_eq!(other.read(&file), None);
        }
        let mut text = std::fs::read_to_string(&file).unwrap();
        text.push('s');
        std::fs::write(&file, text).unwrap();
        assert_eq!(prediction().read(&file), None, "somebody else wrote it");
        std::fs::write(&file, "short").unwrap();
        assert_eq!(prediction().read(&file), None);
    }
}
