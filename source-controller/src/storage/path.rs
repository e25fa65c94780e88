//! Where an artifact lies below the storage root: `gitrepository/<namespace>/<name>/<commit>.tar.gz`.

use std::fmt;
use std::path::PathBuf;

/// The first component of every GitRepository's path.
pub(super) const KIND: &str = "gitrepository";

/// The directory of one object's artifacts.
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

/// A text that must not become a part of a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be part of an artifact's path")]
pub struct UnsafePart(pub String);

impl ObjectDirectory {
    /// The directory of a GitRepository.
    ///
    /// # Errors
    /// Namespace or name is no single path component. (The API server lets no such name in.)
    pub fn git_repository(namespace: &str, name: &str) -> Result<Self, UnsafePart> {
        Ok(Self {
            namespace: part(namespace)?,
            name: part(name)?,
        })
    }

    /// Namespace of the object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The artifact of this commit.
    ///
    /// # Errors
    /// `commit` is no object name in hex.
    pub fn artifact(&self, commit: &str) -> Result<ArtifactPath, UnsafePart> {
        if commit.is_empty() || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(UnsafePart(commit.to_owned()));
        }
        Ok(ArtifactPath {
            directory: self.clone(),
            file: format!("{commit}.tar.gz"),
        })
    }

    /// The artifact that a status names, if it is one of this object's: whoever may write a status must not be able to
    /// point the controller at a file of somebody else.
    #[must_use]
    pub fn recorded(&self, path: &str) -> Option<ArtifactPath> {
        let file = path.strip_prefix(&self.to_string())?.strip_prefix('/')?;
        let file = part(file).ok()?;
        file.ends_with(".tar.gz").then(|| ArtifactPath {
            directory: self.clone(),
            file,
        })
    }

    /// Relative to the storage root.
    #[must_use]
    pub fn relative(&self) -> PathBuf {
        [KIND, &self.namespace, &self.name].iter().collect()
    }
}

impl ArtifactPath {
    /// The directory it lies in.
    #[must_use]
    pub const fn directory(&self) -> &ObjectDirectory {
        &self.directory
    }

    /// Its name there.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Relative to the storage root.
    #[must_use]
    pub fn relative(&self) -> PathBuf {
        self.directory.relative().join(&self.file)
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

/// Accepts one ordinary path component. A leading dot is refused as well, which covers `.` and `..`.
fn part(text: &str) -> Result<String, UnsafePart> {
    let ordinary = !text.is_empty()
        && text.len() <= 255
        && !text.starts_with('.')
        && text
            .bytes()
            .all(|b| b != b'/' && b != b'\\' && !b.is_ascii_control());
    if ordinary {
        Ok(text.to_owned())
    } else {
        Err(UnsafePart(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::ObjectDirectory;

    const COMMIT: &str = "b8e362c206e3d0cbb7ed22ced771a0056455a2fb";

    #[test]
    fn the_layout_is_fluxs() {
        let directory = ObjectDirectory::git_repository("flux-system", "podinfo").unwrap();
        let artifact = directory.artifact(COMMIT).unwrap();
        assert_eq!(
            artifact.to_string(),
            format!("gitrepository/flux-system/podinfo/{COMMIT}.tar.gz")
        );
        assert_eq!(directory.recorded(&artifact.to_string()), Some(artifact));
    }

    #[test]
    fn nothing_leads_out_of_the_directory() {
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
            "gitrepository/ns/ab.tar.gz",
            "/etc/passwd",
            "",
        ] {
            assert_eq!(directory.recorded(path), None, "{path}");
        }
    }
}
