//! `sluice init`: a starter repository, with a small module and the manifests that apply it. Nothing is overwritten.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::create::check_url;
use crate::output::{Console, to_yaml};
use crate::{CliError, ExitStatus};

/// The address in the manifest of the source if the user names none.
const ADDRESS: &str = "https://git.example.com/team/infrastructure.git";

/// The account of runs, as config/runner-account has it.
const ACCOUNT: &str = include_str!("../../../../config/runner-account/account.yaml");
const ACCOUNT_HEAD: &str =
    "# The account of runs. A cluster needs it in each namespace with stacks; `sluice up` does not.\n";

/// Arguments of `sluice init`.
#[derive(clap::Args, Debug)]
pub struct InitArgs {
    /// Directory of the files; it is created.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Address of the repository that the files will be pushed to.
    #[arg(long, default_value = ADDRESS)]
    url: String,
    /// Branch of that repository.
    #[arg(long, default_value = "main")]
    branch: String,
}

/// Writes the files.
pub(super) fn init(args: &InitArgs, console: Console) -> Result<ExitStatus, CliError> {
    check_url(&args.url)?;
    let files = files(&args.url, &args.branch)?;
    refuse_existing(&args.directory, &files)?;
    for (name, text) in &files {
        write_new(&args.directory.join(name), text)?;
        console.data(&args.directory.join(name).display().to_string())?;
    }
    if args.url == ADDRESS {
        console.note("Set the address of your repository in sluice/source.yaml.");
    }
    console.note("README.md has the next steps.");
    Ok(ExitStatus::Success)
}

/// Returns the files of a starter repository by name.
fn files(url: &str, branch: &str) -> Result<Vec<(&'static str, String)>, CliError> {
    Ok(vec![
        ("README.md", include_str!("starter/README.md").to_owned()),
        ("stacks/hello/main.tf", include_str!("starter/main.tf").to_owned()),
        ("sluice/source.yaml", to_yaml(&source(url, branch))?),
        ("sluice/hello.yaml", to_yaml(&stack())?),
        ("cluster/account.yaml", format!("{ACCOUNT_HEAD}{ACCOUNT}")),
    ])
}

fn source(url: &str, branch: &str) -> Value {
    json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "GitRepository",
        "metadata": { "name": "infrastructure" },
        "spec": { "interval": "1m", "ref": { "branch": branch }, "url": url },
    })
}

fn stack() -> Value {
    json!({
        "apiVersion": "infra.contrib.fluxcd.io/v1alpha2",
        "kind": "Terraform",
        "metadata": { "name": "hello" },
        "spec": {
            "approvePlan": "",
            "interval": "10m",
            "path": "stacks/hello",
            "sourceRef": { "kind": "GitRepository", "name": "infrastructure" },
            "writeOutputsToSecret": { "name": "hello-outputs" },
        },
    })
}

/// Refuses before the first file is written, so that nothing is left half done.
fn refuse_existing(directory: &Path, files: &[(&'static str, String)]) -> Result<(), CliError> {
    let existing: Vec<&str> = files
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| fs::symlink_metadata(directory.join(name)).is_ok())
        .collect();
    if existing.is_empty() {
        return Ok(());
    }
    Err(CliError::Refused {
        object: directory.display().to_string(),
        cause: format!(
            "nothing is overwritten, and these files exist: {}",
            existing.join(", ")
        ),
        next_command: "sluice init NEW-DIRECTORY".to_owned(),
    })
}

/// Writes a file that does not exist, and its directory.
fn write_new(path: &Path, text: &str) -> Result<(), CliError> {
    let failed = |source| CliError::File {
        what: format!("cannot write {}", path.display()),
        source,
    };
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use sluice_api::source::GitRepository;
    use sluice_api::terraform::Terraform;

    use super::*;

    fn text(name: &str) -> String {
        let files = files("https://git.example/a.git", "trunk").unwrap();
        files.into_iter().find(|(file, _)| *file == name).unwrap().1
    }

    #[test]
    fn the_manifests_fit_each_other_and_the_module() {
        let source: GitRepository = serde_yaml_ng::from_str(&text("sluice/source.yaml")).unwrap();
        let stack: Terraform = serde_yaml_ng::from_str(&text("sluice/hello.yaml")).unwrap();
        assert_eq!(source.metadata.name, Some(stack.spec.source_ref.name));
        assert_eq!(source.spec.url, "https://git.example/a.git");
        assert_eq!(source.spec.reference.unwrap().branch.as_deref(), Some("trunk"));
        assert!(!text(&format!("{}/main.tf", stack.spec.path)).is_empty());
    }

    #[test]
    fn the_account_is_the_default_of_a_stack() {
        let stack: Terraform = serde_yaml_ng::from_str(&text("sluice/hello.yaml")).unwrap();
        let text = text("cluster/account.yaml");
        let names: Vec<Value> = serde_yaml_ng::Deserializer::from_str(&text)
            .map(|document| Value::deserialize(document).unwrap()["metadata"]["name"].clone())
            .collect();
        assert_eq!(names, [stack.spec.service_account_name.as_str(), "tf-runner"]);
    }

    #[test]
    fn the_readme_has_at_most_ten_lines() {
        assert!(text("README.md").lines().count() <= 10);
    }
}
