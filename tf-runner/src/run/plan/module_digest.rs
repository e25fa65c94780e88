//! Digest of the modules that `init` downloaded: a remote module may change while the files of the stack do not.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::run::cli::Cli;

const MAX_FILES: usize = 200_000;

/// Adds the artifact to the digest if the modules may read it.
pub(crate) fn with_artifact(digest: &str, cli: &Cli<'_>, artifact: &str) -> String {
    let reads = cli.status.snapshot().module_reads;
    if reads.is_some_and(|reads| reads.whole_artifact) {
        format!("{digest}+{artifact}")
    } else {
        digest.to_owned()
    }
}

/// Digest of `.terraform/modules` below the module directory; empty when nothing was downloaded.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn digest(module: &Path) -> std::io::Result<String> {
    let root = module.join(".terraform/modules");
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    // The CLI's manifest. A file of that name inside a module belongs to the module.
    files.retain(|file| *file != root.join("modules.json"));
    if files.is_empty() {
        return Ok(String::new());
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let name = file
            .strip_prefix(&root)
            .unwrap_or(&file)
            .as_os_str()
            .as_encoded_bytes();
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name);
        match std::fs::read_link(&file) {
            Ok(target) => {
                let target = target.as_os_str().as_encoded_bytes();
                hash.update((target.len() as u64).to_be_bytes());
                hash.update(target);
            }
            Err(_) => hash_file(&mut hash, &File::open(&file)?)?,
        }
    }
    Ok(hex::encode(hash.finalize()))
}

/// Hashes a file's length and content, one piece at a time.
fn hash_file(hash: &mut Sha256, file: &File) -> std::io::Result<()> {
    let length = file.metadata()?.len();
    hash.update(length.to_be_bytes());
    let mut bytes = file.take(length);
    let mut piece = vec![0; 64 * 1024];
    loop {
        match bytes.read(&mut piece)? {
            0 if bytes.limit() == 0 => return Ok(()),
            0 => {
                return Err(std::io::Error::other(
                    "a file of a module changed while it was read",
                ));
            }
            count => hash.update(&piece[..count]),
        }
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == ".git" {
            continue; // differs between two fetches of the same module
        }
        if files.len() >= MAX_FILES {
            return Err(std::io::Error::other("too many files in downloaded modules"));
        }
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_changes_the_digest_and_bookkeeping_does_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(digest(dir.path()).unwrap(), "");
        let modules = dir.path().join(".terraform/modules");
        std::fs::create_dir_all(modules.join("net/.git")).unwrap();
        std::fs::write(modules.join("modules.json"), "{}").unwrap();
        assert_eq!(digest(dir.path()).unwrap(), "", "local modules only");
        std::fs::write(modules.join("net/main.tf"), "a").unwrap();
        let first = digest(dir.path()).unwrap();
        std::fs::write(modules.join("net/.git/HEAD"), "x").unwrap();
        assert_eq!(digest(dir.path()).unwrap(), first);
        std::fs::write(modules.join("modules.json"), "{\"Modules\":[]}").unwrap();
        assert_eq!(digest(dir.path()).unwrap(), first);
        std::fs::write(modules.join("net/main.tf"), "b").unwrap();
        let second = digest(dir.path()).unwrap();
        assert_ne!(second, first);
        // A module may read a file of this name as well as any other.
        std::fs::write(modules.join("net/modules.json"), "{}").unwrap();
        assert_ne!(digest(dir.path()).unwrap(), second);
    }
}
