//! An unpacked package of a provider: copied file by file, and digested as the lock file does (`h1:`, Go's `dirhash.Hash1`).

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// Maximum number of files and directories of one package.
const MAX_ENTRIES: usize = 10_000;

/// The relative paths of files and directories, and the total size.
struct Listing {
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    bytes: u64,
}

/// Lists a package, which may contain only files and directories.
fn list(root: &Path) -> io::Result<Listing> {
    let mut listing = Listing {
        directories: Vec::new(),
        files: Vec::new(),
        bytes: 0,
    };
    let mut pending = vec![PathBuf::new()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, directory.join(entry.file_name()));
            if kind.is_dir() {
                pending.push(path.clone());
                listing.directories.push(path);
            } else if kind.is_file() {
                listing.bytes += entry.metadata()?.len();
                listing.files.push(path);
            } else {
                return Err(invalid(
                    "it contains an entry that is neither a file nor a directory",
                ));
            }
            if listing.files.len() + listing.directories.len() > MAX_ENTRIES {
                return Err(invalid("it has too many files"));
            }
        }
    }
    // A directory sorts before its entries.
    listing.directories.sort();
    Ok(listing)
}

/// The total size of a package.
///
/// # Errors
/// When it is not a valid package or cannot be read.
pub(super) fn size(root: &Path) -> io::Result<u64> {
    list(root).map(|listing| listing.bytes)
}

/// Copies a package to an absent path. The copy shares no file with the original, but may share blocks if the file system
/// supports it.
///
/// # Errors
/// When it is not a valid package or cannot be copied. A partial copy stays.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let listing = list(from)?;
    if let Some(parent) = to.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let create = |path: &Path| DirBuilder::new().mode(0o700).create(path);
    create(to)?;
    for directory in &listing.directories {
        create(&to.join(directory))?;
    }
    for file in &listing.files {
        let copy = to.join(file);
        fs::copy(from.join(file), &copy)?;
        // The digest does not cover modes, so those of the original are not trusted.
        fs::set_permissions(&copy, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Identifies the files of a package by what the file system knows about them, without their bytes. A write changes the time of the
/// inode (`ctime`), which a process cannot set. Two writes within one tick of the kernel's clock may have the same.
///
/// # Errors
/// When it is not a valid package or cannot be read.
pub(super) fn fingerprint(root: &Path) -> io::Result<String> {
    let Listing {
        directories,
        mut files,
        ..
    } = list(root)?;
    files.sort_unstable();
    let mut hash = Sha256::new();
    let mut update = |bytes: &[u8]| {
        // The length prefix separates the parts.
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    for directory in &directories {
        update(directory.as_os_str().as_encoded_bytes());
    }
    for file in &files {
        let found = fs::symlink_metadata(root.join(file))?;
        update(file.as_os_str().as_encoded_bytes());
        let identity = [found.dev(), found.ino(), found.size()].map(u64::to_be_bytes);
        update(&identity.concat());
        let times = [
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ];
        update(&times.map(i64::to_be_bytes).concat());
    }
    Ok(hex::encode(hash.finalize()))
}

/// The digest of a package in the form of lock files.
///
/// # Errors
/// When it is not a valid package or cannot be read.
pub(super) fn digest(root: &Path) -> io::Result<String> {
    let mut names = Vec::new();
    for file in list(root)?.files {
        let name = file.to_str().filter(|name| !name.contains('\n'));
        let name = name.ok_or_else(|| invalid("it contains a name that cannot be part of a digest"))?;
        names.push(name.to_owned());
    }
    names.sort_unstable();
    let mut hash = Sha256::new();
    for name in names {
        let line = format!("{}  {name}\n", hex::encode(file_digest(&root.join(&name))?));
        hash.update(line);
    }
    Ok(format!("h1:{}", STANDARD.encode(hash.finalize())))
}

/// SHA-256 of a file. No more than 256 KiB of it are in memory at once.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn file_digest(path: &Path) -> io::Result<[u8; 32]> {
    let mut file = BufReader::with_capacity(256 * 1024, File::open(path)?);
    let mut hash = Sha256::new();
    loop {
        let piece = file.fill_buf()?;
        let length = piece.len();
        if length == 0 {
            return Ok(hash.finalize().into());
        }
        hash.update(piece);
        file.consume(length);
    }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of packages with their texts, and their digests.
    const GOLDEN: [(&[(&str, &str)], &str); 3] = [
        (
            &[("terraform-provider-x_v1.0.0", "program")],
            "h1:HcXj9RJx894buVNcESmY4Qcmept/0x8hoIxMmKzED0c=",
        ),
        (
            &[
                ("terraform-provider-x_v1.0.0", "program"),
                ("docs/LICENSE", "free"),
                ("README.md", ""),
            ],
            "h1:zuEFJyHIJt6tnoK+ma43KNiv9P8S05Tpu5t8G27DrS8=",
        ),
        // In the order of bytes, not of path components or letters.
        (
            &[("a/b", "1"), ("a-b/c", "2"), ("a.b", "3"), ("B", "4")],
            "h1:vV8+1wfd+2oRrl/bbHVrTSUPnYTBqlTq/Lpk3LnOscM=",
        ),
    ];

    fn package(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn the_digest_is_that_of_gos_dirhash() {
        // The digest of `dirhash.HashDir` of golang.org/x/mod for these two files.
        let dir = package(&[
            ("terraform-provider-x_v1.0.0", "program"),
            ("docs/LICENSE", "free"),
        ]);
        let lines = format!(
            "{}  docs/LICENSE\n{}  terraform-provider-x_v1.0.0\n",
            hex::encode(Sha256::digest("free")),
            hex::encode(Sha256::digest("program"))
        );
        let wanted = format!("h1:{}", STANDARD.encode(Sha256::digest(lines)));
        assert_eq!(digest(dir.path()).unwrap(), wanted);
        assert_eq!(size(dir.path()).unwrap(), 11);
    }

    #[test]
    fn digests_equal_those_of_lock_files() {
        // Computed with other programs: `sha256sum` of each file, sorted by name, and the SHA-256 of that list in base64.
        for (files, expected) in GOLDEN {
            assert_eq!(digest(package(files).path()).unwrap(), expected, "{files:?}");
        }
    }

    #[test]
    fn a_copied_package_is_complete_executable_and_independent() {
        let dir = package(&[("a/b/c", "text"), ("d", "more")]);
        let other = tempfile::tempdir().unwrap();
        let to = other.path().join("x/y");
        copy(dir.path(), &to).unwrap();
        assert_eq!(digest(&to).unwrap(), digest(dir.path()).unwrap());
        assert_eq!(
            fs::metadata(to.join("d")).unwrap().permissions().mode() & 0o777,
            0o700
        );
        fs::write(to.join("d"), "changed").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("d")).unwrap(), "more");
        assert!(copy(dir.path(), &to).is_err(), "something is there");
    }

    #[test]
    fn a_fingerprint_changes_with_every_file() {
        let dir = package(&[("a/b", "text"), ("d", "more")]);
        let before = fingerprint(dir.path()).unwrap();
        assert_eq!(fingerprint(dir.path()).unwrap(), before);
        // The use of a package is recorded as the time of its directory.
        let (entry, later) = (File::open(dir.path()).unwrap(), std::time::SystemTime::now());
        entry
            .set_modified(later + std::time::Duration::from_mins(1))
            .unwrap();
        assert_eq!(fingerprint(dir.path()).unwrap(), before);
        // Another inode with the bytes and the times of the old one.
        let file = dir.path().join("d");
        let times = fs::metadata(&file).unwrap().modified().unwrap();
        fs::write(dir.path().join("new"), "more").unwrap();
        fs::rename(dir.path().join("new"), &file).unwrap();
        File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(times)
            .unwrap();
        let replaced = fingerprint(dir.path()).unwrap();
        assert_ne!(replaced, before);
        fs::write(&file, "longer").unwrap();
        let written = fingerprint(dir.path()).unwrap();
        assert_ne!(written, replaced);
        fs::write(dir.path().join("a/c"), "").unwrap();
        assert_ne!(fingerprint(dir.path()).unwrap(), written);
    }

    #[test]
    fn links_are_excluded_from_a_package() {
        let dir = package(&[("d", "more")]);
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        let other = tempfile::tempdir().unwrap();
        for error in [
            copy(dir.path(), &other.path().join("x")).unwrap_err(),
            digest(dir.path()).map(drop).unwrap_err(),
            fingerprint(dir.path()).map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidData);
        }
    }
}
