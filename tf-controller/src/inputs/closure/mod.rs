//! The closure: the files of an artifact that a stack reads, and their digest.
//!
//! A stack reads its module directory, recursively the directories of the local modules that it calls, and the files that its
//! expressions name by literal paths. If an expression could read more (a computed path, one that leaves the directory, a file
//! that does not parse), the whole artifact counts, and [`Closure::wide`] is the reason: a needless run is better than a missed
//! change.

#[cfg(test)]
mod soundness;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use sluice_tf_core::artifact_path::{normalize, resolve_in};
use sluice_tf_core::scan::{
    Findings, PathFlow, PathOrigin, PathReference, excerpt, is_configuration, reads_files, scan,
};
pub use tree::Tree;
use tree::unreadable;

/// Maximum number of local modules; with more, the whole artifact counts.
const MAX_MODULES: usize = 1000;
/// Maximum size in bytes of a scanned file; with a larger one, the whole artifact counts.
const MAX_FILE_SIZE: u64 = 1 << 20;
/// Maximum number of scanned templates below one directory; with more, the whole artifact counts.
const MAX_TEMPLATES: usize = 500;

/// The files of an artifact that a stack reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closure {
    /// SHA-256 over paths, modes and contents.
    pub digest: [u8; 32],
    /// Number of files that count.
    pub files: usize,
    /// The directories and files that count; empty: the whole artifact.
    pub reads: Vec<String>,
    /// Why the whole artifact counts; `None`: only `reads` does.
    pub wide: Option<String>,
    /// A path is computed from variables or the workspace: valid only if none of their values contains `..`.
    pub from_variables: bool,
}

/// Why the closure cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum ClosureError {
    /// `spec.path` is not in the artifact.
    #[error("terraform path not found: {0:?} is not a directory of the artifact")]
    NoModule(String),
    /// The unpacked artifact cannot be read.
    #[error("cannot read {path} of the artifact: {source}")]
    Unreadable {
        /// The path.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A template of configuration, which is only known when the stack runs.
const TEMPLATE: &str = "main.tf.tpl";

/// Computes the closure of the module at `module`, with the stack's variable files. As upstream, `..` does not leave the root. The
/// absence of a variable file counts, and the run reports it.
///
/// # Errors
/// [`ClosureError`].
pub fn read(tree: &Tree, module: &str, variable_files: &[String]) -> Result<Closure, ClosureError> {
    let start = normalize(module);
    if !tree.root().join(&start).is_dir() {
        return Err(ClosureError::NoModule(module.to_owned()));
    }
    let mut reach = reach(tree, &start)?;
    if reach.from_variables && reach.wide.is_none() {
        reach.wide = parent_values(tree, &start, variable_files)?;
    }
    let mut files = BTreeMap::new();
    if reach.wide.is_some() {
        files.extend(tree.below(Path::new("")));
    } else {
        reach
            .paths
            .extend(variable_files.iter().map(|file| normalize(file)));
        for path in &reach.paths {
            files.extend(tree.below(path));
        }
    }
    let reads = if reach.wide.is_some() {
        Vec::new()
    } else {
        path_texts(&reach.paths)
    };
    Ok(Closure {
        reads,
        digest: tree::digest(&files),
        files: files.len(),
        wide: reach.wide,
        from_variables: reach.from_variables,
    })
}

/// Returns why the whole artifact counts: a variable file with a value that may contain `..`.
fn parent_values(tree: &Tree, start: &Path, more: &[String]) -> Result<Option<String>, ClosureError> {
    let own = tree.names(start).filter(|file| is_auto_loaded(file)).cloned();
    for file in own.chain(more.iter().map(|file| normalize(file))) {
        let path = tree.root().join(&file);
        if !path.is_file() {
            continue;
        }
        let size = fs::metadata(&path).map_err(unreadable(&file))?.len();
        if size > MAX_FILE_SIZE || may_contain_parent(&fs::read(&path).map_err(unreadable(&file))?) {
            let why = "a path contains variables, and a value in this file may lead to a parent directory";
            return Ok(Some(format!("{}: {why}", file.display())));
        }
    }
    Ok(None)
}

/// Returns whether the CLI loads the file automatically as variables.
fn is_auto_loaded(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let plain = name.strip_suffix(".json").unwrap_or(&name);
    plain == "terraform.tfvars" || plain.ends_with(".auto.tfvars")
}

/// Returns whether a value in HCL or JSON text may contain `..`, also escaped.
pub(super) fn may_contain_parent(text: &[u8]) -> bool {
    let has = |part: &[u8]| text.windows(part.len()).any(|found| found == part);
    has(b"..") || has(b"\\u") || has(b"\\U")
}

/// Returns the paths as texts; none, so the whole artifact, if one is not valid UTF-8.
fn path_texts(paths: &BTreeSet<PathBuf>) -> Vec<String> {
    let texts = paths.iter().map(|path| path.to_str().map(str::to_owned));
    texts.collect::<Option<_>>().unwrap_or_default()
}

/// The paths that a module reaches.
#[derive(Default)]
struct Reach {
    /// Module directories, and the files and directories that expressions name.
    paths: BTreeSet<PathBuf>,
    /// Why they may be incomplete.
    wide: Option<String>,
    /// A path is computed from variables.
    from_variables: bool,
}

impl Reach {
    fn wide(mut self, why: String) -> Self {
        self.wide = Some(why);
        self
    }
}

/// Collects the paths that a module reaches.
fn reach(tree: &Tree, start: &Path) -> Result<Reach, ClosureError> {
    let mut reach = Reach::default();
    if tree.root().join(start).join(TEMPLATE).exists() {
        let file = start.join(TEMPLATE);
        return Ok(reach.wide(format!(
            "{}: configuration that is rendered can name any file",
            file.display()
        )));
    }
    let mut modules = BTreeSet::from([start.to_owned()]);
    let (mut open, mut flow) = (vec![start.to_owned()], PathFlow::default());
    while let Some(folder) = open.pop() {
        for file in configuration(tree, &folder) {
            let findings = findings(tree, &file)?;
            if let Some(why) = findings.wide_reason {
                return Ok(reach.wide(format!("{}: {why}", file.display())));
            }
            reach.from_variables |= findings.has_computed_pattern;
            flow.add(findings.flow, &file.display().to_string());
            for source in findings.modules {
                let target = resolve_in(&folder, &source).filter(|target| tree.root().join(target).is_dir());
                let Some(target) = target else {
                    return Ok(reach.wide(format!(
                        "{}: module source {:?} is not a directory of the artifact",
                        file.display(),
                        excerpt(&source)
                    )));
                };
                if modules.insert(target.clone()) {
                    open.push(target);
                }
            }
            for named in findings.references {
                if named.computed == Some(PathOrigin::Variable) {
                    if folder != start {
                        return Ok(reach.wide(format!(
                            "{}: a path contains variables that another module sets",
                            file.display()
                        )));
                    }
                    reach.from_variables = true;
                }
                match resolve(tree, &named, &folder, start)? {
                    Ok(path) => {
                        reach.paths.insert(path);
                    }
                    Err(why) => return Ok(reach.wide(format!("{}: {why}", file.display()))),
                }
            }
        }
        if modules.len() > MAX_MODULES {
            return Ok(reach.wide(format!("more than {MAX_MODULES} local modules")));
        }
    }
    reach.paths.extend(modules);
    match flow.find_split_path() {
        Some(why) => Ok(reach.wide(why)),
        None => Ok(reach),
    }
}

/// Resolves the path that an expression names; the inner error is why it cannot be resolved. Paths are relative to the root
/// module's directory unless they begin with `path.module`.
fn resolve(
    tree: &Tree,
    named: &PathReference,
    folder: &Path,
    start: &Path,
) -> Result<Result<PathBuf, String>, ClosureError> {
    let base = if named.of_module { folder } else { start };
    let Some(path) = resolve_in(base, &named.path) else {
        return Ok(Err(format!(
            "the path {:?} leads out of the artifact",
            excerpt(&named.path)
        )));
    };
    if !named.is_template {
        return Ok(Ok(path));
    }
    // It is not known which file of a directory is rendered: none of them may read files.
    for (number, (file, _)) in tree.below(&path).enumerate() {
        if number >= MAX_TEMPLATES || !is_plain(tree, file)? {
            return Ok(Err(format!(
                "the template {:?} may read files itself",
                excerpt(&named.path)
            )));
        }
    }
    Ok(Ok(path))
}

/// Returns whether a template reads no files.
fn is_plain(tree: &Tree, file: &Path) -> Result<bool, ClosureError> {
    let path = tree.root().join(file);
    let size = fs::metadata(&path).map_err(unreadable(file))?.len();
    Ok(size <= MAX_FILE_SIZE && !reads_files(&fs::read(&path).map_err(unreadable(file))?))
}

/// Returns the configuration files of one module directory in order.
fn configuration(tree: &Tree, folder: &Path) -> Vec<PathBuf> {
    tree.names(folder)
        .filter(|file| is_configuration(file))
        .cloned()
        .collect()
}

fn findings(tree: &Tree, file: &Path) -> Result<Findings, ClosureError> {
    let path = tree.root().join(file);
    let size = fs::metadata(&path).map_err(unreadable(file))?.len();
    if size > MAX_FILE_SIZE {
        return Ok(Findings::wide(format!(
            "has {size} bytes and is too large to be scanned"
        )));
    }
    let bytes = fs::read(&path).map_err(unreadable(file))?;
    let json = path.extension().is_some_and(|extension| extension == "json");
    Ok(scan(&bytes, json))
}
