//! Where `sluice up` keeps things: the state directory, or a temporary one that goes with the program.

use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, TcpListener},
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

    /// The port that `what` had in the last life of this state, or 0 (any) when it had none or it is not free. Runs
    /// outlive a program that was killed, and know its API and its artifacts by their addresses.
    pub(super) fn port(&self, what: &str) -> u16 {
        let text = fs::read_to_string(self.port_file(what)).unwrap_or_default();
        let port = text.trim().parse().unwrap_or(0);
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_or(0, |_free| port)
    }

    /// Keeps the port of `what` for the next life of this state.
    pub(super) fn keep_port(&self, what: &str, port: u16) -> Result<(), PlaceError> {
        let file = self.port_file(what);
        fs::write(&file, port.to_string()).map_err(unusable(&file))
    }

    fn port_file(&self, what: &str) -> PathBuf {
        self.root.join(format!("{what}.port"))
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
    fn a_port_is_kept_unless_another_program_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::open(Some(dir.path())).unwrap();
        assert_eq!(place.port("api"), 0);
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        place.keep_port("api", port).unwrap();
        assert_eq!(place.port("api"), 0);
        drop(taken);
        assert_eq!(place.port("api"), port);
        assert_eq!(place.port("artifacts"), 0);
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
