//! Scans a configuration file for calls of local modules and for reads of files. It does not evaluate the language: every expression
//! that is not certainly harmless widens the closure to the whole artifact.
//!
//! The controller scans the modules of an artifact, and the runner scans downloaded modules.

mod flow;
mod json;
mod native;
mod path;

use std::path::Path;

pub use flow::PathFlow;
pub use path::PathOrigin;

/// Depth limit, since the parser is recursive.
const DEPTH_LIMIT: usize = 200;
/// Limit of conditionals, which nest if they are chained.
const CONDITIONAL_LIMIT: usize = 2000;
/// Limit of `=` and `:`, since the parser compares each key of an object with all previous keys.
const KEY_LIMIT: usize = 20_000;
/// Stack of the parser thread, sufficient for the limits above.
const STACK_SIZE: usize = 64 << 20;

/// Functions with a path as first argument.
const FILE_FUNCTIONS: [&str; 14] = [
    "abspath",
    "file",
    "filebase64",
    "filebase64sha256",
    "filebase64sha512",
    "fileexists",
    "filemd5",
    "fileset",
    "filesha1",
    "filesha256",
    "filesha512",
    "pathexpand",
    "templatefile",
    "templatestring",
];

/// Functions that return a part of a text. A part of a path may leave the module directory.
const SPLITTERS: [&str; 10] = [
    "dirname",
    "regex",
    "regexall",
    "replace",
    "split",
    "strrev",
    "substr",
    "trim",
    "trimprefix",
    "trimsuffix",
];

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Sources of local modules.
    pub modules: Vec<String>,
    /// Files and directories that functions read, if their path is known.
    pub references: Vec<PathReference>,
    /// The reason to widen the closure, if there is one.
    pub wide_reason: Option<String>,
    /// A `fileset` pattern is computed, so variables must not contain `..`.
    pub has_computed_pattern: bool,
    /// The names of values with paths.
    pub flow: PathFlow,
}

/// A path that a function reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReference {
    /// Whether it is relative to the directory of the module instead of the stack.
    pub of_module: bool,
    /// The path.
    pub path: String,
    /// Whether the file is a template.
    pub is_template: bool,
    /// If the rest of the path is computed, the origin of its parts. The path is a directory then.
    pub computed: Option<PathOrigin>,
}

/// Whether a template could read files by itself.
#[must_use]
pub fn reads_files(template: &[u8]) -> bool {
    let text = String::from_utf8_lossy(template);
    let computes = text.contains("${") || text.contains("%{");
    computes && (text.contains("provider::") || FILE_FUNCTIONS.iter().any(|name| text.contains(name)))
}

impl Findings {
    /// Adds the source of a module. Only `./` and `../` are local. `init` downloads other sources, but a path of the machine may be
    /// part of the artifact.
    fn add_source(&mut self, source: &str) {
        let is_local_path = source.starts_with('/') || source.contains("file:");
        if source.starts_with("./") || source.starts_with("../") {
            self.modules.push(source.to_owned());
        } else if is_local_path && self.wide_reason.is_none() {
            let text = excerpt(source);
            self.wide_reason = Some(format!(
                "the module source {text:?} is a path outside of the artifact"
            ));
        }
    }

    /// Returns findings that widen the closure.
    #[must_use]
    pub fn wide(why: impl Into<String>) -> Self {
        Self {
            wide_reason: Some(why.into()),
            ..Self::default()
        }
    }
}

/// Scans a file. `json` selects the JSON syntax.
#[must_use]
pub fn scan(bytes: &[u8], json: bool) -> Findings {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Findings::wide("is not UTF-8");
    };
    if json {
        return json::scan(text);
    }
    if is_too_nested(text) {
        return Findings::wide("is nested too deeply to be scanned");
    }
    if text.bytes().filter(|byte| matches!(byte, b'=' | b':')).count() > KEY_LIMIT {
        return Findings::wide("has too many keys to be scanned");
    }
    let owned = text.to_owned();
    let parser = std::thread::Builder::new()
        .stack_size(STACK_SIZE)
        .spawn(move || native::scan(&owned));
    let scanned = parser.map(std::thread::JoinHandle::join);
    match scanned {
        Ok(Ok(findings)) => findings,
        Ok(Err(_)) | Err(_) => Findings::wide("could not be scanned"),
    }
}

/// Whether the nesting may exceed a limit: counts brackets, signs and question marks, even in strings and comments.
fn is_too_nested(text: &str) -> bool {
    let (mut depth, mut deepest, mut signs, mut longest) = (0_usize, 0, 0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        signs = if matches!(byte, b'!' | b'-') { signs + 1 } else { 0 };
        longest = longest.max(signs);
        deepest = deepest.max(depth);
    }
    let questions = text.bytes().filter(|byte| *byte == b'?').count();
    deepest > DEPTH_LIMIT || longest > DEPTH_LIMIT || questions > CONDITIONAL_LIMIT
}

/// Whether the CLI reads the file as configuration, by its extension.
#[must_use]
pub fn is_configuration(file: &Path) -> bool {
    const ENDINGS: [&str; 4] = [".tf", ".tofu", ".tf.json", ".tofu.json"];
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Returns the start of a text for a reason.
#[must_use]
pub fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
