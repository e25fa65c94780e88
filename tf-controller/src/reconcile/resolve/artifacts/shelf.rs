//! Unpacked artifacts on disk, one directory each: bounded in number, files and bytes, the longest unused goes first. What
//! an earlier controller left is used again, after all of its files were found to be what they were.

use crate::inputs::closure::Tree;
use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tempfile::TempDir;

/// Where an artifact's files lie in its directory.
pub(super) const FILES: &str = "files";
/// Holds the digest over all files, written behind them.
const SEAL: &str = "seal";
/// Begins the names of finished directories; a directory that is being filled begins otherwise.
const FRONT: &str = "tree-";
const UNFINISHED: &str = "artifact-";

/// What is kept at most; the newest artifact is kept in any case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Artifacts.
    pub(super) artifacts: usize,
    /// Files of all of them: their paths and digests lie in memory.
    pub(super) files: usize,
    /// Bytes of all of them, on disk.
    pub(super) bytes: u64,
}

/// The shelf.
pub(super) struct Shelf {
    folder: PathBuf,
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What is kept, by the artifact's digest, and when it was last used.
    kept: HashMap<String, (u64, Arc<Kept>)>,
    /// Directories of an earlier controller that nobody asked for yet.
    left: HashMap<String, PathBuf>,
    uses: u64,
}

/// One unpacked artifact. It stays on disk as long as somebody reads it.
#[derive(Debug)]
pub(super) struct Kept {
    folder: PathBuf,
    tree: Tree,
    dropped: AtomicBool,
}

impl Kept {
    /// Its files.
    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.dropped.load(Ordering::Relaxed) {
            remove(&self.folder);
        }
    }
}

impl Shelf {
    /// A shelf in `folder`, which is made. What a killed controller did not finish is removed.
    pub(super) fn open(folder: PathBuf, bounds: Bounds) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut left = HashMap::new();
        for entry in fs::read_dir(&folder)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(UNFINISHED) {
                remove(&entry.path());
            } else if let Some(digest) = name.strip_prefix(FRONT).and_then(|rest| rest.rsplit_once('-')) {
                let twin = left.insert(digest.0.to_owned(), entry.path());
                if let Some(twin) = twin {
                    remove(&twin);
                }
            }
        }
        let state = State {
            left,
            ..State::default()
        };
        Ok(Self {
            folder,
            bounds,
            state: Mutex::new(state),
        })
    }

    /// A directory to fill, on the same disk.
    pub(super) fn begin(&self) -> io::Result<TempDir> {
        tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempdir_in(&self.folder)
    }

    /// The artifact of this digest, if it is here and whole.
    pub(super) fn find(&self, digest: &str) -> Option<Arc<Kept>> {
        let left = {
            let mut state = self.state();
            state.uses += 1;
            let uses = state.uses;
            if let Some((used, kept)) = state.kept.get_mut(digest) {
                *used = uses;
                return Some(Arc::clone(kept));
            }
            state.left.remove(&word(digest))?
        };
        if let Some(tree) = whole(&left) {
            return Some(self.keep(digest, left, tree));
        }
        tracing::warn!(path = %left.display(), "a kept artifact is not what it was: it is fetched again");
        remove(&left);
        None
    }

    /// Keeps a directory that was filled, and lets go of what there is too much of.
    pub(super) fn put(&self, digest: &str, folder: TempDir, tree: &Tree) -> io::Result<Arc<Kept>> {
        fs::write(folder.path().join(SEAL), hex::encode(tree.digest()))?;
        let random = folder.path().file_name().unwrap_or_default().to_string_lossy();
        let random = random.trim_start_matches(UNFINISHED);
        let path = self.folder.join(format!("{FRONT}{}-{random}", word(digest)));
        fs::rename(folder.path(), &path)?;
        // The directory has another name now: nothing is left to be removed under the old one.
        drop(folder.keep());
        let tree = tree.clone().moved(path.join(FILES));
        Ok(self.keep(digest, path, tree))
    }

    fn keep(&self, digest: &str, folder: PathBuf, tree: Tree) -> Arc<Kept> {
        let kept = Arc::new(Kept {
            folder,
            tree,
            dropped: AtomicBool::new(false),
        });
        let mut state = self.state();
        state.uses += 1;
        let uses = state.uses;
        let twin = state.kept.insert(digest.to_owned(), (uses, Arc::clone(&kept)));
        let mut gone: Vec<_> = twin.into_iter().map(|(_, kept)| kept).collect();
        while self.exceeds(&state) {
            let oldest = state.kept.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) else {
                break;
            };
            gone.extend(state.kept.remove(&oldest).map(|(_, kept)| kept));
        }
        // What nobody has asked for is not counted, so there must not be much of it.
        let unasked: Vec<_> = if state.left.len() > self.bounds.artifacts {
            state.left.drain().collect()
        } else {
            Vec::new()
        };
        drop(state);
        for (_, path) in &unasked {
            remove(path);
        }
        for kept in gone {
            kept.dropped.store(true, Ordering::Relaxed);
        }
        kept
    }

    fn exceeds(&self, state: &State) -> bool {
        let trees = || state.kept.values().map(|(_, kept)| &kept.tree);
        state.kept.len() > 1
            && (state.kept.len() > self.bounds.artifacts
                || trees().map(Tree::len).sum::<usize>() > self.bounds.files
                || trees().map(Tree::bytes).sum::<u64>() > self.bounds.bytes)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of a finished directory, if they are what they were when it was finished.
fn whole(folder: &Path) -> Option<Tree> {
    let seal = fs::read_to_string(folder.join(SEAL)).ok()?;
    let tree = Tree::read(&folder.join(FILES)).ok()?;
    (hex::encode(tree.digest()) == seal).then_some(tree)
}

/// A digest as a part of a file name.
fn word(digest: &str) -> String {
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

    const BOUNDS: Bounds = Bounds {
        artifacts: 2,
        files: 10,
        bytes: 100,
    };

    fn put(shelf: &Shelf, digest: &str, text: &str) -> Arc<Kept> {
        let folder = shelf.begin().unwrap();
        let files = folder.path().join(FILES);
        fs::create_dir(&files).unwrap();
        fs::write(files.join("main.tf"), text).unwrap();
        let tree = Tree::read(&files).unwrap();
        shelf.put(digest, folder, &tree).unwrap()
    }

    fn on_disk(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn the_longest_unused_goes_when_there_are_too_many_or_too_much() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(folder.path().to_owned(), BOUNDS).unwrap();
        put(&shelf, "sha256:a", "1");
        put(&shelf, "sha256:b", "2");
        assert!(shelf.find("sha256:a").is_some());
        put(&shelf, "sha256:c", "3");
        assert!(shelf.find("sha256:b").is_none() && shelf.find("sha256:a").is_some());
        assert_eq!(on_disk(folder.path()), 2);
        let large = put(&shelf, "sha256:d", &"x".repeat(90));
        assert_eq!(large.tree().bytes(), 90);
        put(&shelf, "sha256:e", &"x".repeat(90));
        assert!(shelf.find("sha256:d").is_none(), "too many bytes");
        assert!(large.tree().root().join("main.tf").exists(), "it is still read");
        drop(large);
        assert_eq!(on_disk(folder.path()), 1);
    }

    #[test]
    fn a_restart_finds_what_is_whole_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(folder.path().to_owned(), BOUNDS).unwrap();
        let digest = put(&shelf, "sha256:a", "1").tree().digest();
        let changed = put(&shelf, "sha256:b", "2");
        fs::write(changed.tree().root().join("main.tf"), "other").unwrap();
        let unfinished = shelf.begin().unwrap().keep();
        drop((shelf, changed));
        let shelf = Shelf::open(folder.path().to_owned(), BOUNDS).unwrap();
        assert!(!unfinished.exists());
        assert_eq!(shelf.find("sha256:a").unwrap().tree().digest(), digest);
        assert!(
            shelf.find("sha256:b").is_none(),
            "its files are not what they were"
        );
        assert!(shelf.find("sha256:c").is_none());
        assert_eq!(on_disk(folder.path()), 1);
    }
}
