//! The closure: the files of an artifact that a stack reads, and their digest.
//!
//! A stack reads its module directory and, recursively, the directories of the local modules that it calls, and the files
//! that its expressions name by paths that can be read off. Where an
//! expression could reach further (a computed path, one that leaves the directory, a file that does not parse), the
//! whole artifact counts, and [`Closure::wide`] says why: too many runs are a nuisance, a missed change is a fault.

#[cfg(test)]
mod soundness;
#[cfg(test)]
mod tests;
mod tree;

pub use tree::Tree;

use sluice_tf_core::{
    place::{below, inside},
    scan::{Findings, Flow, Named, Origin, excerpt, is_configuration, reads_files, scan},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};
use tree::unreadable;

/// More local modules than any stack has.
const MODULES: usize = 1000;
/// A larger configuration file is not read for its meaning; the whole artifact counts then.
const LARGEST_SOURCE: u64 = 1 << 20;

/// More templates below one directory are not looked at; the whole artifact counts then.
const TEMPLATES: usize = 500;

/// What a stack reads of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closure {
    /// SHA-256 over paths, modes and contents.
    pub digest: [u8; 32],
    /// Number of files that count.
    pub files: usize,
    /// What counts, as directories and files from the root; empty: the whole artifact.
    pub reads: Vec<String>,
    /// Why the whole artifact counts; `None`: only the module directories do.
    pub wide: Option<String>,
    /// A path is made of variables or of the workspace: the rest holds only where none of their values leads up.
    pub given: bool,
}

/// Why there is no closure.
#[derive(Debug, thiserror::Error)]
pub enum ClosureError {
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

/// A module file that is a template: what the configuration is, is known when the stack runs.
const TEMPLATE: &str = "main.tf.tpl";

/// Reads the closure of the module at `module` of an artifact, with the variable files that the stack names. The root is above
/// everything, as in upstream: `..` stays there. A variable file that is not there is the run's to report; that it is not counts.
///
/// # Errors
/// [`ClosureError`].
pub fn read(tree: &Tree, module: &str, variable_files: &[String]) -> Result<Closure, ClosureError> {
    let start = below(module);
    if !tree.root().join(&start).is_dir() {
        return Err(ClosureError::NoModule(module.to_owned()));
    }
    let mut reach = reach(tree, &start)?;
    if reach.given && reach.wide.is_none() {
        reach.wide = leading_up(tree, &start, variable_files)?;
    }
    let mut files = BTreeMap::new();
    if reach.wide.is_some() {
        files.extend(tree.below(Path::new("")));
    } else {
        reach.paths.extend(variable_files.iter().map(|file| below(file)));
        for path in &reach.paths {
            files.extend(tree.below(path));
        }
    }
    let reads = if reach.wide.is_some() {
        Vec::new()
    } else {
        texts(&reach.paths)
    };
    Ok(Closure {
        reads,
        digest: tree::digest(&files),
        files: files.len(),
        wide: reach.wide,
        given: reach.given,
    })
}

/// A file with values of variables of which one may lead up.
fn leading_up(tree: &Tree, start: &Path, more: &[String]) -> Result<Option<String>, ClosureError> {
    let own = tree.names(start).filter(|file| is_read_by_itself(file)).cloned();
    for file in own.chain(more.iter().map(|file| below(file))) {
        let path = tree.root().join(&file);
        if !path.is_file() {
            continue;
        }
        let size = fs::metadata(&path).map_err(unreadable(&file))?.len();
        if size > LARGEST_SOURCE || leads_up(&fs::read(&path).map_err(unreadable(&file))?) {
            let why = "a path is made of variables, and this file may hold one that leads up";
            return Ok(Some(format!("{}: {why}", file.display())));
        }
    }
    Ok(None)
}

/// Whether the CLI reads the file as one of variables without being told.
fn is_read_by_itself(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let plain = name.strip_suffix(".json").unwrap_or(&name);
    plain == "terraform.tfvars" || plain.ends_with(".auto.tfvars")
}

/// Whether a value in a text of this language, or of JSON, may have a part that is `..`.
pub(super) fn leads_up(text: &[u8]) -> bool {
    let has = |part: &[u8]| text.windows(part.len()).any(|found| found == part);
    has(b"..") || has(b"\\u") || has(b"\\U")
}

/// The paths as texts; nothing, so all of the artifact, where one is no text.
fn texts(paths: &BTreeSet<PathBuf>) -> Vec<String> {
    let texts = paths.iter().map(|path| path.to_str().map(str::to_owned));
    texts.collect::<Option<_>>().unwrap_or_default()
}

/// What is reached from a module.
#[derive(Default)]
struct Reach {
    /// Module directories, and files and directories that expressions name.
    paths: BTreeSet<PathBuf>,
    /// Why that may not be all.
    wide: Option<String>,
    /// One of the paths is made of variables.
    given: bool,
}

impl Reach {
    fn wide(mut self, why: String) -> Self {
        self.wide = Some(why);
        self
    }
}

/// The paths that are reached, and why that may not be all.
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
    let (mut open, mut flow) = (vec![start.to_owned()], Flow::default());
    while let Some(folder) = open.pop() {
        for file in configuration(tree, &folder) {
            let findings = findings(tree, &file)?;
            if let Some(why) = findings.wide {
                return Ok(reach.wide(format!("{}: {why}", file.display())));
            }
            reach.given |= findings.given;
            flow.add(findings.flow, &file.display().to_string());
            for source in findings.modules {
                let target = inside(&folder, &source).filter(|target| tree.root().join(target).is_dir());
                let Some(target) = target else {
                    return Ok(reach.wide(format!(
                        "{}: module source {:?} is no directory of the artifact",
                        file.display(),
                        excerpt(&source)
                    )));
                };
                if modules.insert(target.clone()) {
                    open.push(target);
                }
            }
            for named in findings.named {
                if named.computed == Some(Origin::Given) {
                    if folder != start {
                        return Ok(reach.wide(format!(
                            "{}: a path is made of variables that another module gives",
                            file.display()
                        )));
                    }
                    reach.given = true;
                }
                match resolve(tree, &named, &folder, start)? {
                    Ok(path) => {
                        reach.paths.insert(path);
                    }
                    Err(why) => return Ok(reach.wide(format!("{}: {why}", file.display()))),
                }
            }
        }
        if modules.len() > MODULES {
            return Ok(reach.wide(format!("more than {MODULES} local modules")));
        }
    }
    reach.paths.extend(modules);
    match flow.taken_apart() {
        Some(why) => Ok(reach.wide(why)),
        None => Ok(reach),
    }
}

/// The path that an expression names, or why it cannot be followed. Paths are relative to the stack's own directory, unless
/// they begin with `path.module`.
fn resolve(
    tree: &Tree,
    named: &Named,
    folder: &Path,
    start: &Path,
) -> Result<Result<PathBuf, String>, ClosureError> {
    let base = if named.of_module { folder } else { start };
    let Some(path) = inside(base, &named.path) else {
        return Ok(Err(format!(
            "the path {:?} leads out of the artifact",
            excerpt(&named.path)
        )));
    };
    if !named.template {
        return Ok(Ok(path));
    }
    // Which one of a directory is rendered is not known: none of them may.
    for (number, (file, _)) in tree.below(&path).enumerate() {
        if number >= TEMPLATES || !is_plain(tree, file)? {
            return Ok(Err(format!(
                "the template {:?} may read files itself",
                excerpt(&named.path)
            )));
        }
    }
    Ok(Ok(path))
}

/// Whether a template reads nothing by itself.
fn is_plain(tree: &Tree, file: &Path) -> Result<bool, ClosureError> {
    let path = tree.root().join(file);
    let size = fs::metadata(&path).map_err(unreadable(file))?.len();
    Ok(size <= LARGEST_SOURCE && !reads_files(&fs::read(&path).map_err(unreadable(file))?))
}

/// The configuration files of one module directory, in order.
fn configuration(tree: &Tree, folder: &Path) -> Vec<PathBuf> {
    tree.names(folder)
        .filter(|file| is_configuration(file))
        .cloned()
        .collect()
}

fn findings(tree: &Tree, file: &Path) -> Result<Findings, ClosureError> {
    let path = tree.root().join(file);
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
