//! The execution environment of the CLI: backend arguments, CLI configuration and mapped files.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// The execution environment of the CLI, except for environment variables.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunEnvironment {
    /// `cloud` or `backendConfig.disable` is set: Sluice configures no backend. `init` must not copy a state then, and the CLI
    /// may be unable to save plans.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backend_off: bool,
    /// `-backend-config` arguments of `init`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backend_arguments: BTreeMap<String, String>,
    /// The CLI configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cli_config: Option<CliConfig>,
    /// Files to write before `init`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<MappedFile>,
    /// Identifies the location of the state: an errored state is pushed only to its own location.
    #[serde(default, skip_serializing_if = "String::is_empty", rename = "statePlace")]
    pub state_location: String,
    /// The same location as earlier versions identified it.
    #[serde(
        default,
        skip_serializing_if = "String::is_empty",
        rename = "formerStatePlace"
    )]
    pub former_state_location: String,
}

/// The CLI configuration.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CliConfig {
    /// Name of the file in the module directory.
    pub name: String,
    /// Its content.
    pub content: Content,
}

/// A file to write before `init`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MappedFile {
    /// The base of the path.
    pub location: Location,
    /// Its path, relative to the location.
    pub path: String,
    /// Its content.
    pub content: Content,
}

/// The base of the path of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Location {
    /// The home directory of the CLI.
    Home,
    /// The module directory.
    Workspace,
}

/// Bytes, serialised as base64.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Content(pub Vec<u8>);

impl From<Content> for String {
    fn from(content: Content) -> Self {
        STANDARD.encode(content.0)
    }
}

impl TryFrom<String> for Content {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        STANDARD.decode(text).map(Self).map_err(|_| "no base64")
    }
}

impl fmt::Debug for RunEnvironment {
    /// Prints no values: arguments, configuration and files hold credentials.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RunEnvironment")
            .field("backend_off", &self.backend_off)
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_are_not_printed() {
        let all = RunEnvironment {
            backend_off: true,
            backend_arguments: [("token".to_owned(), "hunter2".to_owned())].into(),
            cli_config: Some(CliConfig {
                name: "a.tfrc".into(),
                content: Content(b"hunter2".to_vec()),
            }),
            files: vec![MappedFile {
                location: Location::Home,
                path: ".ssh/key".into(),
                content: Content(vec![0, 255]),
            }],
            state_location: "x".into(),
            former_state_location: "y".into(),
        };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<RunEnvironment>(&text).unwrap(), all);
        assert!(!format!("{all:?}").contains("hunter2"));
        assert_eq!(serde_json::to_string(&RunEnvironment::default()).unwrap(), "{}");
        assert!(serde_json::from_str::<Content>("\"%\"").is_err());
    }
}
