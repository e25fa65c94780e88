//! The directory of the objects in a repository.

/// Returns the prefix of the paths below a directory: empty for the whole repository, otherwise with a trailing slash. The error is the
/// reason.
///
/// Paths in a tree of Git have neither `.` nor `..`, so that a directory in another form would match nothing.
pub(super) fn prefix(subdir: &str) -> Result<String, String> {
    if subdir.is_empty() {
        return Ok(String::new());
    }
    let refused = |reason: &str| Err(format!("the directory of the objects {subdir:?} {reason}"));
    if subdir.starts_with('/') {
        return refused("must be relative to the root of the repository");
    }
    let mut prefix = String::new();
    for name in subdir.split('/').filter(|name| !matches!(*name, "" | ".")) {
        if name == ".." {
            return refused("must not contain `..`");
        }
        // Git refuses this name in each tree, also in other cases.
        if name.eq_ignore_ascii_case(".git") {
            return refused("must not contain `.git`");
        }
        prefix.push_str(name);
        prefix.push('/');
    }
    if prefix.is_empty() {
        return refused("names no directory; without it the whole repository is read");
    }
    Ok(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_form() {
        for (subdir, expected) in [
            ("", ""),
            ("x", "x/"),
            ("./x", "x/"),
            ("x/", "x/"),
            ("x//./y", "x/y/"),
        ] {
            assert_eq!(prefix(subdir).as_deref(), Ok(expected), "{subdir}");
        }
    }

    #[test]
    fn a_directory_that_matches_nothing_is_refused() {
        for (subdir, reason) in [
            ("/x", "relative"),
            ("..", "`..`"),
            ("x/../y", "`..`"),
            (".git", "`.git`"),
            ("x/.GIT/y", "`.git`"),
            (".", "no directory"),
            ("./", "no directory"),
        ] {
            let error = prefix(subdir).unwrap_err();
            assert!(error.contains(reason) && error.contains(subdir), "{error}");
        }
    }
}
