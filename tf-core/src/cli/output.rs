//! The outputs of the root module: values from `output -json`, and names from the text of an apply.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

use serde_json::Value;
use serde_json::value::RawValue;

/// Size limit of the JSON, in bytes.
pub const LIMIT: u64 = 16 * 1024 * 1024;

/// An output of the root module. Type and value are raw JSON, which preserves long numbers.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Output {
    /// Whether the module marks it as sensitive.
    #[serde(default)]
    pub sensitive: bool,
    /// Its type in the JSON syntax of the CLI, such as `"string"` or `["list","string"]`.
    #[serde(rename = "type")]
    pub type_: Box<RawValue>,
    /// Its value.
    pub value: Box<RawValue>,
}

impl Output {
    /// Returns the value of a string output.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let is_string = self.type_.get() == "\"string\"";
        is_string
            .then(|| serde_json::from_str(self.value.get()).ok())
            .flatten()
    }

    /// Returns the numbers in the value that [`Self::json`] may round, as text.
    pub fn long_numbers(&self) -> impl Iterator<Item = &str> {
        let is_digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
        let words = self.value.get().split(move |c: char| !is_digit(c));
        words.filter(|word| word.chars().filter(char::is_ascii_digit).count() > 15)
    }

    /// Parses the value. Numbers of more than 15 digits may be rounded.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.value.get()).unwrap_or_default()
    }
}

/// The outputs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The JSON exceeds [`LIMIT`].
    #[error("the outputs are larger than {LIMIT} bytes")]
    TooLarge,
    /// The JSON is malformed. The error of the parser is omitted, since it may quote a value.
    #[error("the output of `output -json` is invalid (line {line}, column {column})")]
    Malformed {
        /// Line of the error.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// The file cannot be read.
    #[error("the output of `output -json` cannot be read")]
    Unreadable(#[from] std::io::Error),
}

/// Parses the JSON of `output -json`.
///
/// # Errors
/// The JSON exceeds [`LIMIT`], or is malformed.
pub fn parse(source: impl Read) -> Result<BTreeMap<String, Output>, OutputError> {
    let mut bytes = Vec::new();
    source.take(LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT {
        return Err(OutputError::TooLarge);
    }
    serde_json::from_slice(&bytes).map_err(|error| OutputError::Malformed {
        line: error.line(),
        column: error.column(),
    })
}

/// Size limit of the text of an apply, in bytes.
const TEXT_LIMIT: u64 = 64 * 1024 * 1024;
/// The message of a successful apply. Lines of provisioners and progress begin with an address.
const COMPLETE: &str = "Apply complete!";
/// The title of the outputs at the end: one line `name = value` each, and more lines for long values.
const TITLE: &str = "Outputs:";

/// Returns the sorted names of all outputs, including sensitive ones, from the text of an apply. Returns `None` if the text has an
/// unknown structure or is incomplete.
///
/// # Errors
/// The text cannot be read.
pub fn names_from_apply(text: impl Read) -> std::io::Result<Option<Vec<String>>> {
    let mut text = BufReader::new(text.take(TEXT_LIMIT));
    let mut section = Section::Progress;
    let mut names = Vec::new();
    let mut line = Vec::new();
    while text.read_until(b'\n', &mut line)? > 0 {
        section = section.next(String::from_utf8_lossy(&line).trim_end(), &mut names);
        line.clear();
    }
    let is_complete =
        text.into_inner().limit() > 0 && matches!(section, Section::Complete | Section::Outputs);
    names.sort_unstable();
    Ok(is_complete.then_some(names))
}

/// The section of the text of an apply.
enum Section {
    Progress,
    Complete,
    Outputs,
    /// A heredoc that ends with this word.
    Heredoc(String),
}

impl Section {
    /// Returns the section after this line.
    fn next(self, line: &str, names: &mut Vec<String>) -> Self {
        match self {
            Self::Progress if line.starts_with(COMPLETE) => Self::Complete,
            Self::Complete if line == TITLE => Self::Outputs,
            Self::Outputs => {
                let Some((name, value)) = line.split_once(" = ").filter(|(name, _)| is_identifier(name))
                else {
                    return Self::Outputs;
                };
                names.push(name.to_owned());
                match value.strip_prefix("<<") {
                    Some(word) => Self::Heredoc(word.trim_start_matches('-').to_owned()),
                    None => Self::Outputs,
                }
            }
            Self::Heredoc(word) if line.trim_start() == word => Self::Outputs,
            other => other,
        }
    }
}

/// Whether a text is an identifier.
fn is_identifier(text: &str) -> bool {
    let starts = text.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    starts && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Option<Vec<String>> {
        names_from_apply(text.as_bytes()).unwrap()
    }

    #[test]
    fn addresses_are_parsed_from_apply_output() {
        let words = "terraform_data.a (local-exec): Apply complete! Outputs:\n\nApply complete! Resources: 2 added.\n\n\
            Outputs:\n\nzone = <sensitive>\nlist = [\n  \"a = b\",\n]\ntext = <<EOT\nfake = 1\n\nOutputs:\nEOT\n\
            more = <<-EOT_\n    EOT\n    fake = 2\nEOT_\nmap = tomap({\n  \"x\" = 1\n})\n";
        assert_eq!(names(words).unwrap(), ["list", "map", "more", "text", "zone"]);
        assert_eq!(names("Apply complete! Resources: 0 added.\n").unwrap(), [""; 0]);
        for unknown in [
            "",
            "Outputs:\n\na = 1\n",
            "Apply finished.\n\nOutputs:\n\na = 1\n",
        ] {
            assert_eq!(names(unknown), None, "{unknown}");
        }
        assert_eq!(names("Apply complete!\n\nOutputs:\n\na = <<EOT\nb"), None);
    }

    #[test]
    fn types_and_values_are_read() {
        let text = r#"{"m":{"sensitive":false,"type":["object",{"a":"number"}],"value":{"a":1}},"s":{"sensitive":true,"type":"string","value":"x"}}"#;
        let outputs = parse(text.as_bytes()).unwrap();
        assert!(outputs["s"].sensitive);
        assert_eq!(outputs["m"].long_numbers().count(), 0);
        let long = r#"{"n":{"type":"dynamic","value":{"a":[12345678901234567.5,7]}}}"#;
        let long = parse(long.as_bytes()).unwrap();
        assert_eq!(
            long["n"].long_numbers().collect::<Vec<_>>(),
            ["12345678901234567.5"]
        );
        assert_eq!(outputs["m"].type_.get(), r#"["object",{"a":"number"}]"#);
    }

    #[test]
    fn a_malformed_answer_is_not_quoted() {
        let error = parse(r#"{"s": {"value": "hunter2"#.as_bytes()).unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(bytes.as_slice());
            let _ = names_from_apply(bytes.as_slice());
        }
    }
}
