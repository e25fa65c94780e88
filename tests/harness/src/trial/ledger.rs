//! The ledger of the provider: what it did, when, and for which CLI.

use std::io;

use serde::Deserialize;

/// What an entry of the ledger records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LedgerEvent {
    /// A step begins.
    Begin,
    /// A step is held or waits: an entry each second. A provider that was killed writes none.
    Working,
    /// A step has created the resource.
    Made,
    /// A step ends, with or without an error.
    End,
}

/// An entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LedgerEntry {
    /// What it records.
    pub event: LedgerEvent,
    /// The step: `read`, `plan`, `create`, `update`, `delete` or `value`.
    pub step: String,
    /// The name of the resource; empty for `value`.
    pub name: String,
    /// For [`LedgerEvent::Made`]: the computed value of the resource, which differs each time it is made.
    #[serde(default)]
    pub random: String,
    /// Unix time in nanoseconds, by the clock of the machine.
    pub at: i64,
    /// The host name of the provider: the name of the pod on a cluster.
    pub pod: String,
    /// The process that started the provider, as its pod counts.
    pub cli: i32,
    /// The process of the provider, as its pod counts.
    pub provider: i32,
}

/// Parses the lines of a ledger. The last one may be incomplete while it is written.
pub(super) fn parse(text: &str) -> io::Result<Vec<LedgerEntry>> {
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let entries: Result<Vec<_>, serde_json::Error> = lines.map(serde_json::from_str).collect();
    Ok(entries?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str =
        r#"{"event":"begin","step":"create","name":"a","at":1,"pod":"run-1","cli":7,"provider":9}"#;
    const MADE: &str = r#"{"event":"made","step":"create","name":"a","random":"f","at":2,"pod":"run-1","cli":7,"provider":9}"#;

    #[test]
    fn each_whole_line_is_an_entry() {
        let text = format!("{BEGIN}\n{MADE}\n{}", &MADE[..20]);
        let entries = parse(&text).unwrap();
        let events: Vec<_> = entries.iter().map(|entry| entry.event).collect();
        assert_eq!(events, [LedgerEvent::Begin, LedgerEvent::Made]);
        assert_eq!((entries[1].random.as_str(), entries[1].cli), ("f", 7));
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn a_ledger_line_that_does_not_parse_is_an_error() {
        assert!(parse(&format!("{BEGIN}\ncreate a\n")).is_err());
        assert!(parse(&BEGIN.replace("begin", "other").replace('}', "}\n")).is_err());
    }
}
