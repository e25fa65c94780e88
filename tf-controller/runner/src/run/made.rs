//! Files that planning makes (an `archive_file`, for example) and that the apply of the plan needs again.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use super::error::RunError;
use super::workdir::failed;
use crate::cli::argv::PLAN_FILE;
use crate::plan::store::MadeFile;

/// Most bytes of made files that are stored with a plan.
const LIMIT: u64 = 8 * 1024 * 1024;
/// Most entries that are looked at.
const ENTRY_LIMIT: usize = 1_000_000;

/// What tells a file changed.
type Mark = (u64, i64, i64, u64);

/// The files of a directory tree at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot(BTreeMap<PathBuf, Mark>);

/// The files that were made between two moments.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) files: Vec<MadeFile>,
    /// They are more than can be stored.
    pub(super) omitted: bool,
}

/// Looks at a tree, without what the CLI keeps for itself.
pub(super) fn snapshot(root: &Path) -> Result<Snapshot, RunError> {
    let mut files = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let read = |source| failed("look at the working directory", source);
        for entry in std::fs::read_dir(&directory).map_err(read)? {
            let entry = entry.map_err(read)?;
            let name = entry.file_name();
            if is_the_clis(&name.to_string_lossy()) || files.len() >= ENTRY_LIMIT {
                continue;
            }
            let metadata = std::fs::symlink_metadata(entry.path()).map_err(read)?;
            if metadata.is_dir() {
                open.push(entry.path());
            } else if metadata.is_file() {
                let mark = (
                    metadata.len(),
                    metadata.mtime(),
                    metadata.mtime_nsec(),
                    metadata.ino(),
                );
                files.insert(entry.path(), mark);
            }
        }
    }
    Ok(Snapshot(files))
}

/// `.terraform/`, the plan, the provider lock, local state and its lock.
fn is_the_clis(name: &str) -> bool {
    matches!(
        name,
        ".terraform" | PLAN_FILE | ".terraform.lock.hcl" | "errored.tfstate" | "crash.log"
    ) || name.starts_with("terraform.tfstate")
        || name.starts_with(".terraform.tfstate")
}

/// The files that are new or changed in `after`, with their bytes, as far as they are small enough to be stored.
pub(super) fn made(root: &Path, before: &Snapshot, after: &Snapshot) -> Result<Made, RunError> {
    let changed: Vec<_> = after
        .0
        .iter()
        .filter(|(path, mark)| before.0.get(*path) != Some(*mark))
        .collect();
    if changed.iter().map(|(_, mark)| mark.0).sum::<u64>() > LIMIT {
        return Ok(Made {
            files: Vec::new(),
            omitted: true,
        });
    }
    let mut files = Vec::new();
    for (path, _) in changed {
        let read = |source| failed("read a file that planning made", source);
        let bytes = std::fs::read(path).map_err(read)?;
        let mode = std::fs::metadata(path).map_err(read)?.permissions().mode() & 0o777;
        let relative = path.strip_prefix(root).unwrap_or(path);
        files.push(MadeFile::new(
            relative.to_string_lossy().into_owned(),
            mode,
            &bytes,
        ));
    }
    Ok(Made {
        files,
        omitted: false,
    })
}

/// Writes them back below `root`.
pub(super) fn restore(root: &Path, files: &[MadeFile]) -> Result<(), RunError> {
    use std::io::Write;
    for file in files {
        let relative = Path::new(&file.path);
        if !relative
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
        {
            return Err(RunError::NotExact(format!(
                "the stored plan names a file outside: {:?}",
                file.path
            )));
        }
        let path = root.join(relative);
        let write = |source| failed("write a file that planning made", source);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(write)?;
        }
        let bytes = file.bytes().map_err(RunError::Load)?;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(file.mode);
        options
            .open(&path)
            .and_then(|mut open| open.write_all(&bytes))
            .map_err(write)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_planning_made_is_found_and_put_back() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("main.tf"), "").unwrap();
        let before = snapshot(dir.path()).unwrap();
        std::fs::create_dir_all(dir.path().join("out")).unwrap();
        std::fs::create_dir_all(dir.path().join(".terraform/x")).unwrap();
        std::fs::write(dir.path().join(".terraform/x/y"), "no").unwrap();
        std::fs::write(dir.path().join("tfplan"), "no").unwrap();
        std::fs::write(dir.path().join("out/f.zip"), "zip").unwrap();
        let made = made(dir.path(), &before, &snapshot(dir.path()).unwrap()).unwrap();
        let names: Vec<_> = made.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!((names, made.omitted), (vec!["out/f.zip"], false));
        let other = tempfile::tempdir().unwrap();
        restore(other.path(), &made.files).unwrap();
        assert_eq!(
            std::fs::read_to_string(other.path().join("out/f.zip")).unwrap(),
            "zip"
        );
    }

    #[test]
    fn too_much_is_left_out_and_said_so() {
        let dir = tempfile::tempdir().unwrap();
        let before = snapshot(dir.path()).unwrap();
        std::fs::File::create(dir.path().join("big"))
            .unwrap()
            .set_len(LIMIT + 1)
            .unwrap();
        let made = made(dir.path(), &before, &snapshot(dir.path()).unwrap()).unwrap();
        assert!(made.omitted && made.files.is_empty());
    }

    #[test]
    fn nothing_is_written_outside() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../x", "/x", "a/../../x"] {
            assert!(
                restore(dir.path(), &[MadeFile::new(path.into(), 0o644, b"")]).is_err(),
                "{path}"
            );
        }
    }
}
