//! Paths of artifacts below the storage root: `gitrepository/<namespace>/<name>/<commit>.tar.gz`. Files there are opened
//! without following links.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use rustix::fs::{CWD, Mode, OFlags, openat};

/// First path component of all GitRepository artifacts.
pub(super) const KIND: &str = "gitrepository";

/// Room for the separators of a path and the name of its file: 40 digits of a commit and a suffix.
const FILE_ROOM: usize = 52;

/// Suffix of the lock beside an artifact.
pub(super) const LOCK_SUFFIX: &str = ".lock";

/// Suffix of the index beside an artifact.
pub(super) const INDEX_SUFFIX: &str = ".segments";

/// Returns the path of the file with this suffix beside an artifact.
pub(super) fn beside(artifact: &Path, suffix: &str) -> PathBuf {
    let mut path = artifact.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// The directory of an object's artifacts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectDirectory {
    namespace: String,
    name: String,
}

/// A file in an [`ObjectDirectory`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ArtifactPath {
    directory: ObjectDirectory,
    file: String,
}

/// A text that is not a safe path component.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be part of an artifact's path")]
pub struct InvalidPathComponent(pub String);

impl ObjectDirectory {
    /// Returns the directory of a GitRepository.
    ///
    /// # Errors
    /// Namespace or name is not a single path component. The API server rejects such names.
    pub fn git_repository(namespace: &str, name: &str) -> Result<Self, InvalidPathComponent> {
        Ok(Self {
            namespace: part(namespace)?,
            name: part(name)?,
        })
    }

    /// Returns the object's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of a commit's artifact.
    ///
    /// # Errors
    /// `commit` is not a hexadecimal object name.
    pub fn artifact(&self, commit: &str) -> Result<ArtifactPath, InvalidPathComponent> {
        if commit.is_empty() || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(InvalidPathComponent(commit.to_owned()));
        }
        Ok(ArtifactPath {
            directory: self.clone(),
            file: format!("{commit}.tar.gz"),
        })
    }

    /// Parses the path in a status; `None` if it is outside this object's directory, so that writing a status gives no
    /// access to other objects' files.
    #[must_use]
    pub fn recorded(&self, path: &str) -> Option<ArtifactPath> {
        let of_kind = path.strip_prefix(KIND)?.strip_prefix('/')?;
        let of_namespace = of_kind.strip_prefix(self.namespace.as_str())?.strip_prefix('/')?;
        let file = of_namespace.strip_prefix(self.name.as_str())?.strip_prefix('/')?;
        let file = part(file).ok()?;
        file.ends_with(".tar.gz").then(|| ArtifactPath {
            directory: self.clone(),
            file,
        })
    }

    /// Returns the path relative to the storage root.
    #[must_use]
    pub fn relative(&self) -> PathBuf {
        [KIND, &self.namespace, &self.name].iter().collect()
    }

    /// Returns the path below a storage root, with room for the name of an artifact.
    pub(super) fn below(&self, root: &Path) -> PathBuf {
        let length = root.as_os_str().len() + KIND.len() + self.namespace.len() + self.name.len();
        let mut path = PathBuf::with_capacity(length + FILE_ROOM);
        path.push(root);
        path.extend([KIND, &self.namespace, &self.name]);
        path
    }
}

impl ArtifactPath {
    /// Returns the object's directory.
    #[must_use]
    pub const fn directory(&self) -> &ObjectDirectory {
        &self.directory
    }

    /// Returns the file name.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the path relative to the storage root.
    #[must_use]
    pub fn relative(&self) -> PathBuf {
        self.directory.relative().join(&self.file)
    }

    /// Returns the path below a storage root.
    pub(super) fn below(&self, root: &Path) -> PathBuf {
        let mut path = self.directory.below(root);
        path.push(&self.file);
        path
    }
}

impl fmt::Display for ObjectDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KIND}/{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for ArtifactPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.directory, self.file)
    }
}

/// Checks for a single, ordinary path component. Rejects leading dots, which covers `.` and `..`.
fn part(text: &str) -> Result<String, InvalidPathComponent> {
    let ordinary = !text.is_empty()
        && text.len() <= 255
        && !text.starts_with('.')
        && text
            .bytes()
            .all(|b| b != b'/' && b != b'\\' && !b.is_ascii_control());
    if ordinary {
        Ok(text.to_owned())
    } else {
        Err(InvalidPathComponent(text.to_owned()))
    }
}

/// Opens a file below `root` component by component, without following links. Anything but a regular file counts as not
/// found.
pub(crate) fn open_below(root: &Path, relative: &Path) -> io::Result<File> {
    let step = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, root, step, Mode::empty())?;
    let mut parts = relative.iter().peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_some() {
            at = openat(&at, part, step | OFlags::NOFOLLOW, Mode::empty())?;
        } else {
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = File::from(openat(&at, part, flags, Mode::empty())?);
            if file.metadata()?.is_file() {
                return Ok(file);
            }
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

/// Opens the file without following a link that may have replaced it.
pub(super) fn open_nofollow(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "b8e362c206e3d0cbb7ed22ced771a0056455a2fb";

    #[test]
    fn the_layout_is_that_of_flux() {
        let directory = ObjectDirectory::git_repository("flux-system", "podinfo").unwrap();
        let artifact = directory.artifact(COMMIT).unwrap();
        assert_eq!(
            artifact.to_string(),
            format!("gitrepository/flux-system/podinfo/{COMMIT}.tar.gz")
        );
        assert_eq!(directory.recorded(&artifact.to_string()), Some(artifact));
    }

    #[test]
    fn a_path_below_a_root_is_the_root_joined_with_the_relative_path() {
        let directory = ObjectDirectory::git_repository("flux-system", "podinfo").unwrap();
        let artifact = directory.artifact(COMMIT).unwrap();
        for root in ["/data", "/data/", "data", "/"] {
            let root = Path::new(root);
            // Caches compare the bytes.
            assert_eq!(
                directory.below(root).as_os_str(),
                root.join(directory.relative()).as_os_str()
            );
            assert_eq!(
                artifact.below(root).as_os_str(),
                root.join(artifact.relative()).as_os_str()
            );
        }
    }

    #[test]
    fn no_path_leaves_the_objects_directory() {
        let directory = ObjectDirectory::git_repository("ns", "a").unwrap();
        for (namespace, name) in [
            ("..", "a"),
            ("ns", ".."),
            ("ns", "a/b"),
            ("", "a"),
            ("ns", ""),
            ("ns", "a\0b"),
        ] {
            assert!(
                ObjectDirectory::git_repository(namespace, name).is_err(),
                "{namespace}/{name}"
            );
        }
        for commit in ["", "..", "../b", "main"] {
            assert!(directory.artifact(commit).is_err(), "{commit}");
        }
        for path in [
            "gitrepository/ns/b/x.tar.gz",
            "gitrepository/ns/a/../b/x.tar.gz",
            "gitrepository/ns/a/b/x.tar.gz",
            "gitrepository/ns/a/.x.tar.gz",
            "gitrepository/ns/a/x.lock",
            "gitrepository/ns/a/x.tar.gz.segments",
            "gitrepository/ns/ab.tar.gz",
            "/etc/passwd",
            "",
        ] {
            assert_eq!(directory.recorded(path), None, "{path}");
        }
    }
}
