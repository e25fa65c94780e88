//! What stacks read of artifacts: each artifact is fetched, unpacked and digested once for all of them, closures are
//! remembered. [`shelf`] keeps the unpacked artifacts on disk, also over a restart.

mod shelf;

use super::ResolveError;
use crate::inputs::closure::{self, Closure, Tree};
use shelf::{Bounds, Kept, Shelf};
use sluice_api::source::Artifact;
use sluice_runtime::{
    artifact::{Fetcher, Limits, Wanted, unpack},
    shutdown::Token,
};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::OnceCell;

/// Closures that are remembered; beyond that all are forgotten and read again.
const REMEMBERED: usize = 10_000;
/// What is kept of artifacts.
const BOUNDS: Bounds = Bounds {
    artifacts: 64,
    files: 500_000,
    bytes: 4 << 30,
};

type Cell = Arc<OnceCell<Arc<Kept>>>;
/// The artifact's digest, `path` and `tfVarsFiles`: what a closure follows from.
type Reader = (String, String, Vec<String>);

/// The artifacts that stacks were read from.
pub struct Artifacts {
    fetcher: Fetcher,
    stop: Token,
    shelf: Arc<Shelf>,
    /// Artifacts that are being fetched, by digest: whoever comes meanwhile waits for the same one.
    fetching: Mutex<HashMap<String, Cell>>,
    closures: Mutex<HashMap<Reader, Closure>>,
}

impl Artifacts {
    /// Artifacts unpacked below `scratch`, which is made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(fetcher: Fetcher, scratch: PathBuf, stop: Token) -> std::io::Result<Self> {
        Ok(Self {
            fetcher,
            stop,
            shelf: Arc::new(Shelf::open(scratch, BOUNDS)?),
            fetching: Mutex::default(),
            closures: Mutex::default(),
        })
    }

    /// The closure of the module at `path`, with the variable files that the stack names.
    pub(super) async fn closure(
        &self,
        artifact: &Artifact,
        path: &str,
        variable_files: &[String],
    ) -> Result<Closure, ResolveError> {
        let files = variable_files.to_vec();
        let key = (artifact.digest.clone(), path.to_owned(), files.clone());
        if let Some(known) = lock(&self.closures).get(&key) {
            return Ok(known.clone());
        }
        let kept = self.kept(artifact).await?;
        let module = path.to_owned();
        let read = tokio::task::spawn_blocking(move || closure::read(kept.tree(), &module, &files));
        let closure = read.await.map_err(std::io::Error::other)??;
        let mut closures = lock(&self.closures);
        if closures.len() >= REMEMBERED {
            closures.clear();
        }
        closures.insert(key, closure.clone());
        Ok(closure)
    }

    /// The unpacked artifact: from the shelf, or fetched by the first who asks for it.
    async fn kept(&self, artifact: &Artifact) -> Result<Arc<Kept>, ResolveError> {
        let cell = Arc::clone(lock(&self.fetching).entry(artifact.digest.clone()).or_default());
        let got = cell.get_or_try_init(|| self.get(artifact)).await.cloned();
        // The shelf has it now, or whoever comes next tries again.
        let mut fetching = lock(&self.fetching);
        if fetching
            .get(&artifact.digest)
            .is_some_and(|held| Arc::ptr_eq(held, &cell))
        {
            fetching.remove(&artifact.digest);
        }
        got
    }

    async fn get(&self, artifact: &Artifact) -> Result<Arc<Kept>, ResolveError> {
        let (place, digest) = (Arc::clone(&self.shelf), artifact.digest.clone());
        let found = tokio::task::spawn_blocking(move || place.find(&digest)).await;
        match found.map_err(std::io::Error::other)? {
            Some(kept) => Ok(kept),
            None => self.fetch(artifact).await,
        }
    }

    async fn fetch(&self, artifact: &Artifact) -> Result<Arc<Kept>, ResolveError> {
        let folder = self.shelf.begin()?;
        let archive = folder.path().join("archive");
        let wanted = Wanted {
            url: &artifact.url,
            digest: &artifact.digest,
            size: artifact.size.and_then(|size| u64::try_from(size).ok()),
        };
        self.fetcher.fetch(wanted, &archive, &self.stop).await?;
        let (place, stop, digest) = (
            Arc::clone(&self.shelf),
            self.stop.clone(),
            artifact.digest.clone(),
        );
        let work = move || -> Result<_, ResolveError> {
            let files = folder.path().join(shelf::FILES);
            unpack(std::fs::File::open(&archive)?, &files, &Limits::default(), &stop)?;
            std::fs::remove_file(&archive)?;
            let tree = Tree::read(&files)?;
            Ok(place.put(&digest, folder, &tree)?)
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(std::io::Error::other)?
    }
}

fn lock<T>(held: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
