//! The files of packages that belong to an image.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Package;
use crate::layer::{Layer, LayerError};

/// Of these directories only the parts in [`KEPT`] belong to an image: the rest is documentation, translations, and configuration of
/// programs that no image has.
const SELECTED: [&str; 3] = ["etc/", "usr/share/", "var/"];
const KEPT: [&str; 6] = [
    "etc/debian_version",
    "etc/host.conf",
    "etc/os-release",
    "etc/ssh/",
    "usr/share/common-licenses/",
    "usr/share/git-core/templates/",
];
/// Licences of the packages; a link leads to the directory of another package.
const DOCUMENTATION: &str = "usr/share/doc/";
/// Programs of servers and of a desktop, scripts whose interpreter or certificates no image has, and a copy of `git`. Directories end in
/// a slash.
const OMITTED: [&str; 14] = [
    "usr/bin/git-shell",
    "usr/bin/scalar",
    "usr/lib/git-core/git",
    "usr/lib/git-core/git-add--interactive",
    "usr/lib/git-core/git-daemon",
    "usr/lib/git-core/git-http-backend",
    "usr/lib/git-core/git-http-push",
    "usr/lib/git-core/git-imap-send",
    "usr/lib/git-core/git-instaweb",
    "usr/lib/git-core/git-shell",
    "usr/lib/git-core/scalar",
    "usr/lib/openssh/ssh-keysign",
    "usr/lib/systemd/",
    "usr/sbin/update-ca-certificates",
];
/// Modules of the C library for old character sets, below the directory of the architecture.
const CHARACTER_SETS: &str = "/gconv/";
/// The directories that are links to their namesakes below `usr`.
const MERGED: [&str; 4] = ["bin/", "lib/", "lib64/", "sbin/"];

/// A file or a symbolic link of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    File(PathBuf),
    Link(String),
}

/// Adds the files of packages to a layer, and their control files where scanners for vulnerabilities look for them.
///
/// # Errors
/// When a directory cannot be read, or the layer already has a file of that path.
pub fn add_files(layer: &mut Layer, packages: &[Package]) -> Result<(), LayerError> {
    for package in packages {
        let mut nodes = BTreeMap::new();
        walk(&package.files, "", &mut nodes).map_err(|source| LayerError::Read {
            path: package.files.clone(),
            source,
        })?;
        for (path, node) in nodes {
            let Some(path) = destination(&path, matches!(node, Node::Link(_))) else {
                continue;
            };
            match node {
                Node::File(source) => layer.file(&path, &source)?,
                Node::Link(target) => layer.link(&path, &target)?,
            }
        }
        layer.text(
            &format!("/var/lib/dpkg/status.d/{}", package.name),
            package.control.as_str(),
        )?;
    }
    Ok(())
}

/// Returns the absolute path in the image of a file of a package; `None` if it does not belong there.
fn destination(path: &str, is_link: bool) -> Option<String> {
    let path = if MERGED.iter().any(|directory| path.starts_with(directory)) {
        format!("usr/{path}")
    } else {
        path.to_owned()
    };
    let is_below = |all: &[&str]| all.iter().any(|part| path.starts_with(part));
    let is_license = path.strip_prefix(DOCUMENTATION).is_some_and(|rest| {
        rest.split_once('/')
            .map_or(is_link, |(_, file)| file == "copyright")
    });
    let is_selected = !is_below(&SELECTED) || is_below(&KEPT) || is_license;
    let is_omitted = OMITTED.iter().any(|omitted| {
        if omitted.ends_with('/') {
            path.starts_with(omitted)
        } else {
            path == *omitted
        }
    });
    (is_selected && !is_omitted && !path.contains(CHARACTER_SETS)).then(|| format!("/{path}"))
}

fn walk(directory: &Path, prefix: &str, nodes: &mut BTreeMap<String, Node>) -> io::Result<()> {
    let text = |name: std::ffi::OsString| {
        name.into_string()
            .map_err(|name| io::Error::other(format!("{} is not UTF-8", name.display())))
    };
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = format!("{prefix}{}", text(entry.file_name())?);
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), &format!("{path}/"), nodes)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path())?.into_os_string();
            nodes.insert(path, Node::Link(text(target)?));
        } else if kind.is_file() {
            nodes.insert(path, Node::File(entry.path()));
        } else {
            return Err(io::Error::other(format!("{path} is neither a file nor a link")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_libraries_and_licences_are_kept_below_usr() {
        for (path, kept) in [
            (
                "lib/x86_64-linux-gnu/libc.so.6",
                Some("/usr/lib/x86_64-linux-gnu/libc.so.6"),
            ),
            (
                "lib64/ld-linux-x86-64.so.2",
                Some("/usr/lib64/ld-linux-x86-64.so.2"),
            ),
            ("usr/lib/x86_64-linux-gnu/gconv/BIG5.so", None),
            ("usr/bin/git", Some("/usr/bin/git")),
            ("usr/lib/git-core/git", None),
            ("usr/lib/git-core/git-daemon", None),
            (
                "usr/lib/git-core/git-submodule",
                Some("/usr/lib/git-core/git-submodule"),
            ),
            ("usr/lib/systemd/user/ssh-agent.service", None),
            (
                "usr/share/doc/git/copyright",
                Some("/usr/share/doc/git/copyright"),
            ),
            ("usr/share/doc/git/changelog.gz", None),
            ("usr/share/doc/git/contrib/copyright", None),
            ("usr/share/locale/de/LC_MESSAGES/git.mo", None),
            (
                "usr/share/git-core/templates/description",
                Some("/usr/share/git-core/templates/description"),
            ),
            ("etc/ssh/ssh_config", Some("/etc/ssh/ssh_config")),
            ("etc/bash_completion.d/git-prompt", None),
            ("var/lib/x", None),
        ] {
            assert_eq!(destination(path, false).as_deref(), kept, "{path}");
        }
        assert_eq!(
            destination("usr/share/doc/libgcc-s1", true).as_deref(),
            Some("/usr/share/doc/libgcc-s1")
        );
    }

    #[test]
    fn a_package_gives_files_links_and_its_control_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("bin")).unwrap();
        fs::write(folder.path().join("bin/one"), "1").unwrap();
        std::os::unix::fs::symlink("one", folder.path().join("bin/two")).unwrap();
        let package = Package {
            name: "one".to_owned(),
            version: "1".to_owned(),
            architecture: "all".to_owned(),
            digest: String::new(),
            control: "Package: one\n".to_owned(),
            files: folder.path().to_owned(),
        };
        let mut layer = Layer::default();
        add_files(&mut layer, std::slice::from_ref(&package)).unwrap();
        for path in ["/usr/bin/one", "/usr/bin/two", "/var/lib/dpkg/status.d/one"] {
            assert!(layer.contains(path), "{path}");
        }
        assert!(add_files(&mut layer, &[package]).is_err());
    }
}
