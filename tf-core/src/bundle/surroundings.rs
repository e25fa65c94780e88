//! What the CLI finds around the module: arguments of its backend, its own configuration, mapped files. Part of the bundle.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// What the CLI finds around the module.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Surroundings {
    /// `cloud` or `backendConfig.disable`: Sluice configures no backend, so `init` must not be told to copy a state, and
    /// the CLI may be one that cannot save its plans.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub backend_off: bool,
    /// Pairs that become `-backend-config` arguments of `init`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backend_arguments: BTreeMap<String, String>,
    /// The CLI's own configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cli_config: Option<CliConfig>,
    /// Files that are written before `init`, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<MappedFile>,
    /// Tells one place of state from another: a state that could not be written goes back to its own place only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state_place: String,
    /// The same place as states that were kept before are marked with it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub former_state_place: String,
}

/// The CLI's own configuration.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CliConfig {
    /// Name of the file in the module directory.
    pub name: String,
    /// Its content.
    pub content: Content,
}

/// A file that is written before `init`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MappedFile {
    /// What the path starts from.
    pub location: Location,
    /// Its path.
    pub path: String,
    /// Its content.
    pub content: Content,
}

/// What the path of a mapped file starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Location {
    /// The home directory of the run.
    Home,
    /// The module directory.
    Workspace,
}

/// Bytes, in base64 where they are written.
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

impl fmt::Debug for Surroundings {
    /// Names only: arguments, configuration and files are credentials.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Surroundings")
            .field("backend_off", &self.backend_off)
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_are_not_printed() {
        let all = Surroundings {
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
            state_place: "x".into(),
            former_state_place: "y".into(),
        };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Surroundings>(&text).unwrap(), all);
        assert!(!format!("{all:?}").contains("hunter2"));
        assert_eq!(serde_json::to_string(&Surroundings::default()).unwrap(), "{}");
        assert!(serde_json::from_str::<Content>("\"%\"").is_err());
    }
}
