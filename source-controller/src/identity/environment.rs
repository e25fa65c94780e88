//! The vendors' environment variables, read once at startup.

use std::collections::BTreeMap;
use std::fmt;

/// The variables that are read, named as in the vendors' tools.
const NAMES: [&str; 22] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_STS",
    "AZURE_AUTHORITY_HOST",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    "AZURE_TENANT_ID",
];

/// The variables that are set. `Debug` prints only their names, since values may be secret.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Reads the variables of this process.
    #[must_use]
    pub(crate) fn from_process() -> Self {
        NAMES
            .into_iter()
            .filter_map(|name| Some((name, std::env::var(name).ok()?)))
            .collect()
    }

    /// Returns a variable's value, unless it is empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        debug_assert!(NAMES.contains(&name), "{name} is not read from the process");
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_unset_and_values_are_not_printed() {
        let environment: Environment = [("AWS_REGION", ""), ("AWS_SECRET_ACCESS_KEY", "hunter2")]
            .into_iter()
            .collect();
        assert_eq!(environment.get("AWS_REGION"), None);
        assert_eq!(environment.get("AWS_SECRET_ACCESS_KEY"), Some("hunter2"));
        assert!(!format!("{environment:?}").contains("hunter2"));
    }
}
