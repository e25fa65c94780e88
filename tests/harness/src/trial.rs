//! The suites' own provider (`tests/assets/trial`) and a folder that is its world: resources are files in it, so that a
//! test sees them, changes them behind the state's back, and says how each step is to go.

mod mirror;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gobuild::{self, BuildError, Tool};

pub use mirror::Mirror;

/// Where the provider says that it comes from.
const SOURCE: &str = "sluice.test/sluice/trial";
/// The version that is there from the beginning.
const VERSION: &str = "1.0.0";

/// Why there is no provider.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// It cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// No certificate for the mirror.
    #[error(transparent)]
    Certificate(#[from] crate::tls::CertificateError),
    /// A folder cannot be made or written.
    #[error("the trial provider's folder: {0}")]
    Folder(#[from] io::Error),
}

/// A world, with a mirror from which the CLI takes the provider. Both go when it is dropped.
#[derive(Debug)]
pub struct Trial {
    folder: TempDir,
    program: PathBuf,
}

impl Trial {
    /// An empty world. The provider is built first when it must be.
    ///
    /// # Errors
    /// Go is missing, the build fails, or a folder cannot be made.
    pub fn create() -> Result<Self, TrialError> {
        let program = gobuild::build(Tool::TrialProvider, &mut |line| eprintln!("{line}"))?;
        let trial = Self {
            folder: tempfile::tempdir()?,
            program,
        };
        trial.release(VERSION)?;
        fs::create_dir_all(trial.world().join("things"))?;
        fs::write(trial.cli_config(), trial.cli_config_text())?;
        Ok(trial)
    }

    /// Puts the provider into the mirror under another version.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn release(&self, version: &str) -> io::Result<()> {
        let platform = format!("{}_{}", std::env::consts::OS, go_architecture());
        let versions = self.folder.path().join("mirror").join(SOURCE);
        let place = versions.join(version).join(platform);
        fs::create_dir_all(&place)?;
        let file = place.join(format!("terraform-provider-trial_v{version}"));
        fs::copy(&self.program, file).map(drop)
    }

    /// Serves the provider as a network mirror, for the CLI to download it.
    ///
    /// # Errors
    /// No port, no certificate, or the program cannot be read.
    pub async fn mirror(&self) -> Result<Mirror, TrialError> {
        Mirror::serve(fs::read(&self.program)?).await
    }

    /// A lock file that names a version, for a module that has one beside it.
    #[must_use]
    pub fn lock_file(version: &str) -> String {
        format!("provider \"{SOURCE}\" {{\n  version = \"{version}\"\n}}\n")
    }

    /// A file for `TF_CLI_CONFIG_FILE`: providers come from the mirror and from nowhere else.
    #[must_use]
    pub fn cli_config(&self) -> PathBuf {
        self.folder.path().join("cli.tfrc")
    }

    /// The text of that file.
    #[must_use]
    pub fn cli_config_text(&self) -> String {
        let mirror = self.folder.path().join("mirror");
        format!(
            "provider_installation {{\n  filesystem_mirror {{\n    path = {:?}\n  }}\n}}\n",
            mirror.display().to_string()
        )
    }

    /// As [`Self::module_head`], with an expression for the provider's token.
    #[must_use]
    pub fn module_head_with(&self, token: &str) -> String {
        let head = self.module_head();
        head.replacen("  world = ", &format!("  token = {token}\n  world = "), 1)
    }

    /// The beginning of a module that uses the provider: `resource "trial_thing"` (`name`, `content`; `id`, `random` and
    /// the sensitive `secret` are known after apply) and `data "trial_value"` (`value`, read anew by each plan).
    #[must_use]
    pub fn module_head(&self) -> String {
        let world = self.world().display().to_string();
        format!(
            "terraform {{\n  required_providers {{\n    trial = {{ source = \"{SOURCE}\" }}\n  }}\n}}\n\
             provider \"trial\" {{\n  world = {world:?}\n}}\n"
        )
    }

    /// The folder of the resources.
    #[must_use]
    pub fn world(&self) -> PathBuf {
        self.folder.path().join("world")
    }

    /// Says how the steps `read`, `plan`, `create`, `update`, `delete` and `value` are to go (`create a`: for that resource
    /// alone), each with `delayMs`, `fail`,
    /// `failAfter`, `crash` and `hang` (in `fail`, `{token}`, `{environment}` and `{secret}` stand for the configured token, for
    /// `TRIAL_TOKEN` and for what the state holds); beside `steps` stand `ignoreInterrupts`, `secret` and `value`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn order(&self, orders: &Value) -> io::Result<()> {
        replace(&self.world().join("orders.json"), &orders.to_string())
    }

    /// The names of the resources that are there.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn things(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.world().join("things"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".json").map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// The content of a resource; none if it has none or is not there.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.file(name)).ok()?;
        let thing: Value = serde_json::from_str(&text).ok()?;
        thing["content"].as_str().map(str::to_owned)
    }

    /// Changes a resource behind the state's back.
    ///
    /// # Errors
    /// It is not there, or cannot be written.
    pub fn drift(&self, name: &str, content: &str) -> io::Result<()> {
        let mut thing: Value = serde_json::from_str(&fs::read_to_string(self.file(name))?)?;
        thing["content"] = json!(content);
        replace(&self.file(name), &thing.to_string())
    }

    /// Takes a resource away behind the state's back.
    ///
    /// # Errors
    /// It is not there.
    pub fn lose(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.file(name))
    }

    /// Each step that was begun, as `<step> <name>`, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        let log = fs::read_to_string(self.world().join("calls.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.world().join("things").join(format!("{name}.json"))
    }
}

/// A reader sees the old text or the new one.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let beside = file.with_extension("new");
    fs::write(&beside, text)?;
    fs::rename(beside, file)
}

/// Go's word for this machine's architecture.
const fn go_architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;
    use crate::cli;

    fn run(trial: &Trial, module: &Path, arguments: &[&str]) -> Output {
        let program = cli::terraform().unwrap();
        let mut command = Command::new(program);
        command.args(arguments).arg("-no-color").current_dir(module);
        command
            .env("TF_CLI_CONFIG_FILE", trial.cli_config())
            .output()
            .unwrap()
    }

    fn module(trial: &Trial) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "{}resource \"trial_thing\" \"a\" {{\n  name = \"a\"\n  content = \"one\"\n}}\n",
            trial.module_head()
        );
        fs::write(folder.path().join("main.tf"), text).unwrap();
        folder
    }

    #[test]
    fn resources_are_files_that_drift_and_steps_go_as_they_are_told() {
        let trial = Trial::create().unwrap();
        let module = module(&trial);
        let run = |arguments: &[&str]| run(&trial, module.path(), arguments);
        let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        let init = run(&["init"]);
        assert!(init.status.success(), "{}", said(&init));
        trial
            .order(&json!({ "steps": { "create": { "fail": "no room" } } }))
            .unwrap();
        let apply = run(&["apply", "-auto-approve"]);
        assert!(said(&apply).contains("no room"), "{}", said(&apply));
        trial.order(&json!({ "secret": "hidden" })).unwrap();
        let apply = run(&["apply", "-auto-approve"]);
        assert!(apply.status.success(), "{}", said(&apply));
        assert_eq!(
            (trial.things().unwrap(), trial.content("a")),
            (vec!["a".to_owned()], Some("one".into()))
        );
        trial.drift("a", "other").unwrap();
        assert_eq!(run(&["plan", "-detailed-exitcode"]).status.code(), Some(2));
        trial
            .order(&json!({ "steps": { "update": { "crash": true } } }))
            .unwrap();
        assert!(!run(&["apply", "-auto-approve"]).status.success());
        trial.order(&json!({})).unwrap();
        assert!(run(&["apply", "-auto-approve"]).status.success());
        assert_eq!(trial.content("a"), Some("one".into()));
        trial.lose("a").unwrap();
        assert_eq!(run(&["plan", "-detailed-exitcode"]).status.code(), Some(2));
        let created = trial.calls().iter().filter(|call| *call == "create a").count();
        assert_eq!(created, 2);
    }
}
