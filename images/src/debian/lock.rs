//! The lock file of packages: version and digest of each package for each architecture.

use std::collections::BTreeMap;

/// The lock file of the repository.
pub const PACKAGES_LOCK: &str = include_str!("../../packages.lock");
/// The first line of the lock file.
const HEAD: &str = "# Debian packages of the images: architecture, name, version, SHA-256. `make images-lock` writes this file.";

/// A line of the lock file is malformed.
#[derive(Debug, thiserror::Error)]
#[error(
    "line {line} of the lock file of packages has not the form `architecture name version sha256`: run `make images-lock`"
)]
pub struct LockError {
    line: usize,
}

/// A locked package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedPackage {
    /// The version with its epoch.
    pub version: String,
    /// SHA-256 of the package file in hexadecimal digits.
    pub digest: String,
}

/// The locked packages of one or more architectures, by architecture and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    packages: BTreeMap<(String, String), LockedPackage>,
}

impl Lock {
    /// Parses a lock file.
    ///
    /// # Errors
    /// When a line has another form.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mut lock = Self::default();
        for (number, line) in lines {
            let parts: Vec<&str> = line.split(' ').collect();
            let [architecture, name, version, digest] = parts[..] else {
                return Err(LockError { line: number + 1 });
            };
            if digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(LockError { line: number + 1 });
            }
            lock.insert(architecture, name, version, digest);
        }
        Ok(lock)
    }

    /// Adds a package.
    pub fn insert(&mut self, architecture: &str, name: &str, version: &str, digest: &str) {
        let package = LockedPackage {
            version: version.to_owned(),
            digest: digest.to_owned(),
        };
        self.packages
            .insert((architecture.to_owned(), name.to_owned()), package);
    }

    /// Returns a package of an architecture.
    #[must_use]
    pub fn package(&self, architecture: &str, name: &str) -> Option<&LockedPackage> {
        self.packages.get(&(architecture.to_owned(), name.to_owned()))
    }
}

impl std::fmt::Display for Lock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(formatter, "{HEAD}")?;
        self.packages
            .iter()
            .try_for_each(|((architecture, name), package)| {
                let LockedPackage { version, digest } = package;
                writeln!(formatter, "{architecture} {name} {version} {digest}")
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_line_is_named() {
        let digest = "0".repeat(64);
        for bad in [
            "amd64 git 1",
            "amd64 git 1 xyz",
            &format!("amd64 git 1 {digest} more"),
        ] {
            let text = format!("# head\namd64 libc6 2.36 {digest}\n{bad}\n");
            let error = Lock::parse(&text).unwrap_err().to_string();
            assert!(error.starts_with("line 3 of the lock file"), "{error}");
        }
    }
}
