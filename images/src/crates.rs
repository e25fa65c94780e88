//! The crates that are linked into the program, from `cargo tree` and the lock file.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::debian::run;

/// The package of the program.
const PROGRAM: &str = "sluice";

/// The crates cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum CratesError {
    /// Cargo or the lock file failed.
    #[error("cannot list the crates of the program: {0}")]
    Cargo(#[from] io::Error),
    /// `cargo tree` printed another form.
    #[error(
        "`cargo tree` printed {line:?}, not a name, a version and a licence: the format of this Cargo is unknown"
    )]
    Line {
        /// What it printed.
        line: String,
    },
}

/// A crate of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedCrate {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
    /// The licence that the crate declares.
    pub license: Option<String>,
    /// SHA-256 of the crate file in hexadecimal digits; `None` for crates of this workspace.
    pub digest: Option<String>,
}

/// Returns the crates of the program for this machine, without those that only run at build time, and the version of the compiler.
///
/// # Errors
/// When Cargo is missing or fails, or the lock file cannot be read.
pub fn linked(workspace: &Path) -> Result<(Vec<LinkedCrate>, String), CratesError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = run(Command::new(cargo).current_dir(workspace).args([
        "tree",
        "--locked",
        "--package",
        PROGRAM,
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}\t{l}",
    ]))?;
    let lock = std::fs::read_to_string(workspace.join("Cargo.lock"))?;
    let compiler = run(Command::new("rustc").current_dir(workspace).arg("--version"))?;
    let version = compiler.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok((parse(&tree, &lock)?, version))
}

/// Joins the tree with the digests of the lock file; sorted by name and version.
fn parse(tree: &str, lock: &str) -> Result<Vec<LinkedCrate>, CratesError> {
    let digests = digests(lock);
    let mut crates = BTreeMap::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let unknown = || CratesError::Line {
            line: line.to_owned(),
        };
        let (package, license) = line.split_once('\t').ok_or_else(unknown)?;
        let mut words = package.split(' ');
        let name = words.next().filter(|name| !name.is_empty());
        let version = words.next().and_then(|word| word.strip_prefix('v'));
        let (name, version) = name.zip(version).ok_or_else(unknown)?;
        // A repeated crate has a mark.
        let license = license.trim_end_matches("(*)").trim();
        let key = (name.to_owned(), version.to_owned());
        let digest = digests.get(&key).cloned();
        crates.entry(key).or_insert_with(|| LinkedCrate {
            name: name.to_owned(),
            version: version.to_owned(),
            // Older crates have a slash where SPDX has a word.
            license: (!license.is_empty()).then(|| license.replace(" / ", "/").replace('/', " OR ")),
            digest,
        });
    }
    Ok(crates.into_values().collect())
}

/// Returns the digests of a lock file by name and version.
fn digests(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |line: &str, key: &str| {
        let quoted = line.strip_prefix(key)?.strip_prefix(" = \"")?;
        quoted.strip_suffix('"').map(str::to_owned)
    };
    let package = |text: &str| {
        let find = |key: &str| text.lines().find_map(|line| value(line, key));
        Some(((find("name")?, find("version")?), find("checksum")?))
    };
    lock.split("[[package]]").filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"sluice\"\nversion = \"0.1.0\"\ndependencies = [\n \"one\",\n]\n\n\
         [[package]]\nname = \"one\"\nversion = \"1.0.0+2.3\"\nsource = \"registry\"\nchecksum = \"abc\"\n";

    #[test]
    fn a_crate_is_listed_once_with_licence_and_digest() {
        let tree = "sluice v0.1.0 (/src/sluice)\tApache-2.0\none v1.0.0+2.3\tMIT/Apache-2.0\none v1.0.0+2.3\tMIT/Apache-2.0 (*)\n";
        let crates = parse(tree, LOCK).unwrap();
        let shown: Vec<_> = crates
            .iter()
            .map(|one| {
                (
                    one.name.as_str(),
                    one.version.as_str(),
                    one.license.as_deref(),
                    one.digest.as_deref(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("one", "1.0.0+2.3", Some("MIT OR Apache-2.0"), Some("abc")),
                ("sluice", "0.1.0", Some("Apache-2.0"), None),
            ]
        );
    }

    #[test]
    fn another_form_is_an_error_with_the_line() {
        for line in ["sluice", "sluice 0.1.0\tMIT", "\tMIT"] {
            let error = parse(line, LOCK).unwrap_err().to_string();
            assert!(error.contains(&format!("{line:?}")), "{error}");
        }
    }

    #[test]
    fn the_program_of_this_workspace_has_its_crates_and_no_procedural_macro() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let (crates, compiler) = linked(&workspace).unwrap();
        let find = |name: &str| crates.iter().find(|one| one.name == name);
        assert!(find("sluice").unwrap().digest.is_none());
        assert_eq!(find("libgit2-sys").unwrap().digest.as_ref().unwrap().len(), 64);
        assert!(find("tokio").unwrap().license.is_some());
        for absent in ["clap_derive", "cc", "proptest", "sluice-images"] {
            assert!(find(absent).is_none(), "{absent}");
        }
        assert!(compiler.starts_with("1."), "{compiler}");
    }
}
