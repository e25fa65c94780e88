//! The environment variables of the CLI.

use std::collections::BTreeMap;

/// Variables that would change commands or output. tofu-controller rejects them as well.
const REJECTED: [&str; 12] = [
    "TF_INPUT",
    "TF_IN_AUTOMATION",
    "TF_LOG",
    "TF_LOG_CORE",
    "TF_LOG_PATH",
    "TF_LOG_PROVIDER",
    "TF_REATTACH_PROVIDERS",
    "TF_APPEND_USER_AGENT",
    "TF_WORKSPACE",
    "TF_DISABLE_PLUGIN_TLS",
    "TF_SKIP_PROVIDER_VERIFY",
    "TF_CLI_ARGS",
];

/// Whether an inherited variable is dropped: it moves files that an apply depends on, or selects another API server for the
/// `kubernetes` backend.
fn is_dropped(name: &str) -> bool {
    name == DATA_DIRECTORY || name.starts_with("KUBE_")
}

/// Whether a stack may not set the variable.
fn is_rejected(name: &str) -> bool {
    REJECTED.contains(&name) || name.starts_with("TF_VAR_") || name.starts_with("TF_CLI_ARGS_")
}

/// Returns the first variable that is rejected.
#[must_use]
pub fn find_rejected(variables: &BTreeMap<String, String>) -> Option<&str> {
    variables
        .keys()
        .map(String::as_str)
        .find(|name| is_rejected(name))
}

/// Ignored if a stack sets it: downloads must be in the module directory, where approvals cover them.
const DATA_DIRECTORY: &str = "TF_DATA_DIR";

/// Composes the variables: the permitted inherited ones, those of the stack, and the fixed ones, with increasing precedence.
#[must_use]
pub fn compose(
    inherited: impl IntoIterator<Item = (String, String)>,
    own: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = inherited
        .into_iter()
        .filter(|(name, _)| !is_rejected(name) && !is_dropped(name))
        .collect();
    let own = own.iter().filter(|(name, _)| *name != DATA_DIRECTORY);
    all.extend(own.map(|(name, value)| (name.clone(), value.clone())));
    for (name, value) in [
        ("TF_IN_AUTOMATION", "1"),
        ("TF_INPUT", "0"),
        ("CHECKPOINT_DISABLE", "1"),
        (
            "TF_APPEND_USER_AGENT",
            concat!("sluice/", env!("CARGO_PKG_VERSION")),
        ),
    ] {
        all.insert(name.to_owned(), value.to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn inherited_names_that_change_the_run_are_dropped() {
        let inherited = map(&[
            ("PATH", "/bin"),
            ("AWS_PROFILE", "me"),
            ("TF_LOG", "trace"),
            ("TF_VAR_x", "1"),
            ("TF_CLI_ARGS_plan", "-destroy"),
            ("TF_DATA_DIR", "/elsewhere"),
            ("KUBE_HOST", "https://elsewhere"),
            ("TF_TOKEN_example_com", "t"),
        ]);
        let all = compose(
            inherited,
            &map(&[("AWS_PROFILE", "stack"), ("TF_DATA_DIR", "/x")]),
        );
        let names: Vec<_> = all.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "AWS_PROFILE",
                "CHECKPOINT_DISABLE",
                "PATH",
                "TF_APPEND_USER_AGENT",
                "TF_INPUT",
                "TF_IN_AUTOMATION",
                "TF_TOKEN_example_com"
            ]
        );
        assert_eq!(all["AWS_PROFILE"], "stack");
    }

    #[test]
    fn a_stack_may_not_set_them() {
        assert_eq!(
            find_rejected(&map(&[("A", "1"), ("TF_VAR_a", "2")])),
            Some("TF_VAR_a")
        );
        assert_eq!(find_rejected(&map(&[("TF_TOKEN_x", "1")])), None);
    }
}
