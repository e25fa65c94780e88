//! Generated files: created during the plan (an `archive_file`, for example) and needed again by its apply.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest as _, Sha256};
use sluice_tf_core::plan::store::{GeneratedFile, OmittedFile};

use crate::provider_cache::file_digest;
use crate::run::cli::PLAN_FILE;
use crate::run::lifecycle::error::RunError;
use crate::run::workdir::directory_error;

/// Maximum number of bytes of generated files that are stored with a plan.
const LIMIT: u64 = 8 * 1024 * 1024;
/// Maximum number of files with their own digest if they are too large to be stored. The others share one digest.
const MAX_DIGESTS: usize = 1000;
const MAX_ENTRIES: usize = 1_000_000;

/// Size, modification time and inode: they change with the file.
type Fingerprint = (u64, i64, i64, u64);

/// The files of a directory tree at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot(BTreeMap<PathBuf, Fingerprint>);

/// The files that were created or changed between two snapshots.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct GeneratedFiles {
    /// With their content, if they can be stored.
    pub(crate) files: Vec<GeneratedFile>,
    /// With their digests otherwise.
    pub(crate) omitted: Vec<OmittedFile>,
}

impl GeneratedFiles {
    pub(crate) const fn is_empty(&self) -> bool {
        self.files.is_empty() && self.omitted.is_empty()
    }
}

/// Takes a snapshot of a directory tree without the files of the CLI.
pub(crate) fn snapshot(root: &Path) -> Result<Snapshot, RunError> {
    let mut files = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let read = |source| directory_error("list the working directory", source);
        for entry in std::fs::read_dir(&directory).map_err(read)? {
            let entry = entry.map_err(read)?;
            let name = entry.file_name();
            if is_of_cli(&name.to_string_lossy()) || files.len() >= MAX_ENTRIES {
                continue;
            }
            let metadata = std::fs::symlink_metadata(entry.path()).map_err(read)?;
            if metadata.is_dir() {
                open.push(entry.path());
            } else if metadata.is_file() {
                let fingerprint = (
                    metadata.len(),
                    metadata.mtime(),
                    metadata.mtime_nsec(),
                    metadata.ino(),
                );
                files.insert(entry.path(), fingerprint);
            }
        }
    }
    Ok(Snapshot(files))
}

/// `.terraform/`, the plan, the dependency lock file, local state and its lock.
fn is_of_cli(name: &str) -> bool {
    matches!(
        name,
        ".terraform" | PLAN_FILE | ".terraform.lock.hcl" | "errored.tfstate" | "crash.log"
    ) || name.starts_with("terraform.tfstate")
        || name.starts_with(".terraform.tfstate")
}

/// Collects the files that are new or changed in `after`.
pub(crate) fn collect(root: &Path, before: &Snapshot, after: &Snapshot) -> Result<GeneratedFiles, RunError> {
    let changed: Vec<_> = after
        .0
        .iter()
        .filter(|(path, fingerprint)| before.0.get(*path) != Some(*fingerprint))
        .collect();
    if changed.iter().map(|(_, fingerprint)| fingerprint.0).sum::<u64>() > LIMIT {
        let changed = changed.into_iter().map(|(path, _)| path.as_path());
        let omitted = digest_all(root, changed);
        return Ok(GeneratedFiles {
            files: Vec::new(),
            omitted: omitted.map_err(|source| directory_error("read a generated file", source))?,
        });
    }
    let mut files = Vec::new();
    for (path, _) in changed {
        let read = |source| directory_error("read a generated file", source);
        let bytes = std::fs::read(path).map_err(read)?;
        let mode = std::fs::metadata(path).map_err(read)?.permissions().mode() & 0o777;
        let relative = path.strip_prefix(root).unwrap_or(path);
        files.push(GeneratedFile::new(
            relative.to_string_lossy().into_owned(),
            mode,
            &bytes,
        ));
    }
    Ok(GeneratedFiles {
        files,
        omitted: Vec::new(),
    })
}

/// Digests the files.
fn digest_all<'p>(root: &Path, changed: impl Iterator<Item = &'p Path>) -> std::io::Result<Vec<OmittedFile>> {
    let (mut named, mut rest) = (Vec::new(), None::<Sha256>);
    for path in changed {
        let content = file_digest(path)?;
        let relative = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
        if named.len() < MAX_DIGESTS {
            named.push(OmittedFile {
                path: relative.into_owned(),
                sha256: hex::encode(content),
            });
        } else {
            // The length prefix separates names.
            let rest = rest.get_or_insert_default();
            rest.update((relative.len() as u64).to_be_bytes());
            rest.update(relative.as_bytes());
            rest.update(content);
        }
    }
    named.extend(rest.map(|rest| OmittedFile {
        path: String::new(),
        sha256: hex::encode(rest.finalize()),
    }));
    Ok(named)
}

/// The path of the first omitted file that differs between two plans.
pub(crate) fn first_difference<'f>(before: &'f [OmittedFile], after: &'f [OmittedFile]) -> Option<&'f str> {
    let removed = before.iter().find(|file| !after.contains(file));
    let different = removed.or_else(|| after.iter().find(|file| !before.contains(file)));
    different.map(|file| file.path.as_str())
}

/// Writes the stored files below `root`.
pub(crate) fn restore(root: &Path, files: &[GeneratedFile]) -> Result<(), RunError> {
    use std::io::Write;
    for file in files {
        let relative = Path::new(&file.path);
        if !relative
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
        {
            return Err(RunError::PlanMismatch(format!(
                "the stored plan contains a path outside the working directory: {:?}",
                file.path
            )));
        }
        let path = root.join(relative);
        let write = |source| directory_error("write a generated file", source);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(write)?;
        }
        let bytes = file.bytes().map_err(RunError::LoadPlan)?;
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
    fn generated_files_are_collected_and_restored() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("main.tf"), "").unwrap();
        let before = snapshot(dir.path()).unwrap();
        std::fs::create_dir_all(dir.path().join("out")).unwrap();
        std::fs::create_dir_all(dir.path().join(".terraform/x")).unwrap();
        std::fs::write(dir.path().join(".terraform/x/y"), "no").unwrap();
        std::fs::write(dir.path().join("tfplan"), "no").unwrap();
        std::fs::write(dir.path().join("out/f.zip"), "zip").unwrap();
        let generated = collect(dir.path(), &before, &snapshot(dir.path()).unwrap()).unwrap();
        let names: Vec<_> = generated.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!((names, generated.omitted), (vec!["out/f.zip"], Vec::new()));
        let other = tempfile::tempdir().unwrap();
        restore(other.path(), &generated.files).unwrap();
        assert_eq!(
            std::fs::read_to_string(other.path().join("out/f.zip")).unwrap(),
            "zip"
        );
    }

    #[test]
    fn above_the_limit_only_digests_remain() {
        let dir = tempfile::tempdir().unwrap();
        let before = snapshot(dir.path()).unwrap();
        let found = || collect(dir.path(), &before, &snapshot(dir.path()).unwrap()).unwrap();
        assert!(found().is_empty());
        std::fs::File::create(dir.path().join("big"))
            .unwrap()
            .set_len(LIMIT + 1)
            .unwrap();
        std::fs::write(dir.path().join("small"), "one").unwrap();
        let one = found();
        assert!(one.files.is_empty() && !one.is_empty());
        let names: Vec<_> = one.omitted.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(names, ["big", "small"]);
        assert_eq!(one.omitted[1].sha256, hex::encode(Sha256::digest("one")));
        assert_eq!(first_difference(&one.omitted, &found().omitted), None);
        std::fs::write(dir.path().join("small"), "two").unwrap();
        assert_eq!(first_difference(&one.omitted, &found().omitted), Some("small"));
        std::fs::remove_file(dir.path().join("small")).unwrap();
        let fewer = found();
        assert_eq!(first_difference(&one.omitted, &fewer.omitted), Some("small"));
        assert_eq!(first_difference(&fewer.omitted, &one.omitted), Some("small"));
    }

    #[test]
    fn many_omitted_files_share_one_digest() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..MAX_DIGESTS + 2)
            .map(|index| dir.path().join(format!("{index:04}")))
            .collect();
        for path in &paths {
            std::fs::write(path, "one").unwrap();
        }
        let all = || digest_all(dir.path(), paths.iter().map(PathBuf::as_path)).unwrap();
        let (first, last) = (all(), paths.last().unwrap());
        assert_eq!(
            (first.len(), first[MAX_DIGESTS].path.as_str()),
            (MAX_DIGESTS + 1, "")
        );
        std::fs::write(last, "two").unwrap();
        assert_eq!(first_difference(&first, &all()), Some(""));
    }

    #[test]
    fn nothing_is_written_outside() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["../x", "/x", "a/../../x"] {
            assert!(
                restore(dir.path(), &[GeneratedFile::new(path.into(), 0o644, b"")]).is_err(),
                "{path}"
            );
        }
    }
}
