//! The directory of packages: one folder for each, filled by rename, bounded in bytes. The least recently used go first.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use super::lock::{LockedProvider, platform};
use super::package;
use sluice_tf_core::workdir::remove_tree;

/// How the names begin of what is being filled or removed.
const UNFINISHED: &str = ".unfinished-";
/// Older than this, it is of a runner that was killed.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// Packages of providers on disk. Several runners use one directory at the same time.
#[derive(Clone, Debug)]
pub(crate) struct ProviderCache {
    root: PathBuf,
    /// Most bytes of all packages.
    limit: u64,
}

impl ProviderCache {
    pub(crate) const fn new(root: PathBuf, limit: u64) -> Self {
        Self { root, limit }
    }

    fn entry(&self, provider: &LockedProvider, hash: &str) -> PathBuf {
        let mut key = Sha256::new();
        for part in [&provider.source, &provider.version, &platform(), hash] {
            // Lengths let no name pass for the end of another.
            key.update((part.len() as u64).to_be_bytes());
            key.update(part);
        }
        self.root.join(hex::encode(key.finalize()))
    }

    /// Whether there is a package of this provider with one of its digests.
    pub(crate) fn has(&self, provider: &LockedProvider) -> bool {
        provider
            .hashes
            .iter()
            .any(|hash| self.entry(provider, hash).is_dir())
    }

    /// Copies the package into a place where nothing is, and gives whether one with a digest of the lock file is there now. One
    /// whose bytes have another digest is removed from the cache.
    ///
    /// # Errors
    /// When what was copied cannot be removed.
    pub(crate) fn provide(&self, provider: &LockedProvider, to: &Path) -> io::Result<bool> {
        for hash in &provider.hashes {
            let entry = self.entry(provider, hash);
            if !entry.is_dir() {
                continue;
            }
            let copied = package::copy(&entry, to).and_then(|()| package::digest(to));
            match copied {
                Ok(found) if found == *hash => {
                    mark_used(&entry);
                    return Ok(true);
                }
                Ok(_) => self.refuse(provider, &entry, "its bytes have another digest"),
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    self.refuse(provider, &entry, &error.to_string());
                }
                // Another runner has just made room, or the disk is full.
                Err(error) => {
                    tracing::warn!(%error, source = provider.source, "a cached provider cannot be copied");
                }
            }
            remove_tree(to)?;
        }
        Ok(false)
    }

    fn refuse(&self, provider: &LockedProvider, entry: &Path, why: &str) {
        let LockedProvider { source, version, .. } = provider;
        tracing::warn!(source, version, why, "a cached provider is refused and removed");
        self.discard(entry);
    }

    /// Takes in the package at `from`, if its digest is one of the lock file and it is not there yet.
    ///
    /// # Errors
    /// It is no package, or cannot be copied.
    pub(crate) fn keep(&self, provider: &LockedProvider, from: &Path) -> io::Result<()> {
        if self.has(provider) || package::size(from)? > self.limit {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        let unfinished = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(&self.root)?;
        let copy = unfinished.path().join("package");
        package::copy(from, &copy)?;
        let found = package::digest(&copy)?;
        if !provider.hashes.contains(&found) {
            // The module's code wrote into it.
            return Ok(());
        }
        match fs::rename(&copy, self.entry(provider, &found)) {
            // Another run was faster.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists
                ) => {}
            renamed => renamed?,
        }
        self.make_room()
    }

    /// Removes what goes beyond the limit, and what killed runners left.
    fn make_room(&self) -> io::Result<()> {
        let mut packages = Vec::new();
        let mut total = 0;
        for entry in fs::read_dir(&self.root)?.filter_map(Result::ok) {
            let Ok(used) = entry.metadata().and_then(|metadata| metadata.modified()) else {
                continue; // another runner removed it
            };
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                let age = SystemTime::now().duration_since(used).unwrap_or_default();
                if age > ABANDONED {
                    remove_tree(&entry.path())?;
                }
                continue;
            }
            // What is no package counts nothing and goes first.
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
        Ok(())
    }

    /// Takes a package out by rename, so that no other runner finds half of one.
    fn discard(&self, entry: &Path) {
        let name = format!("{UNFINISHED}{}", uuid::Uuid::new_v4().simple());
        let aside = self.root.join(name);
        let removed = fs::rename(entry, &aside).and_then(|()| remove_tree(&aside));
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, "a cached provider cannot be removed");
        }
    }
}

/// The time of the folder's last change is that of its last use.
fn mark_used(entry: &Path) {
    let marked = File::open(entry).and_then(|folder| folder.set_modified(SystemTime::now()));
    if let Err(error) = marked {
        tracing::debug!(%error, "the use of a cached provider is not noted");
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
        fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }

    #[test]
    fn a_package_comes_back_by_its_digest_alone() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ProviderCache::new(dir.path().join("cache"), LARGE);
        let (a, from) = provider(dir.path(), "a", "program");
        let to = dir.path().join("run/a");
        assert!(!cache.provide(&a, &to).unwrap());
        cache.keep(&a, &from).unwrap();
        cache.keep(&a, &from).unwrap();
        assert_eq!(entries(&cache.root).len(), 1);
        assert!(cache.has(&a) && cache.provide(&a, &to).unwrap());
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
            assert!(!cache.has(&other) && !cache.provide(&other, &dir.path().join("other")).unwrap());
        }
    }

    #[test]
    fn a_package_that_was_written_into_is_refused_and_removed() {
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
            cache.keep(&a, &from).unwrap();
            poison(&entries(&cache.root)[0]);
            assert!(!cache.provide(&a, &to).unwrap() && !to.exists());
            assert_eq!(entries(&cache.root), Vec::<PathBuf>::new());
        }
        // Nor does it get in.
        fs::write(from.join("terraform-provider-x"), "other").unwrap();
        cache.keep(&a, &from).unwrap();
        assert_eq!(entries(&cache.root), Vec::<PathBuf>::new());
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
            cache.keep(given, from).unwrap();
        }
        let at = |provider: &LockedProvider| cache.entry(provider, &provider.hashes[1]);
        for (given, age) in [(&a, 20), (&b, 10)] {
            let when = SystemTime::now() - Duration::from_secs(age);
            File::open(at(given)).unwrap().set_modified(when).unwrap();
        }
        let abandoned = cache.root.join(format!("{UNFINISHED}old"));
        fs::create_dir(&abandoned).unwrap();
        let when = SystemTime::now() - ABANDONED * 2;
        File::open(&abandoned).unwrap().set_modified(when).unwrap();
        assert!(cache.provide(&a, &dir.path().join("run")).unwrap(), "used");
        cache.keep(&c, &from_c).unwrap();
        assert!(cache.has(&a) && !cache.has(&b) && cache.has(&c) && !abandoned.exists());
        cache.keep(&huge, &from_huge).unwrap();
        assert!(cache.has(&a) && !cache.has(&huge));
    }
}
