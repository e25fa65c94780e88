//! The state directory of `sluice up`, or a temporary one that is removed with the program.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sluice_runtime::random::Random;
use tempfile::TempDir;

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// The directory cannot be created or written.
    #[error("cannot use {path}: {source}")]
    Io {
        /// The path.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// It belongs to another user, who could read and change its content.
    #[error("cannot use {path}: it belongs to user {uid}; set --state to a directory of your own")]
    WrongOwner {
        /// The path.
        path: String,
        /// Its owner.
        uid: u32,
    },
    /// Another program uses it.
    #[error("{0} is in use by another sluice up; stop it first, or set another --state")]
    InUse(String),
}

/// The directory and its lock.
pub(crate) struct StateDir {
    root: PathBuf,
    /// Locked while the program runs.
    _lock: File,
    /// Removed with the program; set without `--state`.
    _temporary: Option<TempDir>,
}

impl StateDir {
    /// Opens or creates the directory and locks it. It and its folders become private (mode 0700).
    pub(super) fn open(state: Option<&Path>) -> Result<Self, StateDirError> {
        let temporary = match state {
            Some(_) => None,
            None => Some(TempDir::with_prefix("sluice-").map_err(io_error(&std::env::temp_dir()))?),
        };
        let path = state.or_else(|| temporary.as_ref().map(TempDir::path));
        let root = path.map(Path::to_owned).unwrap_or_default();
        create_directory(&root)?;
        let root = fs::canonicalize(&root).map_err(io_error(&root))?;
        make_private(&root)?;
        let lock = lock(&root)?;
        let state_dir = Self {
            root,
            _lock: lock,
            _temporary: temporary,
        };
        for folder in [
            state_dir.api(),
            state_dir.artifacts(),
            state_dir.runs(),
            state_dir.scratch(),
        ] {
            create_directory(&folder)?;
            make_private(&folder)?;
        }
        Ok(state_dir)
    }

    /// Opens and locks an existing directory; creates nothing in it.
    pub(crate) fn open_existing(state: &Path) -> Result<Self, StateDirError> {
        let root = fs::canonicalize(state).map_err(io_error(state))?;
        fs::metadata(root.join("objects.redb")).map_err(io_error(&root.join("objects.redb")))?;
        make_private(&root)?;
        let lock = lock(&root)?;
        Ok(Self {
            root,
            _lock: lock,
            _temporary: None,
        })
    }

    /// Returns the folder with keys, certificates and the kubeconfig of the API.
    pub(super) fn api(&self) -> PathBuf {
        self.root.join("api")
    }

    /// Returns the file of the objects.
    pub(crate) fn store_path(&self) -> PathBuf {
        self.root.join("objects.redb")
    }

    /// Returns the folder of artifacts and mirrors.
    pub(super) fn artifacts(&self) -> PathBuf {
        self.root.join("artifacts")
    }

    /// Returns the folder with working directories, locks and logs of runs.
    pub(super) fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// Returns the port that `name` used before, or 0 (any) if there is none or it is not free. Runs survive a killed program,
    /// and address its API and its artifacts by port.
    pub(super) fn saved_port(&self, name: &str) -> u16 {
        let text = fs::read_to_string(self.port_file(name)).unwrap_or_default();
        let port = text.trim().parse().unwrap_or(0);
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_or(0, |_free| port)
    }

    /// Saves the port of `name` for the next start.
    pub(super) fn save_port(&self, name: &str, port: u16) -> Result<(), StateDirError> {
        let file = self.port_file(name);
        replace_private(&file, port.to_string().as_bytes()).map_err(io_error(&file))
    }

    /// Returns the token in artifact URLs, which other users of the machine do not know: 32 hexadecimal digits. An existing token is
    /// reused, for runs that survive a killed program.
    pub(super) fn artifact_token(&self, random: &dyn Random) -> Result<String, StateDirError> {
        let path = self.root.join("artifacts.token");
        let saved = fs::read_to_string(&path).unwrap_or_default();
        if saved.len() == 32 && saved.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(saved);
        }
        let token = format!("{:016x}{:016x}", random.bits(), random.bits());
        replace_private(&path, token.as_bytes()).map_err(io_error(&path))?;
        Ok(token)
    }

    fn port_file(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.port"))
    }

    /// Returns the path of the log file, which is used while a terminal shows the progress.
    pub(super) fn log(&self) -> PathBuf {
        self.root.join("sluice.log")
    }

    /// Returns the folder of unpacked artifacts, which are not reused after a restart.
    pub(super) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }
}

/// Copies the kubeconfig to `out`, if set; returns the path to show to the user.
pub(super) fn write_kubeconfig(kubeconfig: &Path, out: Option<&Path>) -> Result<PathBuf, StateDirError> {
    let Some(out) = out else {
        return Ok(kubeconfig.to_owned());
    };
    let text = fs::read(kubeconfig).map_err(io_error(kubeconfig))?;
    replace_private(out, &text).map_err(io_error(out))?;
    Ok(out.to_owned())
}

/// Replaces a file of mode 0600 by rename: a reader, and the next start after a kill at any moment, sees a complete file. A surviving
/// run whose artifacts moved to another port would wait for the old one.
fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    // Do not follow an existing link.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)?;
    io::Write::write_all(&mut file, bytes)?;
    fs::rename(&temporary, path)
}

fn create_directory(path: &Path) -> Result<(), StateDirError> {
    let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(io_error(path))
}

/// Removes the permissions of other users.
fn make_private(path: &Path) -> Result<(), StateDirError> {
    let metadata = fs::metadata(path).map_err(io_error(path))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(StateDirError::WrongOwner {
            path: path.display().to_string(),
            uid: metadata.uid(),
        });
    }
    let (mode, private) = (metadata.mode() & 0o777, metadata.mode() & 0o700);
    if mode == private {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(private)).map_err(io_error(path))
}

fn lock(root: &Path) -> Result<File, StateDirError> {
    let path = root.join("lock");
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(io_error(&path))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StateDirError::InUse(root.display().to_string())),
        Err(error) => Err(io_error(&path)(error.into())),
    }
}

/// Adds the path to an error of the system.
pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> StateDirError {
    let path = path.display().to_string();
    move |source| StateDirError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_is_private_and_locked() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let state_dir = StateDir::open(Some(&state)).unwrap();
        assert!(matches!(
            StateDir::open(Some(&state)),
            Err(StateDirError::InUse(_))
        ));
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
        drop(state_dir);
        assert!(StateDir::open(Some(&state)).is_ok());
    }

    #[test]
    fn an_existing_directory_becomes_private() {
        let dir = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::create_dir(dir.path().join("api")).unwrap();
        for path in [dir.path().to_owned(), dir.path().join("api")] {
            fs::set_permissions(path, open.clone()).unwrap();
        }
        let state_dir = StateDir::open(Some(dir.path())).unwrap();
        for path in [dir.path().to_owned(), state_dir.api(), state_dir.runs()] {
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o700, "{}", path.display());
        }
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        let is_root = rustix::process::geteuid().is_root();
        let dir = tempfile::tempdir().unwrap();
        let other_user = if is_root {
            std::os::unix::fs::chown(dir.path(), Some(12345), None).unwrap();
            dir.path()
        } else {
            Path::new("/")
        };
        assert!(matches!(
            StateDir::open(Some(other_user)),
            Err(StateDirError::WrongOwner { .. })
        ));
    }

    #[test]
    fn a_link_at_the_temporary_kubeconfig_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (from, out, victim) = (
            dir.path().join("from"),
            dir.path().join("out"),
            dir.path().join("victim"),
        );
        fs::write(&from, "text").unwrap();
        fs::write(&victim, "untouched").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("out.new")).unwrap();
        write_kubeconfig(&from, Some(&out)).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(fs::read_to_string(&out).unwrap(), "text");
    }

    #[test]
    fn a_port_is_reused_unless_it_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(Some(dir.path())).unwrap();
        assert_eq!(state_dir.saved_port("api"), 0);
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        state_dir.save_port("api", port).unwrap();
        assert_eq!(state_dir.saved_port("api"), 0);
        drop(taken);
        assert_eq!(state_dir.saved_port("api"), port);
        assert_eq!(state_dir.saved_port("artifacts"), 0);
    }

    #[test]
    fn no_moment_of_a_save_leaves_an_incomplete_port() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(Some(dir.path())).unwrap();
        state_dir.save_port("artifacts", 40_001).unwrap();
        // A second name of the same file shows each change of its content.
        let (file, same) = (dir.path().join("artifacts.port"), dir.path().join("same"));
        fs::hard_link(&file, &same).unwrap();
        // A kill before the rename leaves this file.
        fs::write(dir.path().join("artifacts.new"), "4").unwrap();
        state_dir.save_port("artifacts", 40_003).unwrap();
        assert_eq!(
            fs::read_to_string(&same).unwrap(),
            "40001",
            "the file is replaced"
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "40003");
    }

    #[test]
    fn an_artifact_token_is_reused_unless_it_is_invalid() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(Some(dir.path())).unwrap();
        let random = sluice_runtime::random::Generator::seeded(1);
        let token = state_dir.artifact_token(&random).unwrap();
        assert_eq!(token.len(), 32);
        let file = dir.path().join("artifacts.token");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(state_dir.artifact_token(&random).unwrap(), token);
        fs::write(&file, "half").unwrap();
        let next = state_dir.artifact_token(&random).unwrap();
        assert!(next.len() == 32 && next != token, "{next}");
    }

    #[test]
    fn the_kubeconfig_is_private_at_any_path() {
        let dir = tempfile::tempdir().unwrap();
        let (from, out) = (dir.path().join("from"), dir.path().join("out"));
        fs::write(&from, "text").unwrap();
        fs::write(&out, "old").unwrap();
        assert_eq!(write_kubeconfig(&from, Some(&out)).unwrap(), out);
        assert_eq!(fs::read_to_string(&out).unwrap(), "text");
        assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
