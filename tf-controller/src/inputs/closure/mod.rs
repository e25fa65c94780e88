//! The closure: the files of an artifact that a stack reads, and their digest.
//!
//! A stack reads its module directory and, recursively, the directories of the local modules that it calls. Where an
//! expression could reach further (a computed path, one that leaves the directory, a file that does not parse), the
//! whole artifact counts, and [`Closure::wide`] says why: too many runs are a nuisance, a missed change is a fault.

mod scan;
#[cfg(test)]
mod tests;

use scan::{Findings, scan};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

/// More local modules than any stack has.
const MODULES: usize = 1000;
/// A larger configuration file is not read for its meaning; the whole artifact counts then.
const LARGEST_SOURCE: u64 = 1 << 20;

/// What a stack reads of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closure {
    /// SHA-256 over paths, modes and contents.
    pub digest: [u8; 32],
    /// Number of files that count.
    pub files: usize,
    /// Why the whole artifact counts; `None`: only the module directories do.
    pub wide: Option<String>,
}

/// Why there is no closure.
#[derive(Debug, thiserror::Error)]
pub enum ClosureError {
    /// `spec.path` leads out of the artifact.
    #[error("spec.path {0:?} leads out of the artifact")]
    Escapes(String),
    /// `spec.path` is not in the artifact.
    #[error("terraform path not found: {0:?} is no directory of the artifact")]
    NoModule(String),
    /// The unpacked artifact cannot be read.
    #[error("cannot read {path} of the artifact: {source}")]
    Unreadable {
        /// The path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Reads the closure of the module at `module` of the artifact that is unpacked at `root`.
///
/// # Errors
/// [`ClosureError`].
pub fn read(root: &Path, module: &str) -> Result<Closure, ClosureError> {
    let start = inside(Path::new(""), module).ok_or_else(|| ClosureError::Escapes(module.to_owned()))?;
    if !root.join(&start).is_dir() {
        return Err(ClosureError::NoModule(module.to_owned()));
    }
    let (folders, wide) = folders(root, &start)?;
    let mut files = BTreeMap::new();
    if wide.is_some() {
        collect(root, Path::new(""), &mut files)?;
    } else {
        for folder in &folders {
            collect(root, folder, &mut files)?;
        }
    }
    Ok(Closure {
        digest: digest(root, &files)?,
        files: files.len(),
        wide,
    })
}

/// The module directories that are reached, and why that may not be all.
fn folders(root: &Path, start: &Path) -> Result<(BTreeSet<PathBuf>, Option<String>), ClosureError> {
    let mut seen = BTreeSet::from([start.to_owned()]);
    let mut open = vec![start.to_owned()];
    while let Some(folder) = open.pop() {
        for file in configuration(root, &folder)? {
            let findings = findings(root, &file)?;
            if let Some(why) = findings.wide {
                return Ok((seen, Some(format!("{}: {why}", file.display()))));
            }
            for source in findings.modules {
                let Some(target) = inside(&folder, &source).filter(|target| root.join(target).is_dir())
                else {
                    let why = format!(
                        "{}: module source {source:?} is no directory of the artifact",
                        file.display()
                    );
                    return Ok((seen, Some(why)));
                };
                if seen.insert(target.clone()) {
                    open.push(target);
                }
            }
        }
        if seen.len() > MODULES {
            return Ok((seen, Some(format!("more than {MODULES} local modules"))));
        }
    }
    Ok((seen, None))
}

/// The configuration files of one module directory, in order.
fn configuration(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, ClosureError> {
    const ENDINGS: [&str; 4] = [".tf", ".tofu", ".tf.json", ".tofu.json"];
    let mut files = Vec::new();
    for name in names(root, folder)? {
        let text = name.to_string_lossy();
        if ENDINGS.iter().any(|ending| text.ends_with(ending)) && root.join(folder).join(&name).is_file() {
            files.push(folder.join(name));
        }
    }
    Ok(files)
}

fn findings(root: &Path, file: &Path) -> Result<Findings, ClosureError> {
    let path = root.join(file);
    let size = fs::metadata(&path).map_err(unreadable(file))?.len();
    if size > LARGEST_SOURCE {
        return Ok(Findings::wide(format!(
            "has {size} bytes, too many to be read for what it names"
        )));
    }
    let bytes = fs::read(&path).map_err(unreadable(file))?;
    let json = path.extension().is_some_and(|extension| extension == "json");
    Ok(scan(&bytes, json))
}

/// Every file below a folder; symlinks are none of an artifact's.
fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, bool>) -> Result<(), ClosureError> {
    for name in names(root, folder)? {
        let relative = folder.join(name);
        let metadata = fs::symlink_metadata(root.join(&relative)).map_err(unreadable(&relative))?;
        if metadata.is_dir() {
            collect(root, &relative, files)?;
        } else if metadata.is_file() {
            files.insert(relative, metadata.permissions().mode() & 0o111 != 0);
        }
    }
    Ok(())
}

fn names(root: &Path, folder: &Path) -> Result<Vec<std::ffi::OsString>, ClosureError> {
    let list = || -> io::Result<Vec<_>> {
        let mut names = fs::read_dir(root.join(folder))?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    };
    list().map_err(unreadable(folder))
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> ClosureError {
    let path = path.display().to_string();
    move |source| ClosureError::Unreadable { path, source }
}

/// Length-prefixed paths, modes and content digests, in the order of paths.
fn digest(root: &Path, files: &BTreeMap<PathBuf, bool>) -> Result<[u8; 32], ClosureError> {
    let mut all = Sha256::new();
    for (path, executable) in files {
        let mut content = Sha256::new();
        let mut file = fs::File::open(root.join(path)).map_err(unreadable(path))?;
        copy(&mut file, &mut content).map_err(unreadable(path))?;
        let name = path.as_os_str().as_encoded_bytes();
        all.update(u64::try_from(name.len()).unwrap_or(u64::MAX).to_be_bytes());
        all.update(name);
        all.update([u8::from(*executable)]);
        all.update(content.finalize());
    }
    Ok(all.finalize().into())
}

fn copy(file: &mut fs::File, hash: &mut Sha256) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match io::Read::read(file, &mut buffer)? {
            0 => return Ok(()),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// `path` seen from `folder`, without `.` and `..`; `None` when it leaves the root.
pub(super) fn inside(folder: &Path, path: &str) -> Option<PathBuf> {
    let mut clean = folder.to_owned();
    for component in Path::new(path.trim_start_matches('/')).components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !clean.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}
