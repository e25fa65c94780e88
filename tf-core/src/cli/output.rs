//! The outputs of the root module: the answer of `output -json`, and their names out of what an apply said (pure, with
//! limits).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

use serde_json::Value;
use serde_json::value::RawValue;

/// Largest answer that is read.
pub const LIMIT: u64 = 16 * 1024 * 1024;

/// One output of the root module. Value and type are as the CLI wrote them: a number may have more digits than any type of ours.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Output {
    /// Whether the module marks it sensitive.
    #[serde(default)]
    pub sensitive: bool,
    /// Its type in the CLI's JSON form, such as `"string"` or `["list","string"]`.
    #[serde(rename = "type")]
    pub type_: Box<RawValue>,
    /// Its value.
    pub value: Box<RawValue>,
}

impl Output {
    /// Its text, where it is one.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let is_text = self.type_.get() == "\"string\"";
        is_text
            .then(|| serde_json::from_str(self.value.get()).ok())
            .flatten()
    }

    /// The numbers in it that [`Self::json`] may round, as they stand there.
    pub fn long_numbers(&self) -> impl Iterator<Item = &str> {
        let is_digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
        let words = self.value.get().split(move |c: char| !is_digit(c));
        words.filter(|word| word.chars().filter(char::is_ascii_digit).count() > 15)
    }

    /// Its value, to look into: numbers of more than 15 digits may be rounded.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.value.get()).unwrap_or_default()
    }
}

/// Why the answer cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// It is larger than [`LIMIT`].
    #[error("the outputs are larger than {LIMIT} bytes")]
    TooLarge,
    /// It is not the JSON that the CLI promises. The parser's words are left out: they may quote a value.
    #[error("the CLI's answer to `output -json` is not understood (line {line}, column {column})")]
    Malformed {
        /// Line of the first surprise.
        line: usize,
        /// Column of the first surprise.
        column: usize,
    },
    /// The file with the answer cannot be read.
    #[error("the CLI's answer to `output -json` cannot be read")]
    Unreadable(#[from] std::io::Error),
}

/// Reads at most [`LIMIT`] bytes of JSON.
///
/// # Errors
/// When the answer is too large or malformed.
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

/// Most bytes of an apply's words that are read.
const WORDS_LIMIT: u64 = 64 * 1024 * 1024;
/// What an apply that ended well says; lines of provisioners and of progress begin with an address.
const COMPLETE: &str = "Apply complete!";
/// The title of the outputs, which stand last: a line `name = value` for each, and more lines for a long value.
const TITLE: &str = "Outputs:";

/// The sorted names of the outputs after an apply, out of what it said; nothing where that is not as it is known to be.
/// Sensitive outputs are named there too, and those that are null are no outputs any more.
///
/// # Errors
/// When the words cannot be read.
pub fn names_said(words: impl Read) -> std::io::Result<Option<Vec<String>>> {
    let mut words = BufReader::new(words.take(WORDS_LIMIT));
    let mut told = Told::Nothing;
    let mut names = Vec::new();
    let mut line = Vec::new();
    while words.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        told = told.hear(text.trim_end(), &mut names);
        line.clear();
    }
    // What was cut off, or never completed, is not the whole.
    let whole = words.into_inner().limit() > 0 && matches!(told, Told::Complete | Told::Outputs);
    names.sort_unstable();
    Ok(whole.then_some(names))
}

/// How far the words have come.
enum Told {
    Nothing,
    Complete,
    Outputs,
    /// Inside a text of several lines that ends with this word.
    Text(String),
}

impl Told {
    fn hear(self, line: &str, names: &mut Vec<String>) -> Self {
        match self {
            Self::Nothing if line.starts_with(COMPLETE) => Self::Complete,
            Self::Complete if line == TITLE => Self::Outputs,
            Self::Outputs => {
                let Some((name, value)) = line.split_once(" = ").filter(|(name, _)| is_name(name)) else {
                    return Self::Outputs;
                };
                names.push(name.to_owned());
                match value.strip_prefix("<<") {
                    Some(word) => Self::Text(word.trim_start_matches('-').to_owned()),
                    None => Self::Outputs,
                }
            }
            Self::Text(word) if line.trim_start() == word => Self::Outputs,
            other => other,
        }
    }
}

/// An identifier of the language.
fn is_name(text: &str) -> bool {
    let begins = text.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    begins && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(words: &str) -> Option<Vec<String>> {
        names_said(words.as_bytes()).unwrap()
    }

    #[test]
    fn names_are_read_out_of_what_an_apply_says() {
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
            let _ = names_said(bytes.as_slice());
        }
    }
}
