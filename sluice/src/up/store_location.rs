//! Where the objects of `sluice up` are.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sluice_embedded::{GitOptions, SharedKind, StatusLocation, Store, StoreError};

/// Name of the clone of a remote repository in the state directory.
const CLONE: &str = "store.git";

/// Minimum of `--interval`.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Where the objects are.
#[derive(clap::Args, Clone, Debug)]
pub struct StoreArgs {
    /// Keep the objects as YAML files on a branch of a Git repository: git:PATH or git:URL, with #BRANCH. PATH is a bare repository. Secrets,
    /// and without --share Leases, Events and runs, stay in the state directory.
    #[arg(long, value_name = "STORE", value_parser = parse)]
    pub store: Option<StoreLocation>,
    /// Where the status of the objects is with --store: on a second branch, BRANCH-status, or in the files of the objects.
    #[arg(long, value_name = "PLACE", default_value = "branch", requires = "store")]
    pub status: StatusPlace,
    /// Keep these kinds in the repository of --store, too, so that all processes on it have the same objects. With `leases`, controllers of
    /// several processes can elect one leader. Each write is a commit.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', requires = "store")]
    pub share: Vec<ShareKind>,
    /// Directory of the objects in the repository of --store.
    #[arg(long, value_name = "DIR", requires = "store",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub subdir: Option<String>,
    /// With --store, the interval between two polls for commits of others, at least 1s.
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "store", value_parser = interval)]
    pub interval: Duration,
    /// SSH private key without a passphrase that signs the commits of --store.
    #[arg(long, value_name = "FILE", requires = "store")]
    pub signing_key: Option<PathBuf>,
}

/// Where the status of the objects is.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusPlace {
    /// On a second branch.
    Branch,
    /// In the files of the objects.
    File,
}

impl From<StatusPlace> for StatusLocation {
    fn from(place: StatusPlace) -> Self {
        match place {
            StatusPlace::Branch => Self::Branch,
            StatusPlace::File => Self::File,
        }
    }
}

/// A kind that programs write.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareKind {
    /// Leases.
    Leases,
    /// Events.
    Events,
    /// Runs.
    Runs,
}

impl From<ShareKind> for SharedKind {
    fn from(kind: ShareKind) -> Self {
        match kind {
            ShareKind::Leases => Self::Leases,
            ShareKind::Events => Self::Events,
            ShareKind::Runs => Self::Runs,
        }
    }
}

/// A branch of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLocation {
    /// Directory of a bare repository on this machine, or URL of a remote one.
    pub repository: String,
    /// Name of the branch.
    pub branch: String,
}

impl StoreLocation {
    fn is_remote(&self) -> bool {
        let host = self.repository.split('/').next().unwrap_or_default();
        host.contains(':') || self.repository.contains("://")
    }
}

/// Parses `git:PATH[#BRANCH]` and `git:URL[#BRANCH]`; the default branch is `main`. A URL has a scheme, or the form `[USER@]HOST:PATH` of
/// SSH.
///
/// A password is left to the store: the error of an argument would show it.
///
/// # Errors
/// If the text has another form, or a URL another scheme.
fn parse(text: &str) -> Result<StoreLocation, String> {
    let Some(location) = text.strip_prefix("git:") else {
        return Err("must be git:PATH, git:URL, git:PATH#BRANCH or git:URL#BRANCH".to_owned());
    };
    let (repository, branch) = location.split_once('#').unwrap_or((location, "main"));
    if repository.is_empty() || branch.is_empty() {
        return Err("repository and branch must not be empty".to_owned());
    }
    if repository.starts_with('-') || branch.starts_with('-') {
        return Err("repository and branch must not begin with `-`".to_owned());
    }
    if let Some((scheme, _)) = repository.split_once("://") {
        if !matches!(scheme, "https" | "http" | "ssh" | "file") {
            return Err("the scheme of a URL must be https, http, ssh or file".to_owned());
        }
    } else if repository.contains("::") {
        return Err("a repository with a helper of its own (`helper::address`) cannot be a store".to_owned());
    }
    Ok(StoreLocation {
        repository: repository.to_owned(),
        branch: branch.to_owned(),
    })
}

/// Parses an interval. A shorter one than [`MIN_INTERVAL`] would keep the repository, and a remote host, busy.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = sluice_runtime::args::duration(text)?;
    if interval < MIN_INTERVAL {
        return Err("must be at least 1s".to_owned());
    }
    Ok(interval)
}

/// Opens the store, on a thread that may wait for a disk or a network. `local` is the file of the objects, or of those that stay on
/// this machine.
///
/// # Errors
/// If it cannot be opened, or a remote repository does not answer.
pub(super) async fn open(
    args: StoreArgs,
    has_state: bool,
    local: PathBuf,
    crds: Vec<CustomResourceDefinition>,
) -> Result<Store, StoreError> {
    tokio::task::spawn_blocking(move || open_now(&args, has_state, local, &crds))
        .await
        .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

fn open_now(
    args: &StoreArgs,
    has_state: bool,
    local: PathBuf,
    crds: &[CustomResourceDefinition],
) -> Result<Store, StoreError> {
    match &args.store {
        Some(location) => Store::git(git_options(args, location, local), crds),
        None if has_state => Store::file(local),
        None => Ok(Store::memory()),
    }
}

fn git_options(args: &StoreArgs, location: &StoreLocation, local: PathBuf) -> GitOptions {
    let remote = location.is_remote().then(|| location.repository.clone());
    let repository = match &remote {
        Some(_) => local.with_file_name(CLONE),
        None => PathBuf::from(&location.repository),
    };
    GitOptions {
        repository,
        remote,
        branch: location.branch.clone(),
        status: args.status.into(),
        subdir: args.subdir.clone().unwrap_or_default(),
        interval: args.interval,
        signing_key: args.signing_key.clone(),
        shared: args.share.iter().copied().map(SharedKind::from).collect(),
        local,
    }
}

/// Returns the warning of a program without a state directory.
pub(super) const fn warning_without_state(args: &StoreArgs) -> &'static str {
    if args.store.is_some() {
        "Warning: without --state, what is not in the repository, such as plans and Terraform state, is lost when this program ends."
    } else {
        "Warning: without --state, objects, plans and Terraform state are in memory only and are lost when this program ends."
    }
}

/// Returns the remedy for an error, if there is one.
pub(super) const fn advice(error: &StoreError) -> &'static str {
    match error {
        StoreError::Damaged { .. } | StoreError::Corrupt { .. } => {
            ". Restore a backup of the state directory; `sluice state check` shows details, `sluice state export` saves what is readable"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_path_or_url_may_have_a_branch() {
        let parsed = |text: &str| {
            let location = parse(text).unwrap();
            let is_remote = location.is_remote();
            (location.repository, location.branch, is_remote)
        };
        let expected =
            |repository: &str, branch: &str, is_remote| (repository.to_owned(), branch.to_owned(), is_remote);
        assert_eq!(parsed("git:/srv/a.git"), expected("/srv/a.git", "main", false));
        assert_eq!(
            parsed("git:a.git#infra/live"),
            expected("a.git", "infra/live", false)
        );
        for url in [
            "https://me@a.example/b.git",
            "ssh://git@a.example:22/b.git",
            "git@a.example:b.git",
            "file:///srv/a.git",
        ] {
            assert_eq!(parsed(&format!("git:{url}#live")), expected(url, "live", true));
        }
    }

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        store: StoreArgs,
    }

    #[test]
    fn kinds_are_shared_by_name() {
        let shared = |arguments: &[&str]| {
            let mut all = vec!["up", "--store", "git:a.git"];
            all.extend(arguments);
            Cli::try_parse_from(all).map(|cli| {
                let location = cli.store.store.clone().unwrap();
                git_options(&cli.store, &location, PathBuf::new()).shared
            })
        };
        assert!(shared(&[]).unwrap().is_empty());
        let expected = BTreeSet::from([SharedKind::Leases, SharedKind::Runs]);
        assert_eq!(shared(&["--share", "runs,leases"]).unwrap(), expected);
        assert_eq!(shared(&["--share=runs", "--share=leases"]).unwrap(), expected);
        shared(&["--share", "secrets"]).unwrap_err();
        assert!(
            Cli::try_parse_from(["up", "--share", "runs"]).is_err(),
            "needs --store"
        );
    }

    #[test]
    fn the_warning_without_a_state_directory_knows_the_repository() {
        for (arguments, expected) in [
            (&["up"][..], "objects, plans and Terraform state are in memory"),
            (
                &["up", "--store", "git:a.git"][..],
                "what is not in the repository",
            ),
        ] {
            let cli = Cli::try_parse_from(arguments).unwrap();
            let warning = warning_without_state(&cli.store);
            assert!(warning.contains(expected), "{warning}");
        }
    }

    #[test]
    fn a_short_interval_is_refused() {
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        for text in ["0", "0s", "999ms"] {
            assert!(interval(text).unwrap_err().contains("at least 1s"), "{text}");
        }
        interval("soon").unwrap_err();
    }

    #[test]
    fn other_forms_are_explained() {
        for url in [
            "git:ext::sh -c x",
            "git:ext://a",
            "git:--upload-pack=x",
            "git:a.git#-x",
        ] {
            parse(url).unwrap_err();
        }
        assert!(parse("/srv/a.git").unwrap_err().contains("git:PATH"));
        parse("git:#main").unwrap_err();
        parse("git:a.git#").unwrap_err();
    }
}
