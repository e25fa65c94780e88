//! Keys and certificates created by the real `ssh-keygen`.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// A key pair in the format of its files.
#[derive(Clone, Debug)]
pub struct Key {
    /// The private key.
    pub private: String,
    /// The public key: type and key, without a comment.
    pub public: String,
    /// A certificate for the key.
    pub certificate: Option<String>,
}

/// Why a key could not be created.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// `ssh-keygen` could not be run, or its files could not be read.
    #[error("ssh-keygen: {0}")]
    System(#[from] io::Error),
    /// `ssh-keygen` exited with an error.
    #[error("`ssh-keygen {arguments}` failed: {output}")]
    Failed {
        /// Its arguments.
        arguments: String,
        /// Its output.
        output: String,
    },
}

impl Key {
    /// Creates a key in OpenSSH's format without a passphrase: `ed25519`, `ecdsa` or `rsa` with this many bits.
    ///
    /// # Errors
    /// When `ssh-keygen` is missing or fails.
    pub fn generate(kind: &str, bits: u32) -> Result<Self, KeyError> {
        Self::generate_with(kind, bits, &["-N", ""])
    }

    /// As [`Key::generate`], with further arguments of `ssh-keygen`: `-m PEM`, `-N passphrase`.
    ///
    /// # Errors
    /// When `ssh-keygen` is missing or fails.
    pub fn generate_with(kind: &str, bits: u32, arguments: &[&str]) -> Result<Self, KeyError> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("key");
        let (bits, path) = (bits.to_string(), file.display().to_string());
        run(&[&["-q", "-t", kind, "-b", &bits, "-C", "", "-f", &path], arguments].concat())?;
        Ok(Self {
            private: std::fs::read_to_string(&file)?,
            public: std::fs::read_to_string(file.with_extension("pub"))?
                .trim()
                .to_owned(),
            certificate: None,
        })
    }

    /// Converts the key, which must have no passphrase, to another format: `-m PEM`, `-N passphrase`.
    ///
    /// # Errors
    /// When `ssh-keygen` is missing or fails.
    pub fn rewritten(&self, arguments: &[&str]) -> Result<Self, KeyError> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("key");
        write_private(&file, &self.private)?;
        let path = file.display().to_string();
        run(&[&["-q", "-p", "-P", "", "-f", &path], arguments].concat())?;
        Ok(Self {
            private: std::fs::read_to_string(&file)?,
            ..self.clone()
        })
    }
}

/// Signs a key; `arguments` give subject and validity (`-h -n host -V +1h`).
///
/// # Errors
/// When `ssh-keygen` is missing or fails.
pub fn certify(authority: &Key, key: &Key, arguments: &[&str]) -> Result<Key, KeyError> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name);
    write_private(&file("authority"), &authority.private)?;
    std::fs::write(file("key.pub"), &key.public)?;
    let (signer, public) = (
        file("authority").display().to_string(),
        file("key.pub").display().to_string(),
    );
    run(&[&["-q", "-s", &signer, "-I", "test"], arguments, &[&public]].concat())?;
    Ok(Key {
        certificate: Some(std::fs::read_to_string(file("key-cert.pub"))?),
        ..key.clone()
    })
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

fn run(arguments: &[&str]) -> Result<(), KeyError> {
    let output = Command::new("ssh-keygen")
        .args(arguments)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let output = [output.stdout, output.stderr].concat();
    Err(KeyError::Failed {
        arguments: arguments.join(" "),
        output: String::from_utf8_lossy(&output).trim().to_owned(),
    })
}
