//! Checks the documentation against the repository: each relative link leads to a file and each anchor to a heading, the book
//! has every page, CONTRIBUTING describes every environment variable of the tests, and source files in backticks exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The pages of the repository's root.
const ROOT_PAGES: [&str; 5] = [
    "README.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    ".github/PULL_REQUEST_TEMPLATE.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All Markdown pages, by their path from the root.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut paths: Vec<PathBuf> = ROOT_PAGES.iter().map(PathBuf::from).collect();
    let mut directories = vec![PathBuf::from("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    let read = |path: PathBuf| {
        let text = fs::read_to_string(root().join(&path)).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// The lines outside of fenced blocks, without spans of code.
fn prose(text: &str) -> Vec<String> {
    let mut in_fence = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            lines.push(line.split('`').step_by(2).collect::<Vec<_>>().join("`"));
        }
    }
    lines
}

/// The anchors that GitHub and mdBook give to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_fence = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        let heading = line.trim_start_matches('#');
        if in_fence || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor: String = heading
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let is_new = anchors.insert(anchor.clone());
        assert!(is_new, "two headings have the anchor {anchor:?}");
    }
    anchors
}

/// The targets of the links in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// A relative path from the directory of `page`, without `.` and `..`.
fn resolve(page: &Path, target: &str) -> PathBuf {
    let mut resolved = page.parent().unwrap().to_owned();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => assert!(resolved.pop(), "{page:?}: {target} leaves the repository"),
            Component::Normal(name) => resolved.push(name),
            _ => {}
        }
    }
    resolved
}

#[test]
fn relative_links_and_anchors_resolve() {
    let pages = pages();
    let anchors: BTreeMap<_, _> = pages.iter().map(|(path, text)| (path, anchors(text))).collect();
    let mut broken = Vec::new();
    let mut checked = 0;
    for (page, text) in &pages {
        for line in prose(text) {
            for target in targets(&line).filter(|target| !target.contains(':')) {
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = if path.is_empty() {
                    page.clone()
                } else {
                    resolve(page, path)
                };
                let has_anchor = || anchors.get(&path).is_some_and(|anchors| anchors.contains(anchor));
                if !root().join(&path).exists() || !anchor.is_empty() && !has_anchor() {
                    broken.push(format!("{}: {target}", page.display()));
                }
                checked += 1;
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(checked > 100, "{checked}");
}

#[test]
fn the_summary_of_the_book_lists_every_page() {
    let pages = pages();
    let summary = Path::new("docs/SUMMARY.md");
    let listed: BTreeSet<_> = pages[summary]
        .lines()
        .flat_map(targets)
        .map(|target| resolve(summary, target))
        .collect();
    let absent: Vec<_> = pages
        .keys()
        .filter(|page| page.starts_with("docs") && *page != summary && !listed.contains(*page))
        .collect();
    assert!(absent.is_empty(), "{absent:?}");
}

/// The files of the workspace with this extension, without build results.
fn sources(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let is_build = path.ends_with("target") || path.join("CACHEDIR.TAG").exists();
            if !is_build {
                sources(&path, extension, found);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

#[test]
fn contributing_describes_every_variable_of_the_tests() {
    let mut files = vec![root().join("Makefile")];
    sources(&root(), "rs", &mut files);
    let mut variables = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let names = text
            .split(|c: char| !(c.is_ascii_uppercase() || c == '_'))
            .filter(|word| word.starts_with(concat!("SLUICE", "_")) && word.len() > 7);
        variables.extend(names.map(str::to_owned));
    }
    assert!(variables.len() > 5, "{variables:?}");
    let contributing = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let absent: Vec<_> = variables
        .iter()
        .filter(|name| !contributing.contains(&format!("`{name}`")))
        .collect();
    assert!(absent.is_empty(), "{absent:?}");
}

/// A page may name a file by the end of its path, as `git/fetch/search.rs`.
#[test]
fn source_files_in_backticks_exist() {
    let mut files = Vec::new();
    sources(&root(), "rs", &mut files);
    let mut absent = Vec::new();
    let mut checked = 0;
    for (page, text) in pages() {
        for word in text.split('`').skip(1).step_by(2) {
            let is_path = word.contains('/') && !word.contains(char::is_whitespace);
            let is_rust = Path::new(word)
                .extension()
                .is_some_and(|extension| extension == "rs");
            if !is_path || !is_rust {
                continue;
            }
            checked += 1;
            if !files.iter().any(|file| file.ends_with(word)) {
                absent.push(format!("{}: {word}", page.display()));
            }
        }
    }
    assert!(absent.is_empty(), "{}", absent.join("\n"));
    assert!(checked > 10, "{checked}");
}
