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
mod tests {
    use super::*;

    const LARGE: u64 = 1 << 20;

    /// A provider whose package holds this text, and the package.
    fn provider(dir: &Path, name: &str, text: &str) -> (LockedProvider, PathBuf) {
        let from = dir.join(name);
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("terraform-provider-x"), text).unwrap();
        let provider = LockedProvider {
            source: format!("sluice.test/sluice/{name}"),
            version: "1.0.0".to_owned(),
            hashes: vec!["h1:other".to_owned(), package::digest(&from).unwrap()],
        };
        (provider, from)
    }

    fn entries(root: &Path) -> Vec<PathBuf> {
        let all = fs::read_dir(root).unwrap().map(Result::unwrap);
        let packages = all.filter(|entry| entry.file_name() != verified::DIRECTORY);
        packages.map(|entry| entry.path()).collect()
    }

    #[test]
    fn a_package_is_found_by_its_digest_only() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ProviderCache::new(dir.path().join("cache"), LARGE);
        let (a, from) = provider(dir.path(), "a", "program");
        let to = dir.path().join("run/a");
        assert!(cache.copy_to(&a, &to).unwrap().is_none());
        cache.store(&a, &from).unwrap();
        cache.store(&a, &from).unwrap();
        assert_eq!(entries(&cache.root).len(), 1);
        assert!(cache.contains(&a) && cache.copy_to(&a, &to).unwrap().is_some());
        assert_eq!(fs::read(to.join("terraform-provider-x")).unwrap(), b"program");
        for other in [
            LockedProvider {
                hashes: vec!["h1:other".into()],
                ..a.clone()
            },
            LockedProvider {
                version: "1.0.1".into(),
                ..a.clone()
            },
            LockedProvider {
                source: "sluice.test/evil/a".into(),
                ..a
            },
        ] {
            assert!(
                !cache.contains(&other)
                    && cache
                        .copy_to(&other, &dir.path().join("other"))
                        .unwrap()
                        .is_none()
            );
        }
    }

    #[test]
    fn a_modified_package_is_rejected_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ProviderCache::new(dir.path().join("cache"), LARGE);
        let (a, from) = provider(dir.path(), "a", "program");
        let to = dir.path().join("run");
        let poisons: [fn(&Path); 3] = [
            |entry| fs::write(entry.join("terraform-provider-x"), "other").unwrap(),
            |entry| fs::write(entry.join("more"), "").unwrap(),
            |entry| std::os::unix::fs::symlink("/bin/sh", entry.join("link")).unwrap(),
        ];
        for poison in poisons {
            cache.store(&a, &from).unwrap();
            poison(&entries(&cache.root)[0]);
            assert!(cache.copy_to(&a, &to).unwrap().is_none() && !to.exists());
            assert_eq!(entries(&cache.root), Vec::<PathBuf>::new());
        }
        // It is not stored either.
        fs::write(from.join("terraform-provider-x"), "other").unwrap();
        cache.store(&a, &from).unwrap();
        assert_eq!(entries(&cache.root), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_package_that_is_unchanged_since_its_digest_is_left_to_the_cli() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ProviderCache::new(dir.path().join("cache"), LARGE);
        let (a, from) = provider(dir.path(), "a", "program");
        cache.store(&a, &from).unwrap();
        let entry = entries(&cache.root).remove(0);
        let fingerprint = || package::fingerprint(&entry).unwrap();
        assert!(cache.verified().contains(&entry, &fingerprint()), "stored");
        fs::write(entry.join("terraform-provider-x"), "other").unwrap();
        assert!(!cache.verified().contains(&entry, &fingerprint()), "written into");
        // A forged record lets the copy through, which the CLI refuses. Then the package is removed.
        for (name, is_replaced) in [("replaced", true), ("failed", false)] {
            cache.store(&a, &from).unwrap();
            fs::write(entry.join("terraform-provider-x"), "other").unwrap();
            cache.verified().record(&entry, &fingerprint());
            let forged = cache.copy_to(&a, &dir.path().join(name)).unwrap().unwrap();
            if is_replaced {
                fs::write(forged.path.join("terraform-provider-x"), "program").unwrap();
            }
            assert!(cache.discard_if_refused(&forged, !is_replaced) && !entry.exists());
        }
        // One that the CLI uses stays, also if it fails for another reason.
        cache.store(&a, &from).unwrap();
        let kept = cache.copy_to(&a, &dir.path().join("kept")).unwrap().unwrap();
        for has_failed in [false, true] {
            assert!(!cache.discard_if_refused(&kept, has_failed));
        }
        // Without a record, a copy is digested and recorded.
        cache.verified().remove(&entry);
        assert!(cache.copy_to(&a, &dir.path().join("again")).unwrap().is_some());
        assert!(cache.verified().contains(&entry, &fingerprint()));
        fs::remove_dir_all(&entry).unwrap();
        let (b, from_b) = provider(dir.path(), "b", "more");
        cache.store(&b, &from_b).unwrap();
        let records = fs::read_dir(cache.root.join(verified::DIRECTORY)).unwrap();
        assert_eq!(records.count(), 1, "that of the removed package is gone");
    }

    #[test]
    fn ten_runs_at_once_share_one_package() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ProviderCache::new(dir.path().join("cache"), LARGE);
        let (a, from) = provider(dir.path(), "a", &"program".repeat(10_000));
        let digest = package::digest(&from).unwrap();
        let start = std::sync::Barrier::new(10);
        std::thread::scope(|scope| {
            for number in 0..10 {
                let (cache, a, from, start, digest) = (&cache, &a, &from, &start, &digest);
                let to = dir.path().join(format!("run-{number}"));
                scope.spawn(move || {
                    start.wait();
                    // Of some runs the package is already there, others store it.
                    if cache.copy_to(a, &to).unwrap().is_none() {
                        cache.store(a, from).unwrap();
                        assert!(cache.copy_to(a, &to).unwrap().is_some());
                    }
                    assert_eq!(package::digest(&to).unwrap(), *digest);
                });
            }
        });
        assert_eq!(entries(&cache.root), [cache.entry(&a, &digest)]);
    }

    #[test]
    fn beyond_the_limit_the_least_recently_used_go() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ProviderCache::new(dir.path().join("cache"), 10);
        let (a, from_a) = provider(dir.path(), "a", "four");
        let (b, from_b) = provider(dir.path(), "b", "five5");
        let (c, from_c) = provider(dir.path(), "c", "six");
        let (huge, from_huge) = provider(dir.path(), "huge", "more than ten");
        for (given, from) in [(&a, &from_a), (&b, &from_b)] {
            cache.store(given, from).unwrap();
        }
        let at = |provider: &LockedProvider| cache.entry(provider, &provider.hashes[1]);
        for (given, age) in [(&a, 20), (&b, 10)] {
            let when = SystemTime::now() - Duration::from_secs(age);
            File::open(at(given)).unwrap().set_modified(when).unwrap();
        }
        let abandoned = cache.root.join(format!("{TEMPORARY_PREFIX}old"));
        fs::create_dir(&abandoned).unwrap();
        let when = SystemTime::now() - ABANDONED_AFTER * 2;
        File::open(&abandoned).unwrap().set_modified(when).unwrap();
        assert!(
            cache.copy_to(&a, &dir.path().join("run")).unwrap().is_some(),
            "used"
        );
        cache.store(&c, &from_c).unwrap();
        assert!(cache.contains(&a) && !cache.contains(&b) && cache.contains(&c) && !abandoned.exists());
        cache.store(&huge, &from_huge).unwrap();
        assert!(cache.contains(&a) && !cache.contains(&huge));
    }
}
