//! The environment of the CLI (pure): what is passed on, what is dropped, what is refused, what is forced.

use std::collections::BTreeMap;

/// Variables that would change what the runner types or reads; upstream refuses them.
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

/// Dropped from an inherited environment: it moves files that an exact apply depends on, or points the kubernetes backend at
/// another API than the one the run belongs to.
fn is_misleading(name: &str) -> bool {
    name == DATA_DIRECTORY || name.starts_with("KUBE_")
}

/// True for a variable that a stack may not set.
#[must_use]
pub fn is_rejected(name: &str) -> bool {
    REJECTED.contains(&name) || name.starts_with("TF_VAR_") || name.starts_with("TF_CLI_ARGS_")
}

/// The first variable of `given` that is refused.
#[must_use]
pub fn rejected(given: &BTreeMap<String, String>) -> Option<&str> {
    given.keys().map(String::as_str).find(|name| is_rejected(name))
}

/// A stack's own setting of it counts for nothing: what `init` downloads lies beside the module, where an approval covers it.
const DATA_DIRECTORY: &str = "TF_DATA_DIR";

/// What the CLI gets: the inherited environment less refused names, then the bundle's, then what is forced.
#[must_use]
pub fn compose(
    inherited: impl IntoIterator<Item = (String, String)>,
    given: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = inherited
        .into_iter()
        .filter(|(name, _)| !is_rejected(name) && !is_misleading(name))
        .collect();
    let given = given.iter().filter(|(name, _)| *name != DATA_DIRECTORY);
    all.extend(given.map(|(name, value)| (name.clone(), value.clone())));
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
        assert_eq!(rejected(&map(&[("A", "1"), ("TF_VAR_a", "2")])), Some("TF_VAR_a"));
        assert_eq!(rejected(&map(&[("TF_TOKEN_x", "1")])), None);
    }
}
