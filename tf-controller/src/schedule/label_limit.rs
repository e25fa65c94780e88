//! The limit of runs by a label, as a flag gives it. Pure.

use std::str::FromStr;

use sluice_api::terraform::is_label_value;

/// Length of a DNS name, which the prefix of a label key is.
const MAX_PREFIX: usize = 253;

/// A limit of runs at once of stacks with the same value of a label, in the form `KEY=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelLimit {
    /// The key of the label.
    pub key: String,
    /// Runs at once; 0: no limit.
    pub runs: u16,
}

/// A text is not a limit of a label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelLimitError {
    /// It has another form.
    #[error("{0:?} is not KEY=N, the key of a label and a number of runs, such as account=3")]
    Form(String),
    /// The key is not that of a label.
    #[error("{0:?} is not a key of a label, such as account or example.org/account")]
    Key(String),
}

impl FromStr for LabelLimit {
    type Err = LabelLimitError;

    fn from_str(text: &str) -> Result<Self, LabelLimitError> {
        let form = || LabelLimitError::Form(text.to_owned());
        let (key, runs) = text.split_once('=').ok_or_else(form)?;
        let runs = runs.parse().map_err(|_| form())?;
        if !is_label_key(key) {
            return Err(LabelLimitError::Key(key.to_owned()));
        }
        let key = key.to_owned();
        Ok(Self { key, runs })
    }
}

/// Returns whether a text is the key of a label: a name, after an optional prefix and a slash.
fn is_label_key(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let is_part = |part: &str| !part.is_empty() && is_label_value(part);
    let is_dns_part = |part: &str| {
        let is_dns = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-');
        is_part(part) && part.chars().all(is_dns)
    };
    is_part(name)
        && prefix.is_none_or(|prefix| prefix.len() <= MAX_PREFIX && prefix.split('.').all(is_dns_part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_limit_is_a_key_and_a_number() {
        let limit = |key: &str, runs| {
            let key = key.to_owned();
            Ok(LabelLimit { key, runs })
        };
        assert_eq!("account=3".parse(), limit("account", 3));
        assert_eq!("example.org/account=0".parse(), limit("example.org/account", 0));
        for text in [
            "account",
            "account=",
            "account=x",
            "account=-1",
            "account=prod=1",
            "=1",
            "account=70000",
        ] {
            assert!(text.parse::<LabelLimit>().is_err(), "{text}");
        }
        for key in [
            "",
            "-a",
            "a b",
            "/a",
            "a/",
            "a/b/c",
            "Example.org/a",
            "a..b/c",
            &"a".repeat(64),
        ] {
            let parsed = format!("{key}=1").parse::<LabelLimit>();
            assert_eq!(parsed, Err(LabelLimitError::Key(key.to_owned())), "{key}");
        }
    }
}
