//! Where a path of the spec leads inside of an artifact. Both sides use it: the controller, to know what a stack reads, and
//! the run.

use std::path::{Component, Path, PathBuf};

/// The path from the artifact's root, without `.` and `..`: one that climbs out stays at the root, as if the root were that
/// of the file system. Unpacked artifacts hold no links, so the words of the path decide.
#[must_use]
pub fn below(path: &str) -> PathBuf {
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

/// `path` seen from `folder`, without `.` and `..`; `None` when it leaves the root.
#[must_use]
pub fn inside(folder: &Path, path: &str) -> Option<PathBuf> {
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
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_stays_at_or_below_the_root() {
        for (path, wanted) in [
            ("a/b.tfvars", "a/b.tfvars"),
            ("./a//b/../c", "a/c"),
            ("../../etc/passwd", "etc/passwd"),
            ("/etc/passwd", "etc/passwd"),
            ("a/../../..", ""),
            ("", ""),
        ] {
            assert_eq!(below(path), Path::new(wanted), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_climbs_out(path in "(\\.\\.|\\.|/|a|\\\\|\u{0}){0,20}") {
            let all = below(&path);
            prop_assert!(all.components().all(|part| matches!(part, Component::Normal(_))));
        }
    }
}
