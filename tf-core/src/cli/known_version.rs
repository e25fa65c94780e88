//! Versions that programs said before, so that the CLI is not started once more only to say its version again.
//!
//! A program is the same while its path, device, inode, size and times are. Only of the CLI itself is a version noted: a program that
//! chooses a version by what it finds in the directory (tenv, tfenv, a script) says another one elsewhere.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use regex::bytes::Regex;
use sha2::{Digest as _, Sha256};

/// The main package of the CLI, as Go writes it into a program.
const MAIN: &str = r"path\tgithub\.com/(hashicorp/terraform|opentofu/opentofu/cmd/tofu)\n";
/// Longer than any text that [`MAIN`] finds.
const OVERLAP: usize = 128;
/// Most bytes of a program that are looked at.
const PROGRAM: u64 = 1 << 30;
/// Longest version.
const VERSION: u64 = 64;

/// Versions of programs, in a directory with a file for each.
#[derive(Clone, Debug)]
pub struct KnownVersions {
    directory: PathBuf,
}

impl KnownVersions {
    /// Uses a directory, which is created with the first version.
    #[must_use]
    pub const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn file(&self, program: &Path) -> io::Result<PathBuf> {
        let path = fs::canonicalize(program)?;
        let found = fs::metadata(&path)?;
        let mut identity = Sha256::new();
        identity.update(path.as_os_str().as_encoded_bytes());
        for number in [found.dev(), found.ino(), found.len()] {
            identity.update(number.to_be_bytes());
        }
        for time in [
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ] {
            identity.update(time.to_be_bytes());
        }
        Ok(self.directory.join(hex::encode(identity.finalize())))
    }

    /// The version that this very program said.
    #[must_use]
    pub fn of(&self, program: &Path) -> Option<String> {
        let mut version = String::new();
        let file = File::open(self.file(program).ok()?).ok()?;
        file.take(VERSION).read_to_string(&mut version).ok()?;
        semver::Version::parse(&version).is_ok().then_some(version)
    }

    /// Notes what a program said, if it is the CLI itself. Blocking: the program is read once.
    ///
    /// # Errors
    /// It cannot be read, or the note not be written.
    pub fn note(&self, program: &Path, version: &str) -> io::Result<()> {
        let file = self.file(program)?;
        if !is_the_cli(File::open(program)?)? {
            return Ok(());
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let mut beside = tempfile::NamedTempFile::new_in(&self.directory)?;
        io::Write::write_all(&mut beside, version.as_bytes())?;
        beside.persist(file).map(drop).map_err(|error| error.error)
    }
}

/// Whether a program is `terraform` or `tofu` itself.
fn is_the_cli(program: impl Read) -> io::Result<bool> {
    let main = Regex::new(MAIN).map_err(io::Error::other)?;
    let (mut program, mut piece) = (program.take(PROGRAM), Vec::new());
    loop {
        let kept = piece.len().saturating_sub(OVERLAP);
        piece.drain(..kept);
        if program.by_ref().take(1 << 20).read_to_end(&mut piece)? == 0 {
            return Ok(false);
        }
        if main.is_match(&piece) {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLI: &str = "\u{7f}ELF path\tgithub.com/opentofu/opentofu/cmd/tofu\nmod";

    #[test]
    fn a_version_is_known_of_the_cli_itself_while_the_file_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownVersions::new(dir.path().join("versions"));
        let program = dir.path().join("tofu");
        fs::write(&program, CLI).unwrap();
        assert_eq!(known.of(&program), None);
        known.note(&program, "1.8.3").unwrap();
        assert_eq!(known.of(&program).as_deref(), Some("1.8.3"));
        // Another file in its place, with the same size and text.
        let other = dir.path().join("other");
        fs::write(&other, CLI).unwrap();
        fs::rename(&other, &program).unwrap();
        assert_eq!(known.of(&program), None);
        known.note(&program, "not a version").unwrap();
        assert_eq!(known.of(&program), None);
    }

    #[test]
    fn nothing_is_known_of_a_program_that_chooses_the_version_itself() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownVersions::new(dir.path().join("versions"));
        for text in [
            "#!/bin/sh\nexec tofu-$(cat .version) \"$@\"\n",
            "path\tgithub.com/tofuutils/tenv/v4/cmd/tofu\n",
        ] {
            let program = dir.path().join("tofu");
            fs::write(&program, text).unwrap();
            known.note(&program, "1.8.3").unwrap();
            assert_eq!(known.of(&program), None, "{text}");
        }
    }

    #[test]
    fn the_package_is_found_wherever_it_stands() {
        for before in [0, (1 << 20) - 20, (1 << 20) + 1, 3 << 20] {
            let mut bytes = vec![b'x'; before];
            bytes.extend_from_slice(CLI.as_bytes());
            assert!(is_the_cli(&bytes[..]).unwrap(), "{before}");
        }
        assert!(!is_the_cli(&b""[..]).unwrap());
    }
}
