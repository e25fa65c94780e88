//! The files of the user: which directory is the root of the repository, which one the module of the stack, and a copy of them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sluice_cli::CliError;
use sluice_tf_core::artifact_path;
use sluice_tf_core::workdir::create_private_directory;

/// Maximum number of files and directories that are copied.
const MAX_ENTRIES: usize = 100_000;
/// Maximum number of bytes that are copied: 1 GiB.
const MAX_BYTES: u64 = 1024 * 1024 * 1024;

/// The files of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sources {
    /// The directory that stands for the root of the repository.
    pub(super) root: PathBuf,
    /// The module, relative to the root; empty: the root.
    pub(super) module: PathBuf,
    /// Whether the path of the stack is not in the directory, so that the directory is taken for the module.
    is_module_alone: bool,
}

impl Sources {
    /// Finds the module of a stack with this `spec.path`: below the directory, or the directory itself if its own path ends so.
    ///
    /// # Errors
    /// The directory cannot be read, or the module has no configuration.
    pub(super) fn find(directory: &Path, path: &str) -> Result<Self, CliError> {
        let root = directory.canonicalize().map_err(|source| CliError::File {
            what: format!("cannot read {}", directory.display()),
            source,
        })?;
        let found = Self::of(root, artifact_path::normalize(path));
        let module = found.root.join(&found.module);
        match has_configuration(&module) {
            Ok(true) => Ok(found),
            Ok(false) => Err(CliError::Usage(format!(
                "{} has no .tf files: --local is the repository of the stack, or its module ({path:?})",
                module.display()
            ))),
            Err(source) => Err(CliError::File {
                what: format!("cannot read {}", module.display()),
                source,
            }),
        }
    }

    fn of(directory: PathBuf, path: PathBuf) -> Self {
        let is_module_alone = !directory.join(&path).is_dir();
        if !is_module_alone {
            return Self {
                root: directory,
                module: path,
                is_module_alone,
            };
        }
        if directory.ends_with(&path) {
            // Modules and variable files beside it are part of the repository.
            let above = directory.ancestors().nth(path.components().count());
            let root = above.unwrap_or(&directory).to_owned();
            return Self {
                root,
                module: path,
                is_module_alone: false,
            };
        }
        Self {
            root: directory,
            module: PathBuf::new(),
            is_module_alone,
        }
    }

    /// Says which directory is planned.
    pub(super) fn describe(&self) -> String {
        let module = self.root.join(&self.module);
        if self.is_module_alone {
            return format!(
                "Planning {}: the path of the stack is not in it, so it is the module itself.",
                module.display()
            );
        }
        format!(
            "Planning {} in the repository {}.",
            module.display(),
            self.root.display()
        )
    }

    /// Copies the files. Left out are links, as in an artifact, `.git`, and what `init` and local backends leave in a module: an `init` would
    /// copy such a state to the backend.
    ///
    /// # Errors
    /// There are too many files, or one cannot be copied.
    pub(super) async fn copy(&self, target: &Path) -> Result<(), CliError> {
        let (root, target) = (self.root.clone(), target.to_owned());
        let copied =
            tokio::task::spawn_blocking(move || copy_tree(&root, &target, MAX_ENTRIES, MAX_BYTES)).await;
        let copied = copied.unwrap_or_else(|error| Err(io::Error::other(error)));
        copied.map_err(|source| CliError::File {
            what: format!("cannot copy {}", self.root.display()),
            source,
        })
    }
}

/// Returns whether a directory has files of a configuration, or the template of one.
fn has_configuration(module: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(module)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let endings = [".tf", ".tf.json", ".tofu", ".tofu.json"];
        if name == "main.tf.tpl" || endings.iter().any(|ending| name.ends_with(ending)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether an entry is not copied.
fn is_left_out(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name == ".git" || name == ".terraform" || name.starts_with("terraform.tfstate")
}

fn copy_tree(root: &Path, target: &Path, max_entries: usize, max_bytes: u64) -> io::Result<()> {
    let make = |path: &Path| create_private_directory(path).map_err(|error| error.source);
    make(target)?;
    let (mut pending, mut entries, mut bytes) = (vec![PathBuf::new()], 0_usize, 0_u64);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let (name, kind) = (entry.file_name(), entry.file_type()?);
            if is_left_out(&name) {
                continue;
            }
            entries += 1;
            let relative = directory.join(&name);
            if kind.is_dir() {
                make(&target.join(&relative))?;
                pending.push(relative);
            } else if kind.is_file() {
                bytes = bytes.saturating_add(entry.metadata()?.len());
                check(entries, max_entries, bytes, max_bytes)?;
                fs::copy(entry.path(), target.join(&relative))?;
            }
            check(entries, max_entries, bytes, max_bytes)?;
        }
    }
    Ok(())
}

fn check(entries: usize, max_entries: usize, bytes: u64, max_bytes: u64) -> io::Result<()> {
    if entries <= max_entries && bytes <= max_bytes {
        return Ok(());
    }
    let text = format!(
        "it has more than {max_entries} files or {max_bytes} bytes; --local may also be the module of the stack alone"
    );
    Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A repository with the module `infra/net`.
    fn repository() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let module = root.path().join("infra/net");
        fs::create_dir_all(&module).unwrap();
        fs::write(module.join("main.tf"), "# net").unwrap();
        root
    }

    #[test]
    fn the_directory_is_the_repository_or_the_module() {
        let repository = repository();
        let root = repository.path().canonicalize().unwrap();
        let find = |directory: &Path, path: &str| {
            let found = Sources::find(directory, path).unwrap();
            let is_alone = found.describe().contains("the module itself");
            (found.root, found.module, is_alone)
        };
        let net = PathBuf::from("infra/net");
        assert_eq!(find(&root, "./infra/net"), (root.clone(), net.clone(), false));
        assert_eq!(
            find(&root.join("infra/net"), "infra/net/"),
            (root.clone(), net, false)
        );
        let module = root.join("infra/net");
        assert_eq!(find(&module, ""), (module.clone(), PathBuf::new(), false));
        assert_eq!(find(&module, "live/app"), (module.clone(), PathBuf::new(), true));
    }

    #[test]
    fn a_directory_without_a_configuration_is_refused() {
        let repository = repository();
        let empty = Sources::find(repository.path(), "").unwrap_err();
        assert!(empty.to_string().contains("has no .tf files"), "{empty}");
        let absent = Sources::find(&repository.path().join("absent"), "").unwrap_err();
        assert!(absent.to_string().starts_with("cannot read "), "{absent}");
    }

    #[test]
    fn states_links_and_downloads_are_not_copied() {
        let repository = repository();
        let module = repository.path().join("infra/net");
        for directory in [".terraform", "terraform.tfstate.d"] {
            fs::create_dir(module.join(directory)).unwrap();
            fs::write(module.join(directory).join("file"), "x").unwrap();
        }
        for file in [
            "terraform.tfstate",
            "terraform.tfstate.backup",
            ".terraform.lock.hcl",
        ] {
            fs::write(module.join(file), "x").unwrap();
        }
        fs::create_dir(repository.path().join(".git")).unwrap();
        symlink("/etc/passwd", module.join("link.tf")).unwrap();
        let target = tempfile::tempdir().unwrap();
        let copy = target.path().join("copy");
        copy_tree(repository.path(), &copy, 10, 100).unwrap();
        let mut copied: Vec<_> = fs::read_dir(copy.join("infra/net"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        copied.sort();
        assert_eq!(copied, [".terraform.lock.hcl", "main.tf"]);
        assert!(!copy.join(".git").exists());
        let few = target.path().join("few");
        let refused = copy_tree(repository.path(), &few, 2, 100).unwrap_err();
        assert!(refused.to_string().contains("more than 2 files"), "{refused}");
        let large = copy_tree(repository.path(), &few, 10, 3).unwrap_err();
        assert!(large.to_string().contains("3 bytes"), "{large}");
    }
}
