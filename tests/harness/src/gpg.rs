//! Keys and signatures created by the real `gpg` in a home directory of their own.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The user id of the keys.
const OWNER: &str = "Ada Lovelace <ada@example.com>";

/// Why `gpg` failed.
#[derive(Debug, thiserror::Error)]
pub enum GpgError {
    /// `gpg` could not be started.
    #[error("cannot start `gpg` (the package gnupg): {0}")]
    Start(#[source] io::Error),
    /// `gpg` exited with an error.
    #[error("`gpg {arguments}` failed: {output}")]
    Failed {
        /// The arguments, joined by spaces.
        arguments: String,
        /// What it printed.
        output: String,
    },
    /// The home directory could not be created.
    #[error("cannot make a home for gpg: {0}")]
    Home(#[source] io::Error),
}

/// A home directory of `gpg` in a temporary folder. Dropping it stops the agent and removes the folder.
#[derive(Debug)]
pub struct Keyring {
    home: TempDir,
}

impl Keyring {
    /// Creates an empty keyring.
    ///
    /// # Errors
    /// When no temporary folder can be made.
    pub fn create() -> Result<Self, GpgError> {
        // The agent listens on a socket in the home directory, and socket paths must be short.
        let home = tempfile::Builder::new()
            .prefix("gpg-")
            .tempdir_in("/tmp")
            .map_err(GpgError::Home)?;
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o700))
            .map_err(GpgError::Home)?;
        let keyring = Self { home };
        keyring.write_program("program", "").map_err(GpgError::Home)?;
        Ok(keyring)
    }

    /// Creates a signing primary key without a passphrase: `rsa2048`, `ed25519`, `nistp384`, `brainpoolP256r1`, `dsa2048`.
    /// Returns its fingerprint.
    ///
    /// # Errors
    /// When `gpg` is missing or fails.
    pub fn generate(&self, algorithm: &str) -> Result<String, GpgError> {
        self.generate_at(algorithm, "0", &[])
    }

    /// As [`Keyring::generate`], with an expiry (`0`, `1d`, `1y`) and further options before the command
    /// (`--faked-system-time`).
    ///
    /// # Errors
    /// When `gpg` is missing or fails.
    pub fn generate_at(&self, algorithm: &str, expiry: &str, options: &[&str]) -> Result<String, GpgError> {
        let command = [
            "--status-fd",
            "1",
            "--quick-generate-key",
            OWNER,
            algorithm,
            "sign",
            expiry,
        ];
        let output = self.gpg(options.iter().chain(&command), b"")?;
        let output = String::from_utf8_lossy(&output).into_owned();
        output
            .lines()
            .find_map(|line| line.strip_prefix("[GNUPG:] KEY_CREATED P ").map(str::to_owned))
            .ok_or_else(|| GpgError::Failed {
                arguments: command.join(" "),
                output,
            })
    }

    /// Returns the armored public part of a key.
    ///
    /// # Errors
    /// When `gpg` fails.
    pub fn export(&self, fingerprint: &str) -> Result<String, GpgError> {
        let armored = self.gpg(["--armor", "--export", fingerprint], b"")?;
        Ok(String::from_utf8_lossy(&armored).into_owned())
    }

    /// Returns an armored detached signature; `options` precede the command (`--faked-system-time`, `--digest-algo`).
    ///
    /// # Errors
    /// When `gpg` fails.
    pub fn sign(&self, fingerprint: &str, content: &[u8], options: &[&str]) -> Result<String, GpgError> {
        let command = ["--armor", "--local-user", fingerprint, "--detach-sign"];
        let armored = self.gpg(options.iter().chain(&command), content)?;
        Ok(String::from_utf8_lossy(&armored).into_owned())
    }

    /// Revokes a whole key with the certificate that `gpg` created in advance.
    ///
    /// # Errors
    /// When the certificate is missing or `gpg` fails.
    pub fn revoke(&self, fingerprint: &str) -> Result<(), GpgError> {
        let file = self
            .home
            .path()
            .join(format!("openpgp-revocs.d/{fingerprint}.rev"));
        let certificate = std::fs::read_to_string(file).map_err(GpgError::Home)?;
        // A colon before the armor protects it from accidental import.
        let certificate = certificate.replace(":-----BEGIN", "-----BEGIN");
        self.gpg(["--import"], certificate.as_bytes()).map(drop)
    }

    /// Runs `gpg` with this home directory; returns its output.
    ///
    /// # Errors
    /// When `gpg` cannot be started or fails.
    pub fn gpg<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> Result<Vec<u8>, GpgError> {
        let mut command = Command::new(self.program());
        command
            .args([
                "--batch",
                "--yes",
                "--pinentry-mode",
                "loopback",
                "--passphrase",
                "",
            ])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(GpgError::Start)?;
        if let Some(mut stdin) = child.stdin.take() {
            // It may exit without reading its input; then its output contains the reason.
            drop(stdin.write_all(input));
        }
        let output = child.wait_with_output().map_err(GpgError::Start)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
        Err(GpgError::Failed {
            arguments: arguments.join(" "),
            output: String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
                .trim()
                .to_owned(),
        })
    }

    /// Returns a program for Git's `gpg.program`: `gpg` with this home directory.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.home.path().join("program")
    }

    /// As [`Keyring::program`], at another time (`20200101T000000`).
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn program_at(&self, time: &str) -> Result<PathBuf, GpgError> {
        let name = format!("program-{time}");
        self.write_program(&name, &format!("--faked-system-time {time}"))
            .map_err(GpgError::Home)
    }

    fn write_program(&self, name: &str, options: &str) -> io::Result<PathBuf> {
        let (file, home) = (self.home.path().join(name), self.home.path().display());
        let script = format!("#!/bin/sh\nLC_ALL=C exec gpg --homedir '{home}' --no-tty {options} \"$@\"\n");
        // Another process writes the file: while this process has it open for writing, a child forked by another thread
        // could not run it.
        let mut writer = Command::new("cp")
            .arg("/dev/stdin")
            .arg(&file)
            .stdin(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = writer.stdin.take() {
            stdin.write_all(script.as_bytes())?;
        }
        writer.wait()?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700))?;
        Ok(file)
    }

    /// Returns the home directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.home.path()
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        let ended = Command::new("gpgconf")
            .arg("--homedir")
            .arg(self.home.path())
            .args(["--kill", "all"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if let Err(error) = ended {
            eprintln!(
                "the agent of {} may still run: {error}",
                self.home.path().display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_verified_until_its_content_changes() {
        let keyring = Keyring::create().unwrap();
        let key = keyring.generate("ed25519").unwrap();
        let signature = keyring.sign(&key, b"content", &[]).unwrap();
        let file = keyring.path().join("signature");
        std::fs::write(&file, signature).unwrap();
        let verify = |content: &[u8]| {
            keyring.gpg(
                [OsStr::new("--verify"), file.as_os_str(), OsStr::new("-")],
                content,
            )
        };
        verify(b"content").unwrap();
        let error = verify(b"other").unwrap_err().to_string();
        assert!(error.contains("BAD signature"), "{error}");
        assert!(
            keyring
                .export(&key)
                .unwrap()
                .contains("BEGIN PGP PUBLIC KEY BLOCK")
        );
    }
}
