//! `.gitmodules`: repositories and paths of submodules.

use std::collections::BTreeMap;

use super::config::{self, SyntaxError};

/// Name of the file, at the root of a repository.
pub const FILE_NAME: &[u8] = b".gitmodules";
/// Maximum size of the file in bytes.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum number of submodules in one file.
const MAX_SUBMODULES: usize = 10_000;

/// One submodule as described in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submodule {
    /// Its path from the root of the repository.
    pub path: String,
    /// Its address as written: absolute, or relative to that of the repository.
    pub url: String,
}

/// Why a file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitmodulesError {
    /// The syntax is wrong.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// A path outside of the repository, or an invalid one.
    #[error("the path '{path}' of submodule '{name}' leaves the repository")]
    Path {
        /// Name of the submodule.
        name: String,
        /// The path.
        path: String,
    },
    /// A value that is not UTF-8.
    #[error("path or url of submodule '{name}' is not UTF-8")]
    NotText {
        /// Name of the submodule.
        name: String,
    },
    /// Too many submodules.
    #[error("it describes more than {MAX_SUBMODULES} submodules")]
    TooMany,
}

/// Parses the file. Skips submodules without path or url, and those with a name that Git refuses for security.
///
/// The last value of `path` and `url` counts. Other keys are ignored: the fetched commit is the one that the repository
/// records, not the head of a branch.
/// whatever branch is named here.
///
/// # Errors
/// The file is malformed, or a path in it leaves the repository.
pub fn parse(content: &[u8]) -> Result<Vec<Submodule>, GitmodulesError> {
    let mut found: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
    // If two submodules have the same path, the later one wins.
    let mut order = Vec::new();
    for variable in config::parse(content)? {
        let Some((b"submodule", Some(name), key)) = variable.parts() else {
            continue;
        };
        if !is_safe_name(name) {
            continue;
        }
        if !found.contains_key(name) {
            order.push(name.to_vec());
        }
        let entry = found.entry(name.to_vec()).or_default();
        match key {
            b"path" => entry.path = variable.value,
            b"url" => entry.url = variable.value,
            _ => {}
        }
        if found.len() > MAX_SUBMODULES {
            return Err(GitmodulesError::TooMany);
        }
    }
    let mut submodules = Vec::new();
    for name in order {
        let Some(Entry {
            path: Some(path),
            url: Some(url),
        }) = found.remove(&name)
        else {
            continue;
        };
        let name = String::from_utf8_lossy(&name).into_owned();
        let (Ok(path), Ok(url)) = (String::from_utf8(path), String::from_utf8(url)) else {
            return Err(GitmodulesError::NotText { name });
        };
        let stays = path
            .split('/')
            .all(|part| !matches!(part, "" | "." | "..") && !part.eq_ignore_ascii_case(".git"));
        if !stays {
            return Err(GitmodulesError::Path { name, path });
        }
        submodules.push(Submodule { path, url });
    }
    Ok(submodules)
}

/// Values of one submodule.
#[derive(Default)]
struct Entry {
    path: Option<Vec<u8>>,
    url: Option<Vec<u8>>,
}

/// Git uses the name as a path below its own directory, and ignores names that would leave it.
fn is_safe_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name
            .split(|byte| matches!(byte, b'/' | b'\\'))
            .all(|part| part != b"..")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(content: &str) -> Vec<(String, String)> {
        let submodules = parse(content.as_bytes()).unwrap();
        submodules.into_iter().map(|one| (one.path, one.url)).collect()
    }

    fn pair(path: &str, url: &str) -> (String, String) {
        (path.to_owned(), url.to_owned())
    }

    #[test]
    fn files_of_git_are_parsed() {
        let content = "[submodule \"lib\"]\n\tpath = vendor/lib\n\turl = https://h/lib.git\n\
                       [submodule \"Two\"]\n\tURL = ../two\n\tPath = two\n\tbranch = main\n\tignore = all\n";
        assert_eq!(
            read(content),
            [pair("vendor/lib", "https://h/lib.git"), pair("two", "../two")]
        );
    }

    #[test]
    fn the_last_value_counts_and_incomplete_submodules_are_skipped() {
        let content = "[submodule \"a\"]\npath = x\nurl = u\n[submodule \"b\"]\npath = y\n[other \"a\"]\nurl = no\n\
                       [submodule \"a\"]\nurl = v\n[submodule \"c\"]\nurl = w\npath\n";
        assert_eq!(read(content), [pair("x", "v")]);
    }

    #[test]
    fn climbing_names_are_skipped_and_climbing_paths_are_refused() {
        let content = |name: &str, path: &str| format!("[submodule \"{name}\"]\npath = {path}\nurl = u\n");
        for name in ["..", "../x", "a/../b", "a\\\\..", ""] {
            assert_eq!(read(&content(name, "x")), [], "{name}");
        }
        for path in [
            "..",
            "../x",
            "a/../../b",
            "/abs",
            "a//b",
            ".git/hooks",
            "a/.GIT",
            ".",
        ] {
            let error = parse(content("n", path).as_bytes()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("the path '{path}' of submodule 'n' leaves the repository")
            );
        }
        assert_eq!(read(&content("n", "a..b/...")), [pair("a..b/...", "u")]);
    }

    #[test]
    fn malformed_files_are_refused() {
        assert_eq!(parse(b"[submodule").unwrap_err().to_string(), "bad config line 1");
        assert_eq!(
            parse(b"[submodule \"a\"]\npath = \xff\nurl = u").unwrap_err(),
            GitmodulesError::NotText { name: "a".into() }
        );
        let many: Vec<_> = (0..=MAX_SUBMODULES)
            .map(|n| format!("[submodule \"{n}\"]\nurl = u\n"))
            .collect();
        let many = many.concat();
        assert_eq!(parse(many.as_bytes()), Err(GitmodulesError::TooMany));
    }

    proptest! {
        #[test]
        fn no_path_leaves_the_repository(name in "[^\"\\\\\0\n]{1,9}", path in "[a./]{1,9}") {
            let content = format!("[submodule \"{name}\"]\npath = \"{path}\"\nurl = u\n");
            for submodule in parse(content.as_bytes()).unwrap_or_default() {
                prop_assert!(!submodule.path.starts_with('/'));
                prop_assert!(submodule.path.split('/').all(|part| part != ".."));
            }
        }
    }
}
