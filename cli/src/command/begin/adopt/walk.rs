//! Walks a repository, with limits, and reads the modules in it. Links are not followed.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::module::Module;
use crate::CliError;

/// Limits of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Directories below each other.
    pub(super) depth: usize,
    /// Directories and files.
    pub(super) entries: usize,
    /// Bytes of one file.
    pub(super) file: u64,
    /// Bytes of all files.
    pub(super) bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: 20,
            entries: 100_000,
            file: 1 << 20,
            bytes: 64 << 20,
        }
    }
}

/// The modules of a repository by their directory, as a path with `/` from its root; the root is empty.
#[derive(Debug, Default)]
pub(super) struct Repository {
    /// The modules.
    pub(super) modules: BTreeMap<String, Module>,
    /// What the walk left out.
    pub(super) notes: Vec<String>,
}

/// Reads the modules below a directory.
///
/// # Errors
/// The directory itself cannot be read.
pub(super) fn read(root: &Path, limits: Limits) -> Result<Repository, CliError> {
    let mut walk = Walk {
        root,
        limits,
        entries: 0,
        bytes: 0,
        repository: Repository::default(),
    };
    let mut waiting = vec![(root.to_owned(), String::new(), 0)];
    while let Some((directory, name, depth)) = waiting.pop() {
        let entries = match sorted_entries(&directory) {
            Ok(entries) => entries,
            Err(source) if directory == root => {
                return Err(CliError::File {
                    what: format!("cannot read {}", root.display()),
                    source,
                });
            }
            Err(error) => {
                walk.note(format!("{name} was not read: {error}"));
                continue;
            }
        };
        for entry in entries {
            if !walk.admits_entry() {
                return Ok(walk.repository);
            }
            let file = entry.file_name().to_string_lossy().into_owned();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !is_skipped(&file) {
                let below = join(&name, &file);
                if depth < limits.depth {
                    waiting.push((entry.path(), below, depth + 1));
                } else {
                    walk.note(format!("{below} was not read: it is too deep"));
                }
            } else if kind.is_file() {
                walk.read_file(&name, &file);
            }
        }
        walk.add_workspace(&name);
    }
    Ok(walk.repository)
}

struct Walk<'a> {
    root: &'a Path,
    limits: Limits,
    entries: usize,
    bytes: u64,
    repository: Repository,
}

impl Walk<'_> {
    fn note(&mut self, text: String) {
        self.repository.notes.push(text);
    }

    fn admits_entry(&mut self) -> bool {
        self.entries += 1;
        let (most_entries, most_bytes) = (self.limits.entries, self.limits.bytes);
        if self.entries <= most_entries && self.bytes <= most_bytes {
            return true;
        }
        self.note(format!(
            "the rest was not read: there are more than {most_entries} files or {most_bytes} bytes"
        ));
        false
    }

    /// Reads a file of a module. Others count as entries only.
    fn read_file(&mut self, directory: &str, file: &str) {
        let is_variables = ends_with_any(file, &[".tfvars", ".tfvars.json"]);
        let is_loaded = file.starts_with("terraform.tfvars") || file.contains(".auto.tfvars");
        if is_variables && !is_loaded {
            let module = self.repository.modules.get_mut(directory);
            let path = join(directory, file);
            match module {
                Some(module) => module.variable_files.push(path),
                // Files of variables are often beside the modules.
                None => self.note(format!(
                    "{path} is a file of variables in a directory without a module"
                )),
            }
        }
        if ends_with_any(file, &[".tf.json", ".tofu.json"]) {
            self.module(directory)
                .unread
                .push(format!("{file} has the JSON syntax"));
        } else if ends_with_any(file, &[".tf", ".tofu"]) {
            let path = self.path(directory).join(file);
            match self.read_text(&path) {
                Ok(text) => self.module(directory).add_file(file, &text),
                Err(error) => self.module(directory).unread.push(format!("{file}: {error}")),
            }
        }
    }

    fn read_text(&mut self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        let limit = self.limits.file;
        let count = File::open(path)?.take(limit + 1).read_to_string(&mut text)?;
        self.bytes += count as u64;
        if count as u64 > limit {
            return Err(io::Error::other(format!("it has more than {limit} bytes")));
        }
        Ok(text)
    }

    /// Reads the workspace that the CLI has selected, if the directory is a module and was initialised.
    fn add_workspace(&mut self, directory: &str) {
        if !self.repository.modules.contains_key(directory) {
            return;
        }
        let path = self.path(directory).join(".terraform/environment");
        if let Ok(text) = self.read_text(&path) {
            let name = text.trim();
            if !name.is_empty() && name != "default" {
                self.module(directory).workspace = Some(name.to_owned());
            }
        }
    }

    fn path(&self, directory: &str) -> PathBuf {
        self.root.join(directory)
    }

    fn module(&mut self, directory: &str) -> &mut Module {
        self.repository.modules.entry(directory.to_owned()).or_default()
    }
}

/// Returns the entries of a directory by name, `*.tf` before `*.tfvars`.
fn sorted_entries(directory: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(|entry| {
        let name = entry.file_name();
        (name.to_string_lossy().contains(".tfvars"), name)
    });
    Ok(entries)
}

/// Returns whether a directory has no modules of its own: hidden ones, among them `.git` and `.terraform`, and packages of Node.
fn is_skipped(name: &str) -> bool {
    name.starts_with('.') || matches!(name, "node_modules" | "terraform.tfstate.d")
}

fn ends_with_any(file: &str, endings: &[&str]) -> bool {
    endings.iter().any(|ending| file.ends_with(ending))
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() {
        name.to_owned()
    } else {
        format!("{directory}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn modules_are_found_outside_of_hidden_directories() {
        let directory = repository(&[
            ("main.tf", ""),
            ("stacks/app/main.tf", "variable \"a\" {}\n"),
            ("stacks/app/prod.tfvars", ""),
            ("stacks/app/terraform.tfvars", ""),
            ("stacks/app/.terraform/environment", "prod\n"),
            ("stacks/app/.terraform/modules/x/main.tf", ""),
            (".git/main.tf", ""),
            ("docs/readme.md", ""),
        ]);
        let found = read(directory.path(), Limits::default()).unwrap();
        let names: Vec<_> = found.modules.keys().map(String::as_str).collect();
        assert_eq!(names, ["", "stacks/app"]);
        let app = &found.modules["stacks/app"];
        assert_eq!(app.workspace.as_deref(), Some("prod"));
        assert_eq!(app.variable_files, ["stacks/app/prod.tfvars"]);
        assert_eq!(found.notes, Vec::<String>::new());
    }

    #[test]
    fn limits_are_named() {
        let directory = repository(&[("a/b/main.tf", ""), ("main.tf", "# a comment\n"), ("z.tf", "")]);
        let with = |limits: Limits| read(directory.path(), limits).unwrap();
        let deep = with(Limits {
            depth: 1,
            ..Limits::default()
        });
        assert_eq!(deep.notes, ["a/b was not read: it is too deep"]);
        let many = with(Limits {
            entries: 2,
            ..Limits::default()
        });
        assert!(
            many.notes[0].starts_with("the rest was not read"),
            "{:?}",
            many.notes
        );
        let large = with(Limits {
            file: 4,
            ..Limits::default()
        });
        assert_eq!(large.modules[""].unread, ["main.tf: it has more than 4 bytes"]);
    }

    #[test]
    fn a_directory_that_does_not_exist_is_an_error() {
        let directory = repository(&[]);
        let error = read(&directory.path().join("none"), Limits::default()).unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
    }
}
