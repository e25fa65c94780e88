//! SSH signatures of commits, as those of `git commit -S` with `gpg.format=ssh`: `git verify-commit` checks them.

use std::fmt;
use std::fs::File;
use std::path::Path;

use ssh_key::{HashAlg, LineEnding, PrivateKey};

/// Namespace of the signatures of Git (`sign_buffer_ssh` in its `gpg-interface.c`).
const NAMESPACE: &str = "git";

/// What the user can do about a file that has no key.
const ADVICE: &str = "name a private key of OpenSSH; `ssh-keygen -t ed25519 -N '' -f FILE` creates one";

/// A private key that signs commits.
pub(super) struct SigningKey(PrivateKey);

impl SigningKey {
    /// Reads a private key of OpenSSH. The error is the reason, without content of the file.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let failed = |reason: &dyn fmt::Display| {
            format!("the signing key {} cannot be used: {reason}", path.display())
        };
        // The library reports an error of the system without its text.
        let mut file = File::open(path).map_err(|error| failed(&format!("{error}; {ADVICE}")))?;
        let key = PrivateKey::read_openssh(&mut file);
        let key = key.map_err(|error| failed(&format!("{error}; {ADVICE}")))?;
        if key.is_encrypted() {
            return Err(failed(&"it has a passphrase; create one without"));
        }
        let key = Self(key);
        // Keys of some types are only read, for example those of security keys.
        key.sign("").map_err(|error| failed(&error))?;
        Ok(key)
    }

    /// Returns the signature of a commit, in its armor. The error is the reason.
    pub(super) fn sign(&self, commit: &str) -> Result<String, String> {
        let signature = self.0.sign(NAMESPACE, HashAlg::Sha512, commit.as_bytes());
        let armored = signature.and_then(|signature| signature.to_pem(LineEnding::LF));
        match armored {
            Ok(armored) => Ok(armored.trim_end().to_owned()),
            Err(error) => Err(format!("cannot sign a commit: {error}")),
        }
    }
}
