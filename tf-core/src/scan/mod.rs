//! Reads one configuration file for the local modules that it calls, and for anything that could read a file
//! elsewhere. It need not understand the language: whatever is not plainly harmless makes the closure wide.
//!
//! Both sides use it: the controller for the modules of an artifact, the run for those that `init` downloaded.

mod flow;
mod json;
mod native;
mod path;

pub use flow::Flow;
pub use path::Origin;

use std::path::Path;

/// Nested deeper than people write; the parser is recursive.
const DEEPEST: usize = 200;
/// Chained conditionals nest as well.
const CONDITIONALS: usize = 2000;
/// More signs that could stand behind a key are not parsed: the parser compares each key of an object with all before it.
const KEYS: usize = 20_000;
/// The parser's thread: enough for what the two bounds above let pass.
const STACK: usize = 64 << 20;

/// Functions that read the file system by their first argument.
const READERS: [&str; 14] = [
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

/// Functions that make a part of a text of it: of a path, perhaps one that leads further up.
const CUTTERS: [&str; 10] = [
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

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Sources of local modules, as written.
    pub modules: Vec<String>,
    /// Files and directories that functions read, by paths that can be read off.
    pub named: Vec<Named>,
    /// Why more than the module directories may be read.
    pub wide: Option<String>,
    /// A pattern of files is computed: it holds only where no value leads up.
    pub given: bool,
    /// Where texts with paths go by name.
    pub flow: Flow,
}

/// A path that a function reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Relative to the directory of the module that names it; otherwise to the stack's.
    pub of_module: bool,
    /// The path.
    pub path: String,
    /// What is read is a template.
    pub template: bool,
    /// The path is a directory, and something below it is read; which, is computed of this.
    pub computed: Option<Origin>,
}

/// Whether a template could read files by itself.
#[must_use]
pub fn reads_files(template: &[u8]) -> bool {
    let text = String::from_utf8_lossy(template);
    let computes = text.contains("${") || text.contains("%{");
    computes && (text.contains("provider::") || READERS.iter().any(|name| text.contains(name)))
}

impl Findings {
    /// The source of a module. Only `./` and `../` are local; everything else is fetched by `init`, and what it fetches from
    /// the machine's own files may be a part of the artifact.
    fn source(&mut self, source: &str) {
        let own = source.starts_with('/') || source.contains("file:");
        if source.starts_with("./") || source.starts_with("../") {
            self.modules.push(source.to_owned());
        } else if own && self.wide.is_none() {
            let text = excerpt(source);
            self.wide = Some(format!("the module source {text:?} is a path of the machine"));
        }
    }

    /// Everything counts, for this reason.
    #[must_use]
    pub fn wide(why: impl Into<String>) -> Self {
        Self {
            wide: Some(why.into()),
            ..Self::default()
        }
    }
}

/// Scans a file; `json` for the JSON syntax.
#[must_use]
pub fn scan(bytes: &[u8], json: bool) -> Findings {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Findings::wide("is no UTF-8 text");
    };
    if json {
        return json::scan(text);
    }
    if is_too_nested(text) {
        return Findings::wide("is nested too deeply to be read for what it names");
    }
    if text.bytes().filter(|byte| matches!(byte, b'=' | b':')).count() > KEYS {
        return Findings::wide("has too many keys to be read for what it names");
    }
    let owned = text.to_owned();
    let parser = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || native::scan(&owned));
    let scanned = parser.map(std::thread::JoinHandle::join);
    match scanned {
        Ok(Ok(findings)) => findings,
        Ok(Err(_)) | Err(_) => Findings::wide("could not be read for what it names"),
    }
}

/// An upper bound of the nesting, by brackets, signs and question marks, wherever they stand.
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
    deepest > DEEPEST || longest > DEEPEST || questions > CONDITIONALS
}

/// Whether the CLI reads the file as configuration, by the ending of its name.
#[must_use]
pub fn is_configuration(file: &Path) -> bool {
    const ENDINGS: [&str; 4] = [".tf", ".tofu", ".tf.json", ".tofu.json"];
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The beginning of what a file says, as a reason quotes it.
#[must_use]
pub fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
