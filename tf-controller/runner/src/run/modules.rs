//! Digest of the modules that `init` downloaded: a remote module may move while the stack's own files stand.

use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Most files that are looked at.
const FILE_LIMIT: usize = 200_000;

/// Digest of `.terraform/modules` below the module directory; empty when nothing was downloaded.
///
/// # Errors
/// When it cannot be read.
pub(super) fn digest(module: &Path) -> std::io::Result<String> {
    let root = module.join(".terraform/modules");
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    if files.is_empty() {
        return Ok(String::new());
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let name = file
            .strip_prefix(&root)
            .unwrap_or(&file)
            .to_string_lossy()
            .into_owned();
        let bytes = match std::fs::read_link(&file) {
            Ok(target) => target.to_string_lossy().into_owned().into_bytes(),
            Err(_) => std::fs::read(&file)?,
        };
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name.as_bytes());
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(&bytes);
    }
    Ok(hex::encode(hash.finalize()))
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == ".git" || entry.file_name() == "modules.json" {
            continue; // bookkeeping of the fetch, which differs between two fetches of the same module
        }
        if files.len() >= FILE_LIMIT {
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
    fn content_counts_and_bookkeeping_does_not() {
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
        std::fs::write(modules.join("net/main.tf"), "b").unwrap();
        assert_ne!(digest(dir.path()).unwrap(), first);
    }
}
