//! Unpacked artifacts on disk, one directory each: limited in number, files and bytes, the least recently used is
//! evicted first. Artifacts of an earlier controller are used again after all of their files were verified.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{fs, io};

use sluice_runtime::sync::lock;
use tempfile::TempDir;

use crate::inputs::closure::Tree;

/// The subdirectory with an artifact's files.
pub(super) const FILES: &str = "files";
/// The file with the digest over all files, written last.
const DIGEST_FILE: &str = "seal";
/// Prefix of finished directories; directories that are being filled have the other.
const FINISHED_PREFIX: &str = "tree-";
const UNFINISHED_PREFIX: &str = "artifact-";

/// The limits of the cache; the newest artifact is kept in any case.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLimits {
    /// Artifacts.
    pub(super) artifacts: usize,
    /// Files of all of them: their paths and digests are in memory.
    pub(super) files: usize,
    /// Bytes of all of them, on disk.
    pub(super) bytes: u64,
}

/// The cache of unpacked artifacts.
pub(super) struct ArtifactCache {
    directory: PathBuf,
    limits: CacheLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The entries by the artifact's digest, and when each was last used.
    entries: HashMap<String, (u64, Arc<UnpackedArtifact>)>,
    /// Directories of an earlier controller that were not used yet.
    unverified: HashMap<String, PathBuf>,
    uses: u64,
}

/// One unpacked artifact. It stays on disk while it is referenced.
#[derive(Debug)]
pub(super) struct UnpackedArtifact {
    directory: PathBuf,
    tree: Tree,
    evicted: AtomicBool,
}

impl UnpackedArtifact {
    /// Returns its files.
    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }
}

impl Drop for UnpackedArtifact {
    fn drop(&mut self) {
        if self.evicted.load(Ordering::Relaxed) {
            remove(&self.directory);
        }
    }
}

impl ArtifactCache {
    /// Opens the cache in `directory`, which is created. Removes what a killed controller did not finish.
    pub(super) fn open(directory: PathBuf, limits: CacheLimits) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        let mut unverified = HashMap::new();
        for entry in fs::read_dir(&directory)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(UNFINISHED_PREFIX) {
                remove(&entry.path());
            } else if let Some(digest) = name
                .strip_prefix(FINISHED_PREFIX)
                .and_then(|rest| rest.rsplit_once('-'))
            {
                let duplicate = unverified.insert(digest.0.to_owned(), entry.path());
                if let Some(duplicate) = duplicate {
                    remove(&duplicate);
                }
            }
        }
        let state = State {
            unverified,
            ..State::default()
        };
        Ok(Self {
            directory,
            limits,
            state: Mutex::new(state),
        })
    }

    /// Returns a directory to fill, on the same file system.
    pub(super) fn new_directory(&self) -> io::Result<TempDir> {
        tempfile::Builder::new()
            .prefix(UNFINISHED_PREFIX)
            .tempdir_in(&self.directory)
    }

    /// Returns the artifact of this digest if it is cached and intact.
    pub(super) fn find(&self, digest: &str) -> Option<Arc<UnpackedArtifact>> {
        let unverified = {
            let mut state = self.state();
            state.uses += 1;
            let uses = state.uses;
            if let Some((used, entry)) = state.entries.get_mut(digest) {
                *used = uses;
                return Some(Arc::clone(entry));
            }
            state.unverified.remove(&file_name(digest))?
        };
        if let Some(tree) = verify(&unverified) {
            return Some(self.insert(digest, unverified, tree));
        }
        tracing::warn!(path = %unverified.display(), "a cached artifact was modified, fetching it again");
        remove(&unverified);
        None
    }

    /// Stores a directory that was filled, and evicts entries beyond the limits.
    pub(super) fn put(
        &self,
        digest: &str,
        directory: TempDir,
        tree: &Tree,
    ) -> io::Result<Arc<UnpackedArtifact>> {
        fs::write(directory.path().join(DIGEST_FILE), hex::encode(tree.digest()))?;
        let random = directory.path().file_name().unwrap_or_default().to_string_lossy();
        let random = random.trim_start_matches(UNFINISHED_PREFIX);
        let path = self
            .directory
            .join(format!("{FINISHED_PREFIX}{}-{random}", file_name(digest)));
        fs::rename(directory.path(), &path)?;
        // The directory was renamed: nothing is left to remove under the old name.
        drop(directory.keep());
        let tree = tree.clone().moved(path.join(FILES));
        Ok(self.insert(digest, path, tree))
    }

    fn insert(&self, digest: &str, directory: PathBuf, tree: Tree) -> Arc<UnpackedArtifact> {
        let entry = Arc::new(UnpackedArtifact {
            directory,
            tree,
            evicted: AtomicBool::new(false),
        });
        let mut state = self.state();
        state.uses += 1;
        let uses = state.uses;
        let duplicate = state
            .entries
            .insert(digest.to_owned(), (uses, Arc::clone(&entry)));
        let mut evicted_entries: Vec<_> = duplicate.into_iter().map(|(_, entry)| entry).collect();
        while self.exceeds(&state) {
            let oldest = state.entries.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) else {
                break;
            };
            evicted_entries.extend(state.entries.remove(&oldest).map(|(_, entry)| entry));
        }
        // Unverified directories are not counted, so their number is limited.
        let unused: Vec<_> = if state.unverified.len() > self.limits.artifacts {
            state.unverified.drain().collect()
        } else {
            Vec::new()
        };
        drop(state);
        for (_, path) in &unused {
            remove(path);
        }
        for entry in evicted_entries {
            entry.evicted.store(true, Ordering::Relaxed);
        }
        entry
    }

    fn exceeds(&self, state: &State) -> bool {
        let trees = || state.entries.values().map(|(_, entry)| &entry.tree);
        state.entries.len() > 1
            && (state.entries.len() > self.limits.artifacts
                || trees().map(Tree::len).sum::<usize>() > self.limits.files
                || trees().map(Tree::bytes).sum::<u64>() > self.limits.bytes)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Returns the files of a finished directory if they are unchanged.
fn verify(directory: &Path) -> Option<Tree> {
    let seal = fs::read_to_string(directory.join(DIGEST_FILE)).ok()?;
    let tree = Tree::read(&directory.join(FILES)).ok()?;
    (hex::encode(tree.digest()) == seal).then_some(tree)
}

/// Returns a digest as a part of a file name.
fn file_name(digest: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    digest.chars().take(160).map(plain).collect()
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path) {
        tracing::debug!(path = %path.display(), %error, "an old artifact could not be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CacheLimits = CacheLimits {
        artifacts: 2,
        files: 10,
        bytes: 100,
    };

    fn put(cache: &ArtifactCache, digest: &str, text: &str) -> Arc<UnpackedArtifact> {
        let directory = cache.new_directory().unwrap();
        let files = directory.path().join(FILES);
        fs::create_dir(&files).unwrap();
        fs::write(files.join("main.tf"), text).unwrap();
        let tree = Tree::read(&files).unwrap();
        cache.put(digest, directory, &tree).unwrap()
    }

    fn on_disk(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn the_least_recently_used_is_evicted_beyond_the_limits() {
        let directory = tempfile::tempdir().unwrap();
        let cache = ArtifactCache::open(directory.path().to_owned(), LIMITS).unwrap();
        put(&cache, "sha256:a", "1");
        put(&cache, "sha256:b", "2");
        assert!(cache.find("sha256:a").is_some());
        put(&cache, "sha256:c", "3");
        assert!(cache.find("sha256:b").is_none() && cache.find("sha256:a").is_some());
        assert_eq!(on_disk(directory.path()), 2);
        let large = put(&cache, "sha256:d", &"x".repeat(90));
        assert_eq!(large.tree().bytes(), 90);
        put(&cache, "sha256:e", &"x".repeat(90));
        assert!(cache.find("sha256:d").is_none(), "too many bytes");
        assert!(
            large.tree().root().join("main.tf").exists(),
            "it is still referenced"
        );
        drop(large);
        assert_eq!(on_disk(directory.path()), 1);
    }

    #[test]
    fn a_restart_finds_only_intact_artifacts() {
        let directory = tempfile::tempdir().unwrap();
        let cache = ArtifactCache::open(directory.path().to_owned(), LIMITS).unwrap();
        let digest = put(&cache, "sha256:a", "1").tree().digest();
        let changed = put(&cache, "sha256:b", "2");
        fs::write(changed.tree().root().join("main.tf"), "other").unwrap();
        let unfinished = cache.new_directory().unwrap().keep();
        drop((cache, changed));
        let cache = ArtifactCache::open(directory.path().to_owned(), LIMITS).unwrap();
        assert!(!unfinished.exists());
        assert_eq!(cache.find("sha256:a").unwrap().tree().digest(), digest);
        assert!(cache.find("sha256:b").is_none(), "its files have changed");
        assert!(cache.find("sha256:c").is_none());
        assert_eq!(on_disk(directory.path()), 1);
    }
}
