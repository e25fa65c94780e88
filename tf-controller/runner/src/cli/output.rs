//! The answer of `output -json` (pure), with a limit.

use std::collections::BTreeMap;
use std::io::Read;

/// Largest answer that is read.
pub const LIMIT: u64 = 16 * 1024 * 1024;

/// One output of the root module.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
pub struct Output {
    /// Whether the module marks it sensitive.
    #[serde(default)]
    pub sensitive: bool,
    /// Its type in the CLI's JSON form, such as `"string"` or `["list","string"]`.
    #[serde(rename = "type")]
    pub type_: serde_json::Value,
    /// Its value.
    pub value: serde_json::Value,
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn types_and_values_are_read() {
        let text = r#"{"m":{"sensitive":false,"type":["object",{"a":"number"}],"value":{"a":1}},"s":{"sensitive":true,"type":"string","value":"x"}}"#;
        let outputs = parse(text.as_bytes()).unwrap();
        assert!(outputs["s"].sensitive);
        assert_eq!(outputs["m"].type_.to_string(), r#"["object",{"a":"number"}]"#);
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
        }
    }
}
