//! SSH keys and signatures created by the real `ssh-keygen`.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Why `ssh-keygen` failed.
#[derive(Debug, thiserror::Error)]
pub enum SshKeyError {
    /// It could not be started, or a file could not be read.
    #[error("cannot run `ssh-keygen` (the package openssh-client): {0}")]
    Start(#[from] io::Error),
    /// It exited with an error.
    #[error("`ssh-keygen {arguments}` failed: {output}")]
    Failed {
        /// The arguments, joined by spaces.
        arguments: String,
        /// What it printed.
        output: String,
    },
}

/// A key pair without a passphrase, in a temporary folder that is removed with the value.
#[derive(Debug)]
pub struct SshKey {
    folder: TempDir,
    public: String,
    fingerprint: String,
}

impl SshKey {
    /// Creates a key: `ed25519`, `rsa` or `ecdsa` with this many bits.
    ///
    /// # Errors
    /// When `ssh-keygen` is missing or fails.
    pub fn generate(kind: &str, bits: u16) -> Result<Self, SshKeyError> {
        let folder = TempDir::with_prefix("ssh-key-")?;
        let (file, bits) = (folder.path().join("key"), bits.to_string());
        let options = ["-q", "-t", kind, "-b", &bits, "-N", "", "-C", "a comment", "-f"];
        run(options.iter().map(OsStr::new).chain([file.as_os_str()]))?;
        let listed = run([OsStr::new("-l"), OsStr::new("-f"), file.as_os_str()])?;
        Ok(Self {
            public: std::fs::read_to_string(folder.path().join("key.pub"))?,
            fingerprint: listed.split(' ').nth(1).unwrap_or_default().to_owned(),
            folder,
        })
    }

    /// Returns the file with the private key; the public one is `<file>.pub`.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    /// Returns the public key as a line of `authorized_keys`.
    #[must_use]
    pub fn public(&self) -> &str {
        &self.public
    }

    /// Returns the fingerprint of the public key, `SHA256:…`.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Returns a signature (`ssh-keygen -Y sign`); `options` are further arguments: `-n git`, `-O hashalg=sha256`.
    ///
    /// # Errors
    /// When `ssh-keygen` fails.
    pub fn sign(&self, content: &[u8], options: &[&str]) -> Result<String, SshKeyError> {
        let folder = TempDir::with_prefix("ssh-signature-")?;
        let (key, file) = (self.file(), folder.path().join("content"));
        std::fs::write(&file, content)?;
        let fixed = ["-q", "-Y", "sign"].iter().chain(options).map(OsStr::new);
        run(fixed.chain([OsStr::new("-f"), key.as_os_str(), file.as_os_str()]))?;
        Ok(std::fs::read_to_string(folder.path().join("content.sig"))?)
    }
}

fn run<'a>(arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<String, SshKeyError> {
    let mut command = Command::new("ssh-keygen");
    command.args(arguments).stdin(Stdio::null());
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    Err(SshKeyError::Failed {
        arguments: arguments.join(" "),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_public_line_and_a_fingerprint_and_signs() {
        let key = SshKey::generate("ed25519", 256).unwrap();
        assert!(key.public().starts_with("ssh-ed25519 AAAA"), "{}", key.public());
        assert!(key.fingerprint().starts_with("SHA256:"), "{}", key.fingerprint());
        let signature = key.sign(b"content", &["-n", "git"]).unwrap();
        assert!(
            signature.starts_with("-----BEGIN SSH SIGNATURE-----"),
            "{signature}"
        );
        assert!(SshKey::generate("none", 1).is_err());
    }
}
