//! Unpacked artifacts: fetched once for all the stacks that read them, the newest few kept, closures remembered.

use super::ResolveError;
use crate::inputs::closure::{self, Closure};
use sluice_api::source::Artifact;
use sluice_runtime::{
    artifact::{Fetcher, Limits, Wanted, unpack},
    shutdown::Token,
};
use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// Unpacked artifacts that are kept.
const KEPT: usize = 4;
/// Closures that are remembered; beyond that all are forgotten and read again.
const REMEMBERED: usize = 10_000;

/// Beginning of the names of unpacked artifacts.
const FRONT: &str = "artifact-";

type Unpacked = Arc<OnceCell<Arc<TempDir>>>;

/// The artifacts that stacks were read from.
pub struct Artifacts {
    fetcher: Fetcher,
    scratch: PathBuf,
    stop: Token,
    unpacked: Mutex<VecDeque<(String, Unpacked)>>,
    closures: Mutex<HashMap<(String, String), Closure>>,
}

impl Artifacts {
    /// Artifacts unpacked below `scratch`, which is made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(fetcher: Fetcher, scratch: PathBuf, stop: Token) -> std::io::Result<Self> {
        std::fs::create_dir_all(&scratch)?;
        sweep(&scratch);
        Ok(Self {
            fetcher,
            scratch,
            stop,
            unpacked: Mutex::default(),
            closures: Mutex::default(),
        })
    }

    /// The closure of the module at `path`.
    pub(super) async fn closure(&self, artifact: &Artifact, path: &str) -> Result<Closure, ResolveError> {
        let key = (artifact.digest.clone(), path.to_owned());
        if let Some(known) = self
            .closures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return Ok(known.clone());
        }
        let cell = self.cell(&artifact.digest);
        let folder = Arc::clone(cell.get_or_try_init(|| self.fetch(artifact)).await?);
        let module = path.to_owned();
        let read = tokio::task::spawn_blocking(move || closure::read(&folder.path().join("files"), &module));
        let closure = read.await.map_err(std::io::Error::other)??;
        let mut closures = self.closures.lock().unwrap_or_else(PoisonError::into_inner);
        if closures.len() >= REMEMBERED {
            closures.clear();
        }
        closures.insert(key, closure.clone());
        Ok(closure)
    }

    /// The place of an artifact; the oldest goes when there are too many.
    fn cell(&self, digest: &str) -> Unpacked {
        let mut unpacked = self.unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, cell)) = unpacked.iter().find(|(known, _)| known == digest) {
            return Arc::clone(cell);
        }
        if unpacked.len() >= KEPT {
            unpacked.pop_front();
        }
        let cell = Unpacked::default();
        unpacked.push_back((digest.to_owned(), Arc::clone(&cell)));
        cell
    }

    async fn fetch(&self, artifact: &Artifact) -> Result<Arc<TempDir>, ResolveError> {
        let folder = tempfile::Builder::new().prefix(FRONT).tempdir_in(&self.scratch)?;
        let archive = folder.path().join("archive");
        let size = artifact.size.and_then(|size| u64::try_from(size).ok());
        let wanted = Wanted {
            url: &artifact.url,
            digest: &artifact.digest,
            size,
        };
        self.fetcher.fetch(wanted, &archive, &self.stop).await?;
        let (from, to, stop) = (archive.clone(), folder.path().join("files"), self.stop.clone());
        let work = move || -> Result<_, ResolveError> {
            Ok(unpack(
                std::fs::File::open(from)?,
                &to,
                &Limits::default(),
                &stop,
            )?)
        };
        let unpacked = tokio::task::spawn_blocking(work)
            .await
            .map_err(std::io::Error::other)?;
        std::fs::remove_file(&archive)?;
        unpacked?;
        Ok(Arc::new(folder))
    }
}

/// Removes what a controller that was killed left behind.
fn sweep(scratch: &std::path::Path) {
    let entries = std::fs::read_dir(scratch).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(FRONT)) {
        if let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::debug!(path = %entry.path().display(), %error, "an old artifact could not be removed");
        }
    }
}
