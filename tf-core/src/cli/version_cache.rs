//! Cache of CLI versions, which saves a start of the CLI.
//!
//! A program is identified by path, device, inode, size and times. Only versions of the CLI itself are cached: a wrapper (tenv, tfenv, a
//! script) may select another version in another directory.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use regex::bytes::Regex;
use sha2::{Digest as _, Sha256};

/// Matches the main package of the CLI in a Go binary.
const MAIN: &str = r"path\tgithub\.com/(hashicorp/terraform|opentofu/opentofu/cmd/tofu)\n";
/// Upper bound of the length of a match of [`MAIN`].
const OVERLAP: usize = 128;
/// Limit of the bytes of a program that are searched.
const PROGRAM_LIMIT: u64 = 1 << 30;
/// Length limit of a version.
const VERSION_LIMIT: u64 = 64;

/// A directory with one file for each program.
#[derive(Clone, Debug)]
pub struct VersionCache {
    directory: PathBuf,
}

impl VersionCache {
    /// Uses a directory, which the first insert creates.
    #[must_use]
    pub const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn file(&self, program: &Path) -> io::Result<PathBuf> {
        let path = fs::canonicalize(program)?;
        let metadata = fs::metadata(&path)?;
        let mut identity = Sha256::new();
        identity.update(path.as_os_str().as_encoded_bytes());
        for number in [metadata.dev(), metadata.ino(), metadata.len()] {
            identity.update(number.to_be_bytes());
        }
        for time in [
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ] {
            identity.update(time.to_be_bytes());
        }
        Ok(self.directory.join(hex::encode(identity.finalize())))
    }

    /// Returns the cached version of a program.
    #[must_use]
    pub fn get(&self, program: &Path) -> Option<String> {
        let mut version = String::new();
        let file = File::open(self.file(program).ok()?).ok()?;
        file.take(VERSION_LIMIT).read_to_string(&mut version).ok()?;
        semver::Version::parse(&version).is_ok().then_some(version)
    }

    /// Caches the version of a program if it is the CLI itself. Reads the program (blocking).
    ///
    /// # Errors
    /// The program cannot be read, or the cache cannot be written.
    pub fn insert(&self, program: &Path, version: &str) -> io::Result<()> {
        let file = self.file(program)?;
        if !is_the_cli(File::open(program)?)? {
            return Ok(());
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let mut temporary = tempfile::NamedTempFile::new_in(&self.directory)?;
        io::Write::write_all(&mut temporary, version.as_bytes())?;
        temporary.persist(file).map(drop).map_err(|error| error.error)
    }
}

/// Whether a program is `terraform` or `tofu` itself.
fn is_the_cli(program: impl Read) -> io::Result<bool> {
    let main = Regex::new(MAIN).map_err(io::Error::other)?;
    let (mut program, mut buffer) = (program.take(PROGRAM_LIMIT), Vec::new());
    loop {
        let searched = buffer.len().saturating_sub(OVERLAP);
        buffer.drain(..searched);
        if program.by_ref().take(1 << 20).read_to_end(&mut buffer)? == 0 {
            return Ok(false);
        }
        if main.is_match(&buffer) {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLI: &str = "\u{7f}ELF path\tgithub.com/opentofu/opentofu/cmd/tofu\nmod";

    #[test]
    fn the_cached_version_is_valid_while_the_file_is_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let cache = VersionCache::new(dir.path().join("versions"));
        let program = dir.path().join("tofu");
        fs::write(&program, CLI).unwrap();
        assert_eq!(cache.get(&program), None);
        cache.insert(&program, "1.8.3").unwrap();
        assert_eq!(cache.get(&program).as_deref(), Some("1.8.3"));
        // Another file in its place, with the same size and text.
        let other = dir.path().join("other");
        fs::write(&other, CLI).unwrap();
        fs::rename(&other, &program).unwrap();
        assert_eq!(cache.get(&program), None);
        cache.insert(&program, "not a version").unwrap();
        assert_eq!(cache.get(&program), None);
    }

    #[test]
    fn versions_of_version_managers_are_not_cached() {
        let dir = tempfile::tempdir().unwrap();
        let cache = VersionCache::new(dir.path().join("versions"));
        for text in [
            "#!/bin/sh\nexec tofu-$(cat .version) \"$@\"\n",
            "path\tgithub.com/tofuutils/tenv/v4/cmd/tofu\n",
        ] {
            let program = dir.path().join("tofu");
            fs::write(&program, text).unwrap();
            cache.insert(&program, "1.8.3").unwrap();
            assert_eq!(cache.get(&program), None, "{text}");
        }
    }

    #[test]
    fn the_package_name_is_found_at_any_offset() {
        for before in [0, (1 << 20) - 20, (1 << 20) + 1, 3 << 20] {
            let mut bytes = vec![b'x'; before];
            bytes.extend_from_slice(CLI.as_bytes());
            assert!(is_the_cli(&bytes[..]).unwrap(), "{before}");
        }
        assert!(!is_the_cli(&b""[..]).unwrap());
    }
}
