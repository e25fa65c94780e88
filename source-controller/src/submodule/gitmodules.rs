//! `.gitmodules`: which repository belongs at which path.

use std::collections::BTreeMap;

use super::config::{self, BadLine};

/// Name of the file, at the root of a repository.
pub const FILE_NAME: &[u8] = b".gitmodules";
/// Largest file that is read, in bytes.
pub const LARGEST_FILE: u64 = 1 << 20;
/// Submodules that one file may describe.
const MOST: usize = 10_000;

/// One submodule as it is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submodule {
    /// Where it belongs, from the root of the repository.
    pub path: String,
    /// Where it comes from, as it is written: an address, or a path relative to the repository's own.
    pub url: String,
}

/// A file that describes no submodules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitmodulesError {
    /// The syntax is wrong.
    #[error(transparent)]
    Syntax(#[from] BadLine),
    /// A path that leads out of the repository, or nowhere.
    #[error("the path '{path}' of submodule '{name}' does not stay in the repository")]
    Path {
        /// Name of the submodule.
        name: String,
        /// The path.
        path: String,
    },
    /// A value that is no text.
    #[error("path or url of submodule '{name}' is not UTF-8")]
    NotText {
        /// Name of the submodule.
        name: String,
    },
    /// Too many of them.
    #[error("it describes more than {MOST} submodules")]
    TooMany,
}

/// Reads the file. A submodule without path or url is left out, as is one whose name Git takes for an attack.
///
/// Of `path` and `url` the last value counts. Nothing else does: what is fetched is the commit that the repository records,
/// whatever branch is named here.
///
/// # Errors
/// The file is malformed, or a path in it leads out of the repository.
pub fn parse(content: &[u8]) -> Result<Vec<Submodule>, GitmodulesError> {
    let mut found: BTreeMap<Vec<u8>, Described> = BTreeMap::new();
    // Where two submodules claim one path, the later one has it.
    let mut order = Vec::new();
    for variable in config::parse(content)? {
        let Some((b"submodule", Some(name), key)) = variable.parts() else {
            continue;
        };
        if !is_sound(name) {
            continue;
        }
        if !found.contains_key(name) {
            order.push(name.to_vec());
        }
        let described = found.entry(name.to_vec()).or_default();
        match key {
            b"path" => described.path = variable.value,
            b"url" => described.url = variable.value,
            _ => {}
        }
        if found.len() > MOST {
            return Err(GitmodulesError::TooMany);
        }
    }
    let mut submodules = Vec::new();
    for name in order {
        let Some(Described {
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

/// What is said about one name so far.
#[derive(Default)]
struct Described {
    path: Option<Vec<u8>>,
    url: Option<Vec<u8>>,
}

/// Git uses the name as a path below its own directory, and ignores one that would climb out of it.
fn is_sound(name: &[u8]) -> bool {
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
    fn what_git_writes_is_read() {
        let content = "[submodule \"lib\"]\n\tpath = vendor/lib\n\turl = https://h/lib.git\n\
                       [submodule \"Two\"]\n\tURL = ../two\n\tPath = two\n\tbranch = main\n\tignore = all\n";
        assert_eq!(
            read(content),
            [pair("vendor/lib", "https://h/lib.git"), pair("two", "../two")]
        );
    }

    #[test]
    fn the_last_value_counts_and_halves_are_left_out() {
        let content = "[submodule \"a\"]\npath = x\nurl = u\n[submodule \"b\"]\npath = y\n[other \"a\"]\nurl = no\n\
                       [submodule \"a\"]\nurl = v\n[submodule \"c\"]\nurl = w\npath\n";
        assert_eq!(read(content), [pair("x", "v")]);
    }

    #[test]
    fn names_that_climb_are_left_out_and_paths_that_do_are_refused() {
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
                format!("the path '{path}' of submodule 'n' does not stay in the repository")
            );
        }
        assert_eq!(read(&content("n", "a..b/...")), [pair("a..b/...", "u")]);
    }

    #[test]
    fn what_is_malformed_is_refused() {
        assert_eq!(parse(b"[submodule").unwrap_err().to_string(), "bad config line 1");
        assert_eq!(
            parse(b"[submodule \"a\"]\npath = \xff\nurl = u").unwrap_err(),
            GitmodulesError::NotText { name: "a".into() }
        );
        let many: Vec<_> = (0..=MOST)
            .map(|n| format!("[submodule \"{n}\"]\nurl = u\n"))
            .collect();
        let many = many.concat();
        assert_eq!(parse(many.as_bytes()), Err(GitmodulesError::TooMany));
    }

    proptest! {
        #[test]
        fn no_path_leads_out(name in "[^\"\\\\\0\n]{1,9}", path in "[a./]{1,9}") {
            let content = format!("[submodule \"{name}\"]\npath = \"{path}\"\nurl = u\n");
            for submodule in parse(content.as_bytes()).unwrap_or_default() {
                prop_assert!(!submodule.path.starts_with('/'));
                prop_assert!(submodule.path.split('/').all(|part| part != ".."));
            }
        }
    }
}
