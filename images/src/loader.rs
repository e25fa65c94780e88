//! Runs programs with the libraries of an image and no others, so that a program which lacks one is found before it is packed.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::{Package, run};

/// The package with the dynamic linker.
const LIBRARY_PACKAGE: &str = "libc6";
/// The first bytes of a program.
const ELF: [u8; 4] = *b"\x7fELF";

/// A program does not run in the image.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// There is no dynamic linker.
    #[error("the packages of the image have no dynamic linker")]
    NoLinker,
    /// A program lacks a library, or fails.
    #[error("{program} does not run with the libraries of the image: {source}")]
    Fails {
        /// The program.
        program: PathBuf,
        /// What it or the dynamic linker says.
        source: io::Error,
    },
}

/// The dynamic linker of an image, with its libraries.
#[derive(Debug)]
pub(crate) struct Loader {
    linker: PathBuf,
    libraries: OsString,
}

impl Loader {
    /// Finds the dynamic linker in unpacked packages.
    pub(crate) fn find(packages: &[Package]) -> Result<Self, LoaderError> {
        let library = packages.iter().find(|package| package.name == LIBRARY_PACKAGE);
        let linker = library.and_then(|package| linker(&package.files.join("lib")).ok().flatten());
        let linker = linker.ok_or(LoaderError::NoLinker)?;
        let folder = linker
            .parent()
            .and_then(Path::file_name)
            .ok_or(LoaderError::NoLinker)?;
        let folders = packages
            .iter()
            .flat_map(|package| ["lib", "usr/lib"].map(|part| package.files.join(part).join(folder)))
            .filter(|folder| folder.is_dir());
        let libraries = std::env::join_paths(folders).map_err(|_| LoaderError::NoLinker)?;
        Ok(Self { linker, libraries })
    }

    /// Runs a program and returns its output.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str]) -> Result<String, LoaderError> {
        run(self.command().arg(program).args(arguments)).map_err(fails(program))
    }

    /// Checks that the image has each library of a dynamically linked program. Scripts pass.
    pub(crate) fn check(&self, program: &Path) -> Result<(), LoaderError> {
        if !is_elf(program).map_err(fails(program))? {
            return Ok(());
        }
        let listed = run(self.command().arg("--list").arg(program)).map_err(fails(program))?;
        match self.foreign_library(&listed) {
            Some(line) => {
                let why = format!("the packages have no {}", line.trim());
                Err(fails(program)(io::Error::other(why)))
            }
            None => Ok(()),
        }
    }

    /// Returns the first line of the linker's list whose library is missing or is one of this machine: the linker searches the
    /// directories of the system last.
    fn foreign_library<'a>(&self, listed: &'a str) -> Option<&'a str> {
        let mut found = listed
            .lines()
            .filter_map(|line| Some((line, line.split_once(" => ")?.1)));
        let foreign = found.find(|(_, found)| {
            let path = Path::new(found.split(" (").next().unwrap_or_default());
            let is_own = std::env::split_paths(&self.libraries).any(|folder| path.starts_with(folder));
            !is_own && path != self.linker
        });
        foreign.map(|(line, _)| line)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.linker);
        command
            .arg("--inhibit-cache")
            .arg("--library-path")
            .arg(&self.libraries)
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("LD_PRELOAD");
        command
    }
}

fn fails(program: &Path) -> impl Fn(io::Error) -> LoaderError {
    move |source| LoaderError::Fails {
        program: program.to_owned(),
        source,
    }
}

/// Returns the dynamic linker below `lib`: a file such as `x86_64-linux-gnu/ld-linux-x86-64.so.2`.
fn linker(lib: &Path) -> io::Result<Option<PathBuf>> {
    for folder in fs::read_dir(lib)? {
        let folder = folder?;
        if !folder.file_type()?.is_dir() {
            continue;
        }
        for entry in fs::read_dir(folder.path())? {
            let entry = entry?;
            let is_linker = entry.file_name().to_string_lossy().starts_with("ld-linux");
            if is_linker && entry.file_type()?.is_file() {
                return Ok(Some(entry.path()));
            }
        }
    }
    Ok(None)
}

fn is_elf(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    fs::File::open(path)?.take(4).read_to_end(&mut start)?;
    Ok(start == ELF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_this_machine_is_not_one_of_the_image() {
        let loader = Loader {
            linker: "/packages/libc6/lib/x/ld-linux-x86-64.so.2".into(),
            libraries: "/packages/libc6/lib/x:/packages/zlib1g/lib/x".into(),
        };
        let listed = |last: &str| {
            format!(
                "\tlinux-vdso.so.1 (0x00007fff)\n\tlibz.so.1 => /packages/zlib1g/lib/x/libz.so.1 (0x1)\n\
                 \t/lib64/ld-linux-x86-64.so.2 => /packages/libc6/lib/x/ld-linux-x86-64.so.2 (0x2)\n{last}"
            )
        };
        assert_eq!(loader.foreign_library(&listed("")), None);
        for last in [
            "\tlibm.so.6 => /lib/x/libm.so.6 (0x3)",
            "\tlibm.so.6 => not found",
        ] {
            assert_eq!(loader.foreign_library(&listed(last)), Some(last));
        }
    }

    #[test]
    fn packages_without_a_c_library_have_no_linker() {
        assert!(matches!(Loader::find(&[]), Err(LoaderError::NoLinker)));
    }
}
