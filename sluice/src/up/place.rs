//! Where `sluice up` keeps things: the state directory, or a temporary one that goes with the program.

use sluice_runtime::random::Random;
use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
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
    /// It belongs to another user, who could read and change what is in it.
    #[error(
        "cannot use {path}: it belongs to the user with the id {uid}; give a directory of your own as --state"
    )]
    Foreign {
        /// The path.
        path: String,
        /// Its owner.
        uid: u32,
    },
    /// Another program has it.
    #[error("{0} is in use by another sluice up; end that one first, or give another --state")]
    Taken(String),
}

/// The directory and its lock.
pub(crate) struct Place {
    root: PathBuf,
    /// Held for as long as the program lives.
    _lock: File,
    /// Removed with the program, where no `--state` was given.
    _temporary: Option<TempDir>,
}

impl Place {
    /// Opens or makes the directory and locks it. It and its folders are private (mode 0700) whatever was there before.
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
        make_private(&root)?;
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
            make_private(&folder)?;
        }
        Ok(place)
    }

    /// Locks a directory that is there and makes nothing in it.
    pub(crate) fn existing(state: &Path) -> Result<Self, PlaceError> {
        let root = fs::canonicalize(state).map_err(unusable(state))?;
        fs::metadata(root.join("objects.redb")).map_err(unusable(&root.join("objects.redb")))?;
        make_private(&root)?;
        let lock = lock(&root)?;
        Ok(Self {
            root,
            _lock: lock,
            _temporary: None,
        })
    }

    /// Keys, certificates and the kubeconfig of the API.
    pub(super) fn api(&self) -> PathBuf {
        self.root.join("api")
    }

    /// The file of the objects.
    pub(crate) fn store(&self) -> PathBuf {
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

    /// What the URLs of artifacts carry, so that other users of the machine cannot fetch them: 32 hexadecimal digits. It is
    /// that of the last life of this state, for runs that outlive a program that was killed, or a new one.
    pub(super) fn artifact_token(&self, random: &dyn Random) -> Result<String, PlaceError> {
        let path = self.root.join("artifacts.token");
        let held = fs::read_to_string(&path).unwrap_or_default();
        if held.len() == 32 && held.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(held);
        }
        let token = format!("{:016x}{:016x}", random.bits(), random.bits());
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path);
        file.and_then(|mut file| io::Write::write_all(&mut file, token.as_bytes()))
            .map_err(unusable(&path))?;
        Ok(token)
    }

    fn port_file(&self, what: &str) -> PathBuf {
        self.root.join(format!("{what}.port"))
    }

    /// The log, where the terminal shows the story.
    pub(super) fn log(&self) -> PathBuf {
        self.root.join("sluice.log")
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
        // A link that waits there is not followed.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&beside)?;
        io::Write::write_all(&mut file, &text)?;
        fs::rename(&beside, out)
    };
    write().map_err(unusable(out))?;
    Ok(out.to_owned())
}

/// Takes a directory of this user away from all others.
fn make_private(path: &Path) -> Result<(), PlaceError> {
    let metadata = fs::metadata(path).map_err(unusable(path))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(PlaceError::Foreign {
            path: path.display().to_string(),
            uid: metadata.uid(),
        });
    }
    let (mode, private) = (metadata.mode() & 0o777, metadata.mode() & 0o700);
    if mode == private {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(private)).map_err(unusable(path))
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

/// An error of the system, with the path.
pub(super) fn unusable(path: &Path) -> impl FnOnce(io::Error) -> PlaceError {
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
    fn a_directory_that_was_there_before_becomes_private() {
        let dir = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::create_dir(dir.path().join("api")).unwrap();
        for path in [dir.path().to_owned(), dir.path().join("api")] {
            fs::set_permissions(path, open.clone()).unwrap();
        }
        let place = Place::open(Some(dir.path())).unwrap();
        for path in [dir.path().to_owned(), place.api(), place.runs()] {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o700, "{}", path.display());
        }
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let own = rustix::process::geteuid().is_root();
        let dir = tempfile::tempdir().unwrap();
        let foreign = if own {
            std::os::unix::fs::chown(dir.path(), Some(12345), None).unwrap();
            dir.path()
        } else {
            Path::new("/")
        };
        assert!(matches!(
            Place::open(Some(foreign)),
            Err(PlaceError::Foreign { .. })
        ));
    }

    #[test]
    fn a_link_beside_the_kubeconfig_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (from, out, victim) = (
            dir.path().join("from"),
            dir.path().join("out"),
            dir.path().join("victim"),
        );
        fs::write(&from, "text").unwrap();
        fs::write(&victim, "untouched").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("out.new")).unwrap();
        publish(&from, Some(&out)).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(fs::read_to_string(&out).unwrap(), "text");
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
    fn the_token_of_artifacts_is_kept_and_is_drawn_again_where_it_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::open(Some(dir.path())).unwrap();
        let random = sluice_runtime::random::Generator::seeded(1);
        let token = place.artifact_token(&random).unwrap();
        assert_eq!(token.len(), 32);
        let file = dir.path().join("artifacts.token");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(place.artifact_token(&random).unwrap(), token);
        fs::write(&file, "half").unwrap();
        let next = place.artifact_token(&random).unwrap();
        assert!(next.len() == 32 && next != token, "{next}");
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
