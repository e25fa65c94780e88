//! Selects which paths of a checkout are excluded from its artifact: `.sourceignore` files and `spec.ignore`.
//!
//! Pure. The grammar is Flux's. It differs from Git's in ways that change artifacts: the last matching pattern decides
//! even below an excluded directory, path patterns match prefixes, and globs are Go's. `reconcile::pack` collects the
//! files and calls [`Rules::excludes`] for each entry.

mod glob;
mod pattern;

use pattern::{Pattern, Scope};

/// Lines of at least this length in bytes, without line ending, end the parsing of their file.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// Name of the files with patterns for their own directory.
pub const FILE_NAME: &[u8] = b".sourceignore";

/// Files of version control; always excluded unless a pattern includes them.
const VERSION_CONTROL_PATTERNS: &[&str] = &[".git/", ".gitignore", ".gitmodules", ".gitattributes"];

/// Default patterns, used if the user provides no pattern.
const DEFAULT_PATTERNS: &[&str] = &[
    "*.jpg",
    "*.jpeg",
    "*.gif",
    "*.png",
    "*.wmv",
    "*.flv",
    "*.tar.gz",
    "*.zip",
    ".github/",
    ".circleci/",
    ".travis.yml",
    ".gitlab-ci.yml",
    "appveyor.yml",
    ".drone.yml",
    "cloudbuild.yaml",
    "codeship-services.yml",
    "codeship-steps.yml",
    "**/.goreleaser.yml",
    "**/.sops.yaml",
    "**/.flux.yaml",
];

/// An ignore file of the tree.
#[derive(Clone, Debug)]
pub struct IgnoreFile {
    /// Directory of the file, relative to the root of the tree, with `/` between components; empty for the root.
    pub directory: Vec<u8>,
    /// Its content.
    pub content: Vec<u8>,
}

/// The ordered patterns of one checkout.
#[derive(Clone, Debug)]
pub struct Rules {
    patterns: Vec<Pattern>,
}

impl Rules {
    /// Orders all patterns: version control, defaults (without user patterns), `files`, `spec_ignore`.
    ///
    /// `files` may have any order; they are applied root first, then depth first by name.
    #[must_use]
    pub fn new(mut files: Vec<IgnoreFile>, spec_ignore: Option<&str>) -> Self {
        files.sort_by(|a, b| components(&a.directory).cmp(&components(&b.directory)));
        let mut own: Vec<Pattern> = Vec::new();
        for file in &files {
            let scope: Scope = components(&file.directory)
                .into_iter()
                .map(<[u8]>::to_vec)
                .collect();
            own.extend(pattern_lines(&file.content).map(|line| Pattern::parse(line, &scope)));
        }
        let root = Scope::default();
        if let Some(text) = spec_ignore {
            own.extend(pattern_lines(text.as_bytes()).map(|line| Pattern::parse(line, &root)));
        }
        let defaults: &[&str] = if own.is_empty() { DEFAULT_PATTERNS } else { &[] };
        let built_in = VERSION_CONTROL_PATTERNS
            .iter()
            .chain(defaults)
            .map(|line| Pattern::parse(line.as_bytes(), &root));
        Self {
            patterns: built_in.chain(own).collect(),
        }
    }

    /// Whether the entry is excluded. `path` is relative to the root of the tree; the root itself (empty, or `.`) is
    /// never excluded.
    #[must_use]
    pub fn excludes(&self, path: &[u8], directory: bool) -> bool {
        if path == b"." {
            return false;
        }
        let path = components(path);
        let decisive = self
            .patterns
            .iter()
            .rev()
            .find(|pattern| pattern.matches(&path, directory));
        decisive.is_some_and(|pattern| !pattern.include)
    }
}

/// Returns the number of patterns in an ignore file.
#[must_use]
pub fn count_patterns(content: &[u8]) -> u64 {
    pattern_lines(content).count() as u64
}

fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|b| *b == b'/')
        .filter(|part| !part.is_empty())
        .collect()
}

/// Returns the lines with a pattern: neither blank nor a comment, up to the first overlong line.
fn pattern_lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content
        .split(|b| *b == b'\n')
        .take_while(|line| line.len() < MAX_LINE_BYTES)
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.starts_with(b"#") && !is_blank(line))
}

fn is_blank(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|text| text.trim().is_empty())
}

#[cfg(test)]
mod tests;
