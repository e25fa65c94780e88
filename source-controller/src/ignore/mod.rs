//! Which paths of a checkout stay out of its artifact: `.sourceignore` files and `spec.ignore`.
//!
//! Pure. The grammar is the one Flux users write for, which differs from git's in ways that change artifacts: the last
//! pattern that speaks about a path decides even below an excluded directory, path patterns match prefixes, and globs are
//! Go's. `archive` asks [`Rules::excludes`] for each entry; `reconcile::pack` collects the files.

mod glob;
mod pattern;

use pattern::Pattern;

/// Lines of this length (in bytes, line ending left out) and longer end the reading of their file.
const LINE_LIMIT: usize = 64 * 1024;

/// Name of the files that carry patterns for the directory they lie in.
pub const FILE_NAME: &[u8] = b".sourceignore";

/// What version control keeps for itself; always left out unless a pattern brings it back.
const VERSION_CONTROL: &[&str] = &[".git/", ".gitignore", ".gitmodules", ".gitattributes"];

/// Left out as long as nobody wrote a pattern of their own anywhere.
const DEFAULTS: &[&str] = &[
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

/// An ignore file found in the tree.
#[derive(Clone, Debug)]
pub struct IgnoreFile {
    /// Directory that the file lies in, from the root of the tree, `/` between components; empty for the root.
    pub directory: Vec<u8>,
    /// Its bytes.
    pub content: Vec<u8>,
}

/// The ordered patterns of one checkout.
#[derive(Clone, Debug)]
pub struct Rules {
    patterns: Vec<Pattern>,
}

impl Rules {
    /// Orders all patterns: version control, defaults (if there are none of the user's own), `files`, `spec_ignore`.
    ///
    /// `files` come in any order; they are applied root first and then depth first by name, whatever the caller's order.
    #[must_use]
    pub fn new(mut files: Vec<IgnoreFile>, spec_ignore: Option<&str>) -> Self {
        files.sort_by(|a, b| components(&a.directory).cmp(&components(&b.directory)));
        let mut own: Vec<Pattern> = Vec::new();
        for file in &files {
            let scope: Vec<Vec<u8>> = components(&file.directory)
                .into_iter()
                .map(<[u8]>::to_vec)
                .collect();
            own.extend(lines(&file.content).map(|line| Pattern::parse(line, &scope)));
        }
        if let Some(text) = spec_ignore {
            own.extend(lines(text.as_bytes()).map(|line| Pattern::parse(line, &[])));
        }
        let defaults: &[&str] = if own.is_empty() { DEFAULTS } else { &[] };
        let built_in = VERSION_CONTROL
            .iter()
            .chain(defaults)
            .map(|line| Pattern::parse(line.as_bytes(), &[]));
        Self {
            patterns: built_in.chain(own).collect(),
        }
    }

    /// Whether the entry stays out. `path` runs from the root of the tree, without a leading `/`; the root itself
    /// (empty, or `.`) is never excluded.
    #[must_use]
    pub fn excludes(&self, path: &[u8], directory: bool) -> bool {
        if path == b"." {
            return false;
        }
        let path = components(path);
        let verdict = self
            .patterns
            .iter()
            .rev()
            .find(|pattern| pattern.hits(&path, directory));
        verdict.is_some_and(|pattern| !pattern.include)
    }

    /// Whether everything below an excluded directory is excluded too, so that a walk need not enter it. Any pattern that
    /// hits a directory hits all below it; only a `!` pattern can bring something back.
    #[must_use]
    pub fn prunes(&self) -> bool {
        self.patterns.iter().all(|pattern| !pattern.include)
    }
}

fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|b| *b == b'/')
        .filter(|part| !part.is_empty())
        .collect()
}

/// The lines that carry a pattern: neither blank nor a comment, up to the first that is too long.
fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content
        .split(|b| *b == b'\n')
        .take_while(|line| line.len() < LINE_LIMIT)
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.starts_with(b"#") && !blank(line))
}

fn blank(line: &[u8]) -> bool {
    std::str::from_utf8(line).is_ok_and(|text| text.trim().is_empty())
}

#[cfg(test)]
mod tests;
