//! Where `sluice up` keeps things: the state directory, or a temporary one that goes with the program.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Why the place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The directory cannot be made or written.
    #[error("cannot use {path}: {source}")]
    Unusable {
        /// The path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Another program has it.
    #[error("{0} is in use by another sluice up; end that one first, or give another --state")]
    Taken(String),
}

/// The directory and its lock.
pub(super) struct Place {
    root: PathBuf,
    /// Held for as long as the program lives.
    _lock: File,
    /// Removed with the program, where no `--state` was given.
    _temporary: Option<TempDir>,
}

impl Place {
    /// Opens or makes the directory (mode 0700) and locks it.
    pub(super) fn open(state: Option<&Path>) -> Result<Self, PlaceError> {
        let temporary = match state {
            Some(_) => None,
            None => Some(TempDir::with_prefix("sluice-").map_err(unusable(&std::env::temp_dir()))?),
        };
        let given = state
            .map(Path::to_owned)
            .or_else(|| temporary.as_ref().map(|dir| dir.path().to_owned()));
        let root = given.unwrap_or_default();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .map_err(unusable(&root))?;
        let root = fs::canonicalize(&root).map_err(unusable(&root))?;
        let lock = lock(&root)?;
        let place = Self {
            root,
            _lock: lock,
            _temporary: temporary,
        };
        for folder in [place.api(), place.artifacts(), place.runs(), place.scratch()] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)
                .map_err(unusable(&folder))?;
        }
        Ok(place)
    }

    /// Keys, certificates and the kubeconfig of the API.
    pub(super) fn api(&self) -> PathBuf {
        self.root.join("api")
    }

    /// The file of the objects.
    pub(super) fn store(&self) -> PathBuf {
        self.root.join("objects.redb")
    }

    /// Artifacts and mirrors.
    pub(super) fn artifacts(&self) -> PathBuf {
        self.root.join("artifacts")
    }

    /// Working directories, locks and logs of runs.
    pub(super) fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// Unpacked artifacts; of no use after a restart.
    pub(super) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }
}

/// Copies the kubeconfig to where the user wants it as well; returns the path to tell.
pub(super) fn publish(kubeconfig: &Path, out: Option<&Path>) -> Result<PathBuf, PlaceError> {
    let Some(out) = out else {
        return Ok(kubeconfig.to_owned());
    };
    let text = fs::read(kubeconfig).map_err(unusable(kubeconfig))?;
    // Written beside and renamed: whoever waits for the file finds it whole.
    let beside = out.with_extension("new");
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        io::Write::write_all(&mut file, &text)?;
        fs::rename(&beside, out)
    };
    write().map_err(unusable(out))?;
    Ok(out.to_owned())
}

fn lock(root: &Path) -> Result<File, PlaceError> {
    let path = root.join("lock");
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(unusable(&path))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(PlaceError::Taken(root.display().to_string())),
        Err(error) => Err(PlaceError::Unusable {
            path: path.display().to_string(),
            source: error.into(),
        }),
    }
}

fn unusable(path: &Path) -> impl FnOnce(io::Error) -> PlaceError {
    let path = path.display().to_string();
    move |source| PlaceError::Unusable { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_serves_one_program_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let place = Place::open(Some(&state)).unwrap();
        assert!(matches!(Place::open(Some(&state)), Err(PlaceError::Taken(_))));
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
        drop(place);
        assert!(Place::open(Some(&state)).is_ok());
    }

    #[test]
    fn the_kubeconfig_is_private_wherever_it_goes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, out) = (dir.path().join("from"), dir.path().join("out"));
        fs::write(&from, "text").unwrap();
        fs::write(&out, "old").unwrap();
        assert_eq!(publish(&from, Some(&out)).unwrap(), out);
        assert_eq!(fs::read_to_string(&out).unwrap(), "text");
        assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
