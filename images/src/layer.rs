//! A layer of an image: files, links and directories by their path, written as a tar archive.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tar::EntryType;

/// Mode of directories and programs: only root writes.
const PROGRAM_MODE: u32 = 0o755;
/// Mode of other files.
const FILE_MODE: u32 = 0o644;

/// A layer cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The path could leave the root of the image.
    #[error("{path:?} cannot be a path in an image: use an absolute path without `.`, `..` and empty parts")]
    UnsafePath {
        /// The path.
        path: String,
    },
    /// Two entries have one path.
    #[error("the layer already has an entry with the path /{path}")]
    Duplicate {
        /// The path, without the first slash.
        path: String,
    },
    /// A parent of the path is a file or a link.
    #[error("/{path} cannot be added: its parent /{parent} is not a directory")]
    NotADirectory {
        /// The path, without the first slash.
        path: String,
        /// The parent, without the first slash.
        parent: String,
    },
    /// A file of the layer cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file on this machine.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The archive cannot be written.
    #[error("cannot write the layer {path}: {source}")]
    Write {
        /// The archive.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// An entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Directory { mode: u32, owner: u32 },
    File { source: PathBuf },
    Text { contents: Vec<u8> },
    Link { target: String },
}

/// The entries of a layer by their path without the first slash. A parent comes before its children in the order of bytes.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    entries: BTreeMap<String, Entry>,
}

/// A layer in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenLayer {
    /// The tar archive.
    pub path: PathBuf,
    /// SHA-256 in hexadecimal digits.
    pub digest: String,
    /// Bytes.
    pub size: u64,
}

impl Layer {
    /// Adds a directory, or sets mode and owner of one that is the parent of another entry.
    ///
    /// # Errors
    /// When the path is unsafe or an entry of another kind has it.
    pub fn directory(&mut self, path: &str, mode: u32, owner: u32) -> Result<(), LayerError> {
        self.insert(path, Entry::Directory { mode, owner })
    }

    /// Adds a copy of a file. It is a program if its owner may execute it; other bits of its mode do not count.
    ///
    /// # Errors
    /// When the path is unsafe or another entry has it.
    pub fn file(&mut self, path: &str, source: &Path) -> Result<(), LayerError> {
        let source = source.to_owned();
        self.insert(path, Entry::File { source })
    }

    /// Adds a file with this text.
    ///
    /// # Errors
    /// As [`Layer::file`].
    pub fn text(&mut self, path: &str, contents: impl Into<Vec<u8>>) -> Result<(), LayerError> {
        let contents = contents.into();
        self.insert(path, Entry::Text { contents })
    }

    /// Adds a symbolic link. Its target need not exist.
    ///
    /// # Errors
    /// As [`Layer::file`].
    pub fn link(&mut self, path: &str, target: &str) -> Result<(), LayerError> {
        let target = target.to_owned();
        self.insert(path, Entry::Link { target })
    }

    /// Returns whether an entry has this path.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.entries.contains_key(path.trim_start_matches('/'))
    }

    /// Returns the entries by their path without the first slash.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Returns the files of this machine that are copied.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Path> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::File { source } => Some(source.as_path()),
            _ => None,
        })
    }

    fn insert(&mut self, path: &str, entry: Entry) -> Result<(), LayerError> {
        let path = checked(path)?;
        for (end, _) in path.match_indices('/') {
            let parent = &path[..end];
            match self.entries.get(parent) {
                Some(Entry::Directory { .. }) => {}
                Some(_) => {
                    let parent = parent.to_owned();
                    return Err(LayerError::NotADirectory { path, parent });
                }
                None => drop(self.entries.insert(
                    parent.to_owned(),
                    Entry::Directory {
                        mode: PROGRAM_MODE,
                        owner: 0,
                    },
                )),
            }
        }
        let both_directories =
            |old: &Entry| matches!(old, Entry::Directory { .. }) && matches!(entry, Entry::Directory { .. });
        if self.entries.get(&path).is_some_and(|old| !both_directories(old)) {
            return Err(LayerError::Duplicate { path });
        }
        self.entries.insert(path, entry);
        Ok(())
    }

    /// Writes the layer as a tar archive without times and names of users.
    ///
    /// # Errors
    /// When a file cannot be read or the archive cannot be written.
    pub fn write(&self, path: &Path) -> Result<WrittenLayer, LayerError> {
        let failed = |source| LayerError::Write {
            path: path.to_owned(),
            source,
        };
        let file = File::create(path).map_err(failed)?;
        let mut tar = tar::Builder::new(DigestWriter {
            file: BufWriter::new(file),
            hash: Sha256::new(),
            size: 0,
        });
        for (name, entry) in &self.entries {
            append(&mut tar, name, entry, failed)?;
        }
        let mut writer = tar.into_inner().map_err(failed)?;
        writer.file.flush().map_err(failed)?;
        Ok(WrittenLayer {
            path: path.to_owned(),
            digest: hex::encode(writer.hash.finalize()),
            size: writer.size,
        })
    }
}

/// Returns the path without its first slash.
fn checked(path: &str) -> Result<String, LayerError> {
    let relative = path.strip_prefix('/').filter(|rest| {
        let mut parts = rest.split('/');
        !rest.contains('\0') && parts.all(|part| !matches!(part, "" | "." | ".."))
    });
    relative.map(str::to_owned).ok_or_else(|| LayerError::UnsafePath {
        path: path.to_owned(),
    })
}

fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    name: &str,
    entry: &Entry,
    failed: impl Fn(io::Error) -> LayerError,
) -> Result<(), LayerError> {
    let written = match entry {
        Entry::Directory { mode, owner } => {
            let mut header = header(EntryType::Directory, *mode, 0);
            header.set_uid(u64::from(*owner));
            header.set_gid(u64::from(*owner));
            tar.append_data(&mut header, format!("{name}/"), io::empty())
        }
        Entry::File { source } => {
            let (contents, mode) = read(source)?;
            tar.append_data(&mut file_header(mode, &contents), name, contents.as_slice())
        }
        Entry::Text { contents } => {
            tar.append_data(&mut file_header(FILE_MODE, contents), name, contents.as_slice())
        }
        Entry::Link { target } => tar.append_link(&mut header(EntryType::Symlink, 0o777, 0), name, target),
    };
    written.map_err(failed)
}

fn read(path: &Path) -> Result<(Vec<u8>, u32), LayerError> {
    let read = || {
        let is_program = fs::metadata(path)?.permissions().mode() & 0o100 != 0;
        let mode = if is_program { PROGRAM_MODE } else { FILE_MODE };
        Ok((fs::read(path)?, mode))
    };
    read().map_err(|source| LayerError::Read {
        path: path.to_owned(),
        source,
    })
}

fn file_header(mode: u32, contents: &[u8]) -> tar::Header {
    header(EntryType::Regular, mode, contents.len() as u64)
}

/// Returns a header of root without a time.
pub(crate) fn header(kind: EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Hashes and counts what it writes.
struct DigestWriter {
    file: BufWriter<File>,
    hash: Sha256,
    size: u64,
}

impl Write for DigestWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// Writes the same layer from a folder whose files have this time and these bits.
    fn written(folder: &Path, time: SystemTime, bits: u32) -> (WrittenLayer, Vec<u8>) {
        let program = folder.join("program");
        fs::write(&program, "contents").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(bits)).unwrap();
        File::open(&program).unwrap().set_modified(time).unwrap();
        let mut layer = Layer::default();
        layer.link("/usr/bin/b", "a").unwrap();
        layer.file("/usr/bin/a", &program).unwrap();
        layer.directory("/tmp", 0o1777, 0).unwrap();
        layer
            .text(&format!("/usr/share/{}/note", "long".repeat(40)), "note")
            .unwrap();
        layer.directory("/home/runner", 0o755, 65532).unwrap();
        let written = layer.write(&folder.join("layer.tar")).unwrap();
        let bytes = fs::read(&written.path).unwrap();
        (written, bytes)
    }

    #[test]
    fn equal_entries_give_equal_bytes_at_other_times_in_other_folders_and_with_other_bits() {
        let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let now = SystemTime::now();
        let (layer, bytes) = written(one.path(), now, 0o4777);
        let (again, same) = written(other.path(), now - Duration::from_hours(24), 0o700);
        assert!(bytes == same);
        assert_eq!((&layer.digest, layer.size), (&again.digest, again.size));
        assert_eq!(layer.digest, hex::encode(Sha256::digest(&bytes)));
        assert_eq!(layer.size, bytes.len() as u64);
    }

    #[test]
    fn entries_are_sorted_with_their_parents_and_have_neither_times_nor_special_bits() {
        let folder = tempfile::tempdir().unwrap();
        let (_, bytes) = written(folder.path(), SystemTime::now(), 0o6777);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let header = entry.header();
                let (mode, owner) = (header.mode().unwrap(), header.uid().unwrap());
                assert_eq!((header.mtime().unwrap(), header.gid().unwrap()), (0, owner));
                let path = entry.path().unwrap().display().to_string();
                (path, mode, owner)
            })
            .collect();
        let shown: Vec<_> = entries
            .iter()
            .map(|(path, mode, owner)| (path.as_str(), *mode, *owner))
            .filter(|(path, ..)| !path.contains("long"))
            .collect();
        assert_eq!(
            shown,
            [
                ("home/", 0o755, 0),
                ("home/runner/", 0o755, 65532),
                ("tmp/", 0o1777, 0),
                ("usr/", 0o755, 0),
                ("usr/bin/", 0o755, 0),
                ("usr/bin/a", 0o755, 0),
                ("usr/bin/b", 0o777, 0),
                ("usr/share/", 0o755, 0),
            ]
        );
        assert_eq!(entries.len(), shown.len() + 2, "{entries:?}");
    }

    #[test]
    fn a_path_that_could_leave_the_root_is_refused() {
        let mut layer = Layer::default();
        for path in [
            "", "/", "etc", "/../etc", "/etc/..", "/./etc", "//etc", "/etc/", "/a\0",
        ] {
            let error = layer.text(path, "").unwrap_err();
            assert!(matches!(error, LayerError::UnsafePath { .. }), "{path}: {error}");
        }
        assert!(layer.entries.is_empty());
    }

    #[test]
    fn two_entries_of_one_path_and_entries_below_a_link_are_refused() {
        let mut layer = Layer::default();
        layer.link("/bin", "usr/bin").unwrap();
        let error = layer.text("/bin/sh", "").unwrap_err();
        assert_eq!(
            error.to_string(),
            "/bin/sh cannot be added: its parent /bin is not a directory"
        );
        let error = layer.directory("/bin", 0o755, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the layer already has an entry with the path /bin"
        );
        layer.text("/etc/passwd", "").unwrap();
        assert!(layer.link("/etc", "usr/etc").is_err());
        layer.directory("/etc", 0o755, 0).unwrap();
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut layer = Layer::default();
        layer.file("/a", &folder.path().join("absent")).unwrap();
        let error = layer
            .write(&folder.path().join("layer.tar"))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("cannot read ") && error.contains("absent"),
            "{error}"
        );
    }
}
