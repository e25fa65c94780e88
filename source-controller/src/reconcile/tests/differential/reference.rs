//! A reference implementation of archives: a sorted walk of a work tree with its own matcher.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::ustar::entry;

pub(super) struct Pattern {
    text: String,
    scope: Vec<String>,
}

pub(super) fn lines(text: &str, scope: &[String], into: &mut Vec<Pattern>) {
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if !line.starts_with('#') && !line.trim().is_empty() {
            into.push(Pattern {
                text: line.to_owned(),
                scope: scope.to_vec(),
            });
        }
    }
}

/// Go's `filepath.Match` for one component; `None` if the pattern is malformed.
pub(super) fn glob(pattern: &[char], name: &[char]) -> Option<bool> {
    match pattern {
        [] => Some(name.is_empty()),
        ['*', rest @ ..] => (0..=name.len())
            .map(|skip| glob(rest, &name[skip..]))
            .find(|result| *result != Some(false))
            .unwrap_or(Some(false)),
        ['[', rest @ ..] => {
            let end = rest.iter().position(|c| *c == ']')?;
            let (not, set) = if rest[0] == '^' {
                (true, &rest[1..end])
            } else {
                (false, &rest[..end])
            };
            match name {
                [first, more @ ..] if set.contains(first) != not => glob(&rest[end + 1..], more),
                _ => Some(false),
            }
        }
        ['?', rest @ ..] => name
            .split_first()
            .map_or(Some(false), |(_, more)| glob(rest, more)),
        ['\\', literal, rest @ ..] | [literal, rest @ ..] => match name {
            [first, more @ ..] if first == literal => glob(rest, more),
            _ => Some(false),
        },
    }
}

pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    glob(&chars(pattern), &chars(name)) == Some(true)
}

pub(super) fn along(pattern: &[&str], path: &[String], only: bool, directory: bool) -> bool {
    match pattern {
        [] => !(path.is_empty() && only && !directory),
        ["**"] => true,
        ["**", rest @ ..] => (0..=path.len()).any(|skip| along(rest, &path[skip..], only, directory)),
        [part, ..] if part.contains("**") => false,
        [part, rest @ ..] => path
            .first()
            .is_some_and(|name| fits(part, name) && along(rest, &path[1..], only, directory)),
    }
}

/// Returns whether the pattern matches the path, and if so, whether it keeps the path.
pub(super) fn verdict(pattern: &Pattern, path: &[String], directory: bool) -> Option<bool> {
    if path.len() <= pattern.scope.len() || !path.starts_with(&pattern.scope) {
        return None;
    }
    let path = &path[pattern.scope.len()..];
    let (is_kept, text) = pattern
        .text
        .strip_prefix('!')
        .map_or((false, pattern.text.as_str()), |rest| (true, rest));
    let text = text.trim_end_matches(' ');
    let (only, text) = text.strip_suffix('/').map_or((false, text), |rest| (true, rest));
    let hit = if text.contains('/') {
        let parts: Vec<_> = text.split('/').filter(|part| !part.is_empty()).collect();
        !parts.is_empty() && along(&parts, path, only, directory)
    } else {
        let last = path.len() - 1;
        // The first matching component decides.
        path.iter()
            .position(|name| fits(text, name))
            .is_some_and(|at| !(only && at == last && !directory))
    };
    hit.then_some(is_kept)
}

pub(super) const FIRST: &str = ".git/\n.gitignore\n.gitmodules\n.gitattributes";
pub(super) const DEFAULTS: &str = "*.jpg\n*.jpeg\n*.gif\n*.png\n*.wmv\n*.flv\n*.tar.gz\n*.zip\n.github/\n.circleci/\n.travis.yml\n.gitlab-ci.yml\n\
    appveyor.yml\n.drone.yml\ncloudbuild.yaml\ncodeship-services.yml\ncodeship-steps.yml\n**/.goreleaser.yml\n**/.sops.yaml\n**/.flux.yaml";

/// Returns the children, sorted by the bytes of their names.
pub(super) fn children(directory: &Path) -> Vec<std::fs::DirEntry> {
    let mut entries: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    entries.sort_by(|one, other| one.file_name().as_bytes().cmp(other.file_name().as_bytes()));
    entries
}

pub(super) fn collect(directory: &Path, scope: &[String], own: &mut Vec<Pattern>) {
    if let Ok(text) = std::fs::read_to_string(directory.join(".sourceignore")) {
        lines(&text, scope, own);
    }
    for entry in children(directory)
        .iter()
        .filter(|entry| entry.file_type().unwrap().is_dir())
    {
        let scope = [scope, &[entry.file_name().into_string().unwrap()]].concat();
        collect(&entry.path(), &scope, own);
    }
}

/// Returns the uncompressed archive of a work tree.
pub(super) fn reference(work: &Path, spec_ignore: Option<&str>) -> Vec<u8> {
    let (mut own, mut patterns) = (Vec::new(), Vec::new());
    collect(work, &[], &mut own);
    lines(spec_ignore.unwrap_or_default(), &[], &mut own);
    lines(FIRST, &[], &mut patterns);
    if own.is_empty() {
        lines(DEFAULTS, &[], &mut patterns);
    }
    patterns.extend(own);
    let mut tar = Vec::new();
    entry(&mut tar, ".", b'5', 0o750, b"");
    walk(work, &[], &patterns, &mut tar);
    tar.resize(tar.len() + 1024, 0);
    tar
}

pub(super) fn walk(directory: &Path, at: &[String], patterns: &[Pattern], tar: &mut Vec<u8>) {
    for child in children(directory) {
        let path = [at, &[child.file_name().into_string().unwrap()]].concat();
        let metadata = std::fs::symlink_metadata(child.path()).unwrap();
        let spoken = patterns
            .iter()
            .rev()
            .find_map(|pattern| verdict(pattern, &path, metadata.is_dir()));
        let is_kept = spoken.unwrap_or(true);
        if metadata.is_dir() {
            if is_kept {
                entry(tar, &path.join("/"), b'5', 0o750, b"");
            }
            walk(&child.path(), &path, patterns, tar);
        } else if is_kept && metadata.is_file() {
            let mode = if metadata.permissions().mode() & 0o111 == 0 {
                0o600
            } else {
                0o700
            };
            entry(
                tar,
                &path.join("/"),
                b'0',
                mode,
                &std::fs::read(child.path()).unwrap(),
            );
        }
    }
}
