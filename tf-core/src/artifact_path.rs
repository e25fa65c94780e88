//! Lexical resolution of the paths of a spec in an artifact. Unpacked artifacts have no links, so the text of a path suffices.

use std::path::{Component, Path, PathBuf};

/// Resolves a path from the root of the artifact, without `.` and `..`. A `..` at the root stays there, as in a file system.
#[must_use]
pub fn normalize(path: &str) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    clean
}

/// Resolves `path` from `folder`, without `.` and `..`. Returns `None` if it leaves the root.
#[must_use]
pub fn resolve_in(folder: &Path, path: &str) -> Option<PathBuf> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_stays_at_or_below_the_root() {
        for (path, expected) in [
            ("a/b.tfvars", "a/b.tfvars"),
            ("./a//b/../c", "a/c"),
            ("../../etc/passwd", "etc/passwd"),
            ("/etc/passwd", "etc/passwd"),
            ("a/../../..", ""),
            ("", ""),
        ] {
            assert_eq!(normalize(path), Path::new(expected), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_climbs_out(path in "(\\.\\.|\\.|/|a|\\\\|\u{0}){0,20}") {
            let all = normalize(&path);
            prop_assert!(all.components().all(|part| matches!(part, Component::Normal(_))));
        }
    }
}
