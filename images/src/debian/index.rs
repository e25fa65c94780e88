//! The newest versions in Debian's archive, for any architecture, from package lists of their own.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::{ARCHITECTURES, DebianError, Lock, run};

/// The package sources of Debian 12; those of other suppliers on this machine do not count.
const SOURCES: &str = "/etc/apt/sources.list.d/debian.sources";

/// Returns the newest versions of packages for all architectures. `work` is for the package lists.
///
/// # Errors
/// When apt is missing or fails, or does not know a package.
pub fn newest(names: &[&str], work: &Path) -> Result<Lock, DebianError> {
    let mut lock = Lock::default();
    for architecture in ARCHITECTURES {
        let failed = |why: io::Error| DebianError::Download {
            packages: format!("the package lists of {architecture}"),
            why: why.to_string(),
        };
        let folder = work.join(architecture);
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part)).map_err(failed)?;
        }
        let options = options(architecture, &folder);
        run(Command::new("apt-get").args(&options).arg("update")).map_err(failed)?;
        for name in names {
            let show = ["show", "--no-all-versions", name];
            let shown = run(Command::new("apt-cache").args(&options).args(show)).map_err(failed)?;
            let fields = field(&shown, "Version").zip(field(&shown, "SHA256"));
            let (version, digest) = fields.ok_or_else(|| DebianError::NotDescribed {
                name: (*name).to_owned(),
                architecture: architecture.to_owned(),
            })?;
            lock.insert(architecture, name, version, digest);
        }
    }
    Ok(lock)
}

/// Returns apt's options for package lists in a folder of their own.
fn options(architecture: &str, folder: &Path) -> Vec<String> {
    let folder = folder.display();
    [
        format!("Dir::Etc::SourceList={SOURCES}"),
        "Dir::Etc::SourceParts=/dev/null".to_owned(),
        format!("Dir::State::lists={folder}/lists"),
        format!("Dir::Cache={folder}/cache"),
        "Dir::State::status=/dev/null".to_owned(),
        format!("APT::Architecture={architecture}"),
        format!("APT::Architectures={architecture}"),
    ]
    .into_iter()
    .flat_map(|option| ["-o".to_owned(), option])
    .collect()
}

/// Returns a field of a package's description.
#[must_use]
pub fn field<'a>(description: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = description.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name_at_the_start_of_a_line() {
        let text =
            "Package: git\nVersion-Note: x\nDescription: a\n Version: no\nVersion: 1:2.39.5-0+deb12u3\n";
        assert_eq!(field(text, "Version"), Some("1:2.39.5-0+deb12u3"));
        assert_eq!(field(text, "SHA256"), None);
    }
}
