//! The cache of provider packages that runs share.
//!
//! The cache is not trusted. A package is found by source address, version, platform and the digest (`h1:`) in the dependency
//! lock file of the run. The copy for the run is digested, and the CLI digests it again before it uses it. Hence a run that
//! writes a manipulated package into the cache cannot affect another run.
//!
//! The digest of 200 MB takes longer than their copy. So a package whose files are those of its last digest, by what the file system
//! knows about them, is copied without another one: then only the CLI digests the copy. [`verified`] has these records. If the CLI
//! refuses the copy, the record was wrong, and the package is removed.
//!
//! The cache has one directory per package, created by rename. It is bounded in bytes, and the least recently used packages are
//! evicted.

mod locked_provider;
mod package;
mod verified;

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use locked_provider::platform;
pub(crate) use locked_provider::{INSTALL_DIRECTORY, LockedProvider, parse};
pub(crate) use package::file_digest;
use sha2::{Digest as _, Sha256};
use sluice_tf_core::workdir::remove_tree;
use verified::VerifiedPackages;

/// Prefix of directories that are being filled or removed.
const TEMPORARY_PREFIX: &str = ".unfinished-";
/// Age at which a temporary directory is known to belong to a killed runner.
const ABANDONED_AFTER: Duration = Duration::from_hours(1);

/// Packages of providers on disk. Several runners use one directory at the same time.
#[derive(Clone, Debug)]
pub(crate) struct ProviderCache {
    root: PathBuf,
    /// Maximum number of bytes of all packages.
    limit: u64,
}

/// A copy of a cached package for one run.
#[derive(Debug)]
pub(crate) struct PackageCopy {
    path: PathBuf,
    /// The package in the cache.
    entry: PathBuf,
    /// The digest in the lock file.
    hash: String,
    fingerprint: String,
}

impl ProviderCache {
    pub(crate) const fn new(root: PathBuf, limit: u64) -> Self {
        Self { root, limit }
    }

    fn entry(&self, provider: &LockedProvider, hash: &str) -> PathBuf {
        let mut key = Sha256::new();
        for part in [&provider.source, &provider.version, &platform(), hash] {
            // The length prefix separates the parts.
            key.update((part.len() as u64).to_be_bytes());
            key.update(part);
        }
        self.root.join(hex::encode(key.finalize()))
    }

    /// Whether the cache contains a package of this provider with one of its digests.
    pub(crate) fn contains(&self, provider: &LockedProvider) -> bool {
        provider
            .hashes
            .iter()
            .any(|hash| self.entry(provider, hash).is_dir())
    }

    fn verified(&self) -> VerifiedPackages {
        VerifiedPackages::below(&self.root)
    }

    /// Copies a package with a digest of the lock file to an absent path. Returns the copy, if the cache has one. A package with
    /// another digest is removed from the cache.
    ///
    /// # Errors
    /// When an incomplete copy cannot be removed.
    pub(crate) fn copy_to(&self, provider: &LockedProvider, to: &Path) -> io::Result<Option<PackageCopy>> {
        for hash in &provider.hashes {
            let entry = self.entry(provider, hash);
            if !entry.is_dir() {
                continue;
            }
            match self.copy_package(&entry, hash, to) {
                Ok(Some(copy)) => {
                    mark_used(&entry);
                    return Ok(Some(copy));
                }
                Ok(None) => self.reject(provider, &entry, "its bytes have a different digest"),
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    self.reject(provider, &entry, &error.to_string());
                }
                // Another runner has just evicted it, or the disk is full.
                Err(error) => {
                    tracing::warn!(%error, source = provider.source, "a cached provider cannot be copied");
                }
            }
            remove_tree(to)?;
        }
        Ok(None)
    }

    /// Copies a package. Returns the copy if it has this digest, or if its source had it and has not changed since.
    fn copy_package(&self, entry: &Path, hash: &str, to: &Path) -> io::Result<Option<PackageCopy>> {
        let verified = self.verified();
        let before = package::fingerprint(entry)?;
        package::copy(entry, to)?;
        let is_unchanged = package::fingerprint(entry)? == before;
        let is_verified = is_unchanged && verified.contains(entry, &before);
        if !is_verified {
            if package::digest(to)? != hash {
                return Ok(None);
            }
            if is_unchanged {
                verified.record(entry, &before);
            }
        }
        Ok(Some(PackageCopy {
            path: to.to_owned(),
            entry: entry.to_owned(),
            hash: hash.to_owned(),
            fingerprint: package::fingerprint(to)?,
        }))
    }

    /// Removes the package of a copy that the CLI has refused, and returns whether it has: the CLI replaces a copy whose digest is not
    /// in the lock file, or fails.
    pub(crate) fn discard_if_refused(&self, copy: &PackageCopy, has_failed: bool) -> bool {
        let is_unchanged = package::fingerprint(&copy.path).is_ok_and(|found| found == copy.fingerprint);
        let has_digest = || package::digest(&copy.path).is_ok_and(|found| found == copy.hash);
        let is_refused = !is_unchanged || (has_failed && !has_digest());
        if is_refused {
            tracing::warn!(copy = %copy.path.display(), "the CLI refused a cached provider, which is removed from the cache");
            self.discard(&copy.entry);
        }
        is_refused
    }

    fn reject(&self, provider: &LockedProvider, entry: &Path, why: &str) {
        let LockedProvider { source, version, .. } = provider;
        tracing::warn!(source, version, why, "a cached provider is invalid and removed");
        self.discard(entry);
    }

    /// Stores the package at `from`, if its digest is in the lock file and the cache does not contain it.
    ///
    /// # Errors
    /// When it is not a valid package or cannot be copied.
    pub(crate) fn store(&self, provider: &LockedProvider, from: &Path) -> io::Result<()> {
        if self.contains(provider) || package::size(from)? > self.limit {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        let temporary = tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .tempdir_in(&self.root)?;
        let copy = temporary.path().join("package");
        package::copy(from, &copy)?;
        let before = package::fingerprint(&copy)?;
        let found = package::digest(&copy)?;
        if !provider.hashes.contains(&found) {
            // Code of the module changed it.
            return Ok(());
        }
        let is_unchanged = package::fingerprint(&copy)? == before;
        let entry = self.entry(provider, &found);
        match fs::rename(&copy, &entry) {
            // Another run was faster.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists
                ) => {}
            renamed => {
                renamed?;
                if is_unchanged {
                    self.verified().record(&entry, &before);
                }
            }
        }
        self.evict()
    }

    /// Removes packages beyond the limit, and temporary directories of killed runners.
    fn evict(&self) -> io::Result<()> {
        let mut packages = Vec::new();
        let mut total = 0;
        for entry in fs::read_dir(&self.root)?.filter_map(Result::ok) {
            let Ok(used) = entry.metadata().and_then(|metadata| metadata.modified()) else {
                continue; // another runner removed it
            };
            if entry.file_name() == verified::DIRECTORY {
                continue;
            }
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX) {
                let age = SystemTime::now().duration_since(used).unwrap_or_default();
                if age > ABANDONED_AFTER {
                    remove_tree(&entry.path())?;
                }
                continue;
            }
            // An invalid package has size 0.
            let bytes = package::size(&entry.path()).unwrap_or_default();
            total += bytes;
            packages.push((used, bytes, entry.path()));
        }
        packages.sort();
        for (_, bytes, path) in packages {
            if total <= self.limit {
                break;
            }
            total -= bytes;
            self.discard(&path);
        }
        self.verified().remove_orphans();
        Ok(())
    }

    /// Removes a package. It is renamed first, so that no other runner finds a part of it.
    fn discard(&self, entry: &Path) {
        self.verified().remove(entry);
        let name = format!("{TEMPORARY_PREFIX}{}", uuid::Uuid::new_v4().simple());
        let temporary = self.root.join(name);
        let removed = fs::rename(entry, &temporary).and_then(|()| remove_tree(&temporary));
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, "a cached provider cannot be removed");
        }
    }
}

/// Records the time of the last use as the modification time of the directory.
fn mark_used(entry: &Path) {
    let marked = File::open(entry).and_then(|directory| directory.set_modified(SystemTime::now()));
    if let Err(error) = marked {
        tracing::debug!(%error, "the use of a cached provider is not recorded");
    }
}

#[cfg(test)]
mod tests;
