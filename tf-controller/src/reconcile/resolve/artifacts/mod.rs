//! The inputs that stacks read from artifacts: each artifact is fetched, unpacked and digested once, and closures are
//! cached. [`cache`] stores the unpacked artifacts on disk, also across restarts.

mod cache;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use cache::{ArtifactCache, CacheLimits, UnpackedArtifact};
use sluice_api::source::Artifact;
use sluice_runtime::artifact::{ArtifactRef, Fetcher, Limits, unpack};
use sluice_runtime::shutdown::Token;
use sluice_runtime::sync::lock;
use tokio::sync::OnceCell;

use super::ResolveError;
use crate::inputs::closure::{self, Closure, Tree};

/// The number of cached closures; beyond it the cache is cleared.
const MAX_CLOSURES: usize = 10_000;
/// The limits of the artifact cache.
const CACHE_LIMITS: CacheLimits = CacheLimits {
    artifacts: 64,
    files: 500_000,
    bytes: 4 << 30,
};

type Cell = Arc<OnceCell<Arc<UnpackedArtifact>>>;
/// The artifact's digest, `path` and `tfVarsFiles`, which determine a closure.
type ClosureKey = (String, String, Vec<String>);

/// The artifacts that stacks read.
pub(crate) struct Artifacts {
    fetcher: Fetcher,
    stop: Token,
    cache: Arc<ArtifactCache>,
    /// Artifacts that are being fetched, by digest: concurrent callers wait for the same fetch.
    fetching: Mutex<HashMap<String, Cell>>,
    closures: Mutex<HashMap<ClosureKey, Closure>>,
}

impl Artifacts {
    /// Returns artifacts unpacked below `scratch`, which is created.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) fn new(fetcher: Fetcher, scratch: PathBuf, stop: Token) -> std::io::Result<Self> {
        Ok(Self {
            fetcher,
            stop,
            cache: Arc::new(ArtifactCache::open(scratch, CACHE_LIMITS)?),
            fetching: Mutex::default(),
            closures: Mutex::default(),
        })
    }

    /// Returns the closure of the module at `path`, with the variable files that the stack names.
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
        let unpacked = self.unpacked(artifact).await?;
        let module = path.to_owned();
        let read = tokio::task::spawn_blocking(move || closure::read(unpacked.tree(), &module, &files));
        let closure = read.await.map_err(std::io::Error::other)??;
        let mut closures = lock(&self.closures);
        if closures.len() >= MAX_CLOSURES {
            closures.clear();
        }
        closures.insert(key, closure.clone());
        Ok(closure)
    }

    /// Returns the unpacked artifact from the cache, or fetches it once for all callers.
    async fn unpacked(&self, artifact: &Artifact) -> Result<Arc<UnpackedArtifact>, ResolveError> {
        let cell = Arc::clone(lock(&self.fetching).entry(artifact.digest.clone()).or_default());
        let result = cell
            .get_or_try_init(|| self.find_or_fetch(artifact))
            .await
            .cloned();
        // The cache has it now, or the next caller tries again.
        let mut fetching = lock(&self.fetching);
        if fetching
            .get(&artifact.digest)
            .is_some_and(|held| Arc::ptr_eq(held, &cell))
        {
            fetching.remove(&artifact.digest);
        }
        result
    }

    async fn find_or_fetch(&self, artifact: &Artifact) -> Result<Arc<UnpackedArtifact>, ResolveError> {
        let (cache, digest) = (Arc::clone(&self.cache), artifact.digest.clone());
        let found = tokio::task::spawn_blocking(move || cache.find(&digest)).await;
        match found.map_err(std::io::Error::other)? {
            Some(unpacked) => Ok(unpacked),
            None => self.fetch(artifact).await,
        }
    }

    async fn fetch(&self, artifact: &Artifact) -> Result<Arc<UnpackedArtifact>, ResolveError> {
        let folder = self.cache.new_directory()?;
        let archive = folder.path().join("archive");
        let reference = ArtifactRef {
            url: &artifact.url,
            digest: &artifact.digest,
            size: artifact.size.and_then(|size| u64::try_from(size).ok()),
        };
        self.fetcher.fetch(reference, &archive, &self.stop).await?;
        let (cache, stop, digest) = (
            Arc::clone(&self.cache),
            self.stop.clone(),
            artifact.digest.clone(),
        );
        let work = move || -> Result<_, ResolveError> {
            let files = folder.path().join(cache::FILES);
            unpack(std::fs::File::open(&archive)?, &files, &Limits::default(), &stop)?;
            std::fs::remove_file(&archive)?;
            let tree = Tree::read(&files)?;
            Ok(cache.put(&digest, folder, &tree)?)
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(std::io::Error::other)?
    }
}
