//! What identifies a state of the CLI: its lineage, its serial, and how many resources it has.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Length limit of a lineage, in characters. The CLI writes a UUID.
const LINEAGE_LIMIT: usize = 128;
/// A member of every state.
const LINEAGE: &[u8] = b"\"lineage\"";
/// The mode of resources that the CLI creates; data sources have another.
const MANAGED: &str = "managed";

/// The summary of a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateSummary {
    /// Identifies the state from its first write on, whatever it contains later.
    pub lineage: String,
    /// Counts the writes of the state.
    pub serial: u64,
    /// Number of managed resources, each instance counted.
    pub resources: u64,
    /// Whether it has no resources, data sources or outputs.
    pub is_empty: bool,
}

/// The output of `state pull` is not a state. The message quotes nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the output of `state pull` is not a state (line {line}, column {column})")]
pub struct StateError {
    line: usize,
    column: usize,
}

#[derive(Deserialize)]
struct State {
    #[serde(default)]
    lineage: String,
    #[serde(default)]
    serial: u64,
    #[serde(default)]
    resources: Vec<Resource>,
    #[serde(default)]
    outputs: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    mode: String,
    #[serde(default)]
    instances: Vec<IgnoredAny>,
}

impl StateSummary {
    /// Parses the output of `state pull`. `None`: there is no state. The CLI may print warnings about its configuration then.
    ///
    /// # Errors
    /// The bytes are not a state.
    pub fn parse(state: &[u8]) -> Result<Option<Self>, StateError> {
        let text = state.trim_ascii();
        let may_be_state = text.starts_with(b"{") || text.windows(LINEAGE.len()).any(|part| part == LINEAGE);
        if !may_be_state {
            return Ok(None);
        }
        let state: State = serde_json::from_slice(state).map_err(|error| StateError {
            line: error.line(),
            column: error.column(),
        })?;
        let managed = state.resources.iter().filter(|resource| resource.mode == MANAGED);
        let resources = managed.map(|resource| resource.instances.len() as u64).sum();
        Ok(Some(Self {
            lineage: state.lineage.chars().take(LINEAGE_LIMIT).collect(),
            serial: state.serial,
            resources,
            is_empty: state.resources.is_empty() && state.outputs.is_empty(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_state_is_summarized_by_its_managed_resources() {
        let state = json!({ "version": 4, "serial": 7, "lineage": "l-1", "outputs": {}, "resources": [
            { "mode": "managed", "type": "a", "name": "one", "instances": [{ "attributes": { "id": "hunter2" } }, {}] },
            { "mode": "managed", "type": "a", "name": "none", "instances": [] },
            { "mode": "data", "type": "b", "name": "read", "instances": [{}] } ] });
        let expected = StateSummary {
            lineage: "l-1".into(),
            serial: 7,
            resources: 2,
            is_empty: false,
        };
        assert_eq!(
            StateSummary::parse(state.to_string().as_bytes()),
            Ok(Some(expected))
        );
    }

    #[test]
    fn a_missing_state_an_empty_state_and_no_state_are_distinguished() {
        assert_eq!(StateSummary::parse(b" \n"), Ok(None));
        let warning =
            b"\nWarning: Unable to open CLI configuration file\n\nThe file \"{x}\" does not exist.\n";
        assert_eq!(StateSummary::parse(warning), Ok(None));
        let of = |state: serde_json::Value| {
            StateSummary::parse(state.to_string().as_bytes())
                .unwrap()
                .unwrap()
        };
        let destroyed =
            of(json!({ "version": 4, "serial": 3, "lineage": "l", "outputs": {}, "resources": [] }));
        assert!(destroyed.is_empty && destroyed.serial == 3);
        let outputs =
            of(json!({ "version": 4, "serial": 1, "lineage": "l", "outputs": { "a": { "value": 1 } } }));
        assert!(!outputs.is_empty && outputs.resources == 0);
        for text in ["{ \"hunter2", "hunter2 { \"lineage\": \"l\" }"] {
            let error = StateSummary::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = StateSummary::parse(&bytes);
        }
    }
}
