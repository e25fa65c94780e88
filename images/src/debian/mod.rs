//! Debian's packages: downloaded, compared with the lock file, and unpacked without being installed.

pub mod index;
pub mod lock;
mod selection;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

pub use lock::{Lock, LockError, LockedPackage, PACKAGES_LOCK};
pub use selection::add_files;

use crate::archive::architecture;

/// The architectures of the lock file.
pub const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// A package is not available.
#[derive(Debug, thiserror::Error)]
pub enum DebianError {
    /// The lock file does not have the package.
    #[error("the lock file of packages has no {name} for {architecture}: run `make images-lock`")]
    NotLocked {
        /// The package.
        name: String,
        /// The architecture of this machine.
        architecture: &'static str,
    },
    /// The archive no longer has the locked version, or cannot be reached.
    #[error(
        "cannot download {packages}: {why}. Debian's archive keeps only the newest version of a package: to take it, run `make images-lock`; to \
         take the locked one, let apt use a snapshot of the archive"
    )]
    Download {
        /// The packages.
        packages: String,
        /// The error.
        why: String,
    },
    /// The archive served other bytes than the locked ones.
    #[error(
        "{file} has the SHA-256 {found}, and the lock file of packages says {expected}: delete the file, or run `make images-lock`"
    )]
    OtherDigest {
        /// The package file.
        file: String,
        /// Its digest.
        found: String,
        /// The locked digest.
        expected: String,
    },
    /// The package cannot be unpacked.
    #[error("cannot unpack {file}: {source}")]
    Unpack {
        /// The package file.
        file: String,
        /// The error of the system or of `dpkg-deb`.
        source: io::Error,
    },
    /// apt's description of a package has no version or digest.
    #[error(
        "apt describes {name} for {architecture} without a version and SHA-256: are Debian's package sources configured?"
    )]
    NotDescribed {
        /// The package.
        name: String,
        /// The architecture.
        architecture: String,
    },
}

/// An unpacked package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The name.
    pub name: String,
    /// The version with its epoch.
    pub version: String,
    /// `all`, or that of this machine.
    pub architecture: String,
    /// SHA-256 of the package file in hexadecimal digits.
    pub digest: String,
    /// Its control file.
    pub control: String,
    /// The directory with its files.
    pub files: PathBuf,
}

/// Downloads packages that the directory `cache` lacks, and unpacks all of them below `work`. With a lock file, only the locked
/// versions count, and their digests are verified each time; without one, any version does.
///
/// # Errors
/// When a package cannot be downloaded or unpacked, or is not the locked one.
pub fn fetch(
    names: &[&str],
    lock: Option<&Lock>,
    cache: &Path,
    work: &Path,
) -> Result<Vec<Package>, DebianError> {
    let wanted: Vec<Wanted> = names
        .iter()
        .map(|name| Wanted::new(name, lock))
        .collect::<Result<_, _>>()?;
    let missing: Vec<&Wanted> = wanted
        .iter()
        .filter(|wanted| wanted.find(cache).is_none())
        .collect();
    if !missing.is_empty() {
        download_into(&missing, cache)?;
    }
    wanted.iter().map(|wanted| wanted.unpack(cache, work)).collect()
}

/// A package to be found in a directory.
struct Wanted {
    name: String,
    locked: Option<LockedPackage>,
}

impl Wanted {
    fn new(name: &str, lock: Option<&Lock>) -> Result<Self, DebianError> {
        let locked = |lock: &Lock| {
            let package = lock.package(architecture(), name).cloned();
            package.ok_or_else(|| DebianError::NotLocked {
                name: name.to_owned(),
                architecture: architecture(),
            })
        };
        Ok(Self {
            name: name.to_owned(),
            locked: lock.map(locked).transpose()?,
        })
    }

    /// Returns the argument of `apt-get download`.
    fn request(&self) -> String {
        match &self.locked {
            Some(locked) => format!("{}={}", self.name, locked.version),
            None => self.name.clone(),
        }
    }

    /// Returns the package file, as apt names it.
    fn find(&self, cache: &Path) -> Option<PathBuf> {
        let start = match &self.locked {
            Some(locked) => format!("{}_{}_", self.name, locked.version.replace(':', "%3a")),
            None => format!("{}_", self.name),
        };
        let files = fs::read_dir(cache).ok()?.filter_map(Result::ok);
        let mut names: Vec<PathBuf> = files
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .filter(|path| file_name(path).starts_with(&start))
            .collect();
        names.sort();
        names.pop()
    }

    fn unpack(&self, cache: &Path, work: &Path) -> Result<Package, DebianError> {
        let file = self.find(cache).ok_or_else(|| DebianError::Download {
            packages: self.request(),
            why: "apt-get did not store it".to_owned(),
        })?;
        let failed = |source| DebianError::Unpack {
            file: file_name(&file),
            source,
        };
        let digest = hex::encode(Sha256::digest(fs::read(&file).map_err(failed)?));
        if let Some(locked) = self.locked.as_ref().filter(|locked| locked.digest != digest) {
            return Err(DebianError::OtherDigest {
                file: file_name(&file),
                found: digest,
                expected: locked.digest.clone(),
            });
        }
        let files = work.join(&self.name);
        fs::create_dir_all(&files).map_err(failed)?;
        run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&files)).map_err(failed)?;
        let control = run(Command::new("dpkg-deb").arg("-f").arg(&file)).map_err(failed)?;
        let field = |name: &str| index::field(&control, name).unwrap_or_default().to_owned();
        Ok(Package {
            name: self.name.clone(),
            version: field("Version"),
            architecture: field("Architecture"),
            digest,
            control,
            files,
        })
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().display().to_string()
}

/// Downloads into a directory of its own first, so that an interrupted download leaves no part of a package.
fn download_into(missing: &[&Wanted], cache: &Path) -> Result<(), DebianError> {
    let requests: Vec<String> = missing.iter().map(|wanted| wanted.request()).collect();
    let failed = |why: io::Error| DebianError::Download {
        packages: requests.join(" "),
        why: why.to_string(),
    };
    fs::create_dir_all(cache).map_err(failed)?;
    let folder = tempfile::tempdir_in(cache).map_err(failed)?;
    download(&requests, folder.path()).map_err(failed)?;
    for entry in fs::read_dir(folder.path()).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        fs::rename(&path, cache.join(file_name(&path))).map_err(failed)?;
    }
    Ok(())
}

/// Downloads packages, each as `name` or `name=version`, into a directory.
///
/// # Errors
/// When `apt-get` is missing or fails.
pub fn download<S: AsRef<str>>(packages: &[S], directory: &Path) -> io::Result<()> {
    let names = || packages.iter().map(AsRef::as_ref);
    let once = || {
        run(Command::new("apt-get")
            .arg("download")
            .args(names())
            .current_dir(directory))
    };
    // A fresh machine has no package lists, and old lists name versions that are gone.
    once().or_else(|_| run(Command::new("apt-get").arg("update")).and_then(|_| once()))?;
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn run(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().display().to_string();
    let output = command
        .output()
        .map_err(|error| io::Error::other(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name}: {}", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a package without `apt-get`, as it is in a cache.
    fn package(cache: &Path, version: &str) -> String {
        let source = cache.join("source");
        let file = source.join("usr/bin/program");
        fs::create_dir_all(source.join("DEBIAN")).unwrap();
        fs::create_dir_all(source.join("usr/bin")).unwrap();
        let control = format!(
            "Package: one\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <a@example.com>\nDescription: one\n"
        );
        fs::write(source.join("DEBIAN/control"), control).unwrap();
        fs::write(file, version).unwrap();
        let name = format!("one_{}_all.deb", version.replace(':', "%3a"));
        let built = cache.join(name);
        run(Command::new("dpkg-deb").arg("-b").arg(&source).arg(&built)).unwrap();
        hex::encode(Sha256::digest(fs::read(built).unwrap()))
    }

    fn lock(version: &str, digest: &str) -> Lock {
        let mut lock = Lock::default();
        lock.insert(architecture(), "one", version, digest);
        lock
    }

    #[test]
    fn a_cached_package_is_unpacked_only_with_the_locked_version_and_digest() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, work) = (folder.path(), folder.path().join("work"));
        let digest = package(cache, "1:1.0-1");
        package(cache, "1:1.0-2");
        let found = fetch(&["one"], Some(&lock("1:1.0-1", &digest)), cache, &work).unwrap();
        assert_eq!(
            (found[0].version.as_str(), found[0].architecture.as_str()),
            ("1:1.0-1", "all")
        );
        assert_eq!((&found[0].digest, found[0].name.as_str()), (&digest, "one"));
        assert_eq!(
            fs::read_to_string(found[0].files.join("usr/bin/program")).unwrap(),
            "1:1.0-1"
        );

        let error = fetch(&["one"], Some(&lock("1:1.0-1", &"0".repeat(64))), cache, &work).unwrap_err();
        assert!(matches!(error, DebianError::OtherDigest { .. }), "{error}");
        let error = fetch(&["two"], Some(&Lock::default()), cache, &work).unwrap_err();
        assert!(matches!(error, DebianError::NotLocked { .. }), "{error}");
        let newest = fetch(&["one"], None, cache, &folder.path().join("other")).unwrap();
        assert_eq!(newest[0].version, "1:1.0-2");
    }
}
