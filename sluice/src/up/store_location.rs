//! Where the objects of `sluice up` are.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sluice_embedded::{GitOptions, Store, StoreError};

/// Where the objects are.
#[derive(clap::Args, Clone, Debug)]
pub struct StoreArgs {
    /// Keep the objects as YAML files on a branch of a bare Git repository: git:PATH or git:PATH#BRANCH. Secrets, Leases, Events and runs stay
    /// in the state directory.
    #[arg(long, value_name = "STORE", value_parser = parse)]
    pub store: Option<StoreLocation>,
    /// Directory of the objects in the repository of --store.
    #[arg(long, value_name = "DIR", requires = "store")]
    pub subdir: Option<String>,
    /// How often commits of others are looked for with --store.
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "store",
        value_parser = sluice_runtime::args::duration)]
    pub interval: Duration,
}

/// A branch of a bare repository on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLocation {
    /// Directory of the repository.
    pub repository: PathBuf,
    /// Name of the branch.
    pub branch: String,
}

/// Parses `git:PATH[#BRANCH]`; the default branch is `main`.
///
/// # Errors
/// If the text has another form, or names a repository on another machine.
fn parse(text: &str) -> Result<StoreLocation, String> {
    let Some(location) = text.strip_prefix("git:") else {
        return Err("must be git:PATH or git:PATH#BRANCH".to_owned());
    };
    let (path, branch) = location.split_once('#').unwrap_or((location, "main"));
    let path = path.strip_prefix("file://").unwrap_or(path);
    let is_remote = path.contains("://") || path.split_once('/').map_or(path, |(host, _)| host).contains(':');
    if is_remote {
        return Err(
            "only a bare repository on this machine can be a store; `git clone --bare` makes one".to_owned(),
        );
    }
    if path.is_empty() || branch.is_empty() {
        return Err("path and branch must not be empty".to_owned());
    }
    Ok(StoreLocation {
        repository: path.into(),
        branch: branch.to_owned(),
    })
}

/// Opens the store. `local` is the file of the objects, or of those that stay on this machine.
///
/// # Errors
/// If it cannot be opened.
pub(super) fn open(
    args: &StoreArgs,
    has_state: bool,
    local: PathBuf,
    crds: &[CustomResourceDefinition],
) -> Result<Store, StoreError> {
    match &args.store {
        Some(location) => {
            let options = GitOptions {
                repository: location.repository.clone(),
                branch: location.branch.clone(),
                subdir: args.subdir.clone().unwrap_or_default(),
                interval: args.interval,
                local,
            };
            Store::git(options, crds)
        }
        None if has_state => Store::file(local),
        None => Ok(Store::memory()),
    }
}

/// Returns the remedy for an error, if there is one.
pub(super) const fn advice(error: &StoreError) -> &'static str {
    match error {
        StoreError::Damaged { .. } | StoreError::Corrupt { .. } => {
            ". Restore a backup of the state directory; `sluice state check` shows details, `sluice state export` saves what is readable"
        }
        StoreError::Git { .. } => {
            ". --store takes the path of a bare repository; `git init --bare PATH` or `git clone --bare URL PATH` makes one"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_have_a_branch() {
        let location = |repository: &str, branch: &str| {
            Ok(StoreLocation {
                repository: repository.into(),
                branch: branch.to_owned(),
            })
        };
        assert_eq!(parse("git:/srv/a.git"), location("/srv/a.git", "main"));
        assert_eq!(parse("git:a.git#infra/live"), location("a.git", "infra/live"));
        assert_eq!(parse("git:file:///srv/a.git"), location("/srv/a.git", "main"));
    }

    #[test]
    fn other_forms_are_explained() {
        for remote in ["git:https://a.example/b.git", "git:git@a.example:b.git"] {
            assert!(parse(remote).unwrap_err().contains("clone --bare"), "{remote}");
        }
        assert!(parse("/srv/a.git").unwrap_err().contains("git:PATH"));
        parse("git:#main").unwrap_err();
        parse("git:a.git#").unwrap_err();
    }
}
