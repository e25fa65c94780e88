//! The provider of the suites (`tests/assets/trial`) and its data folder: each resource is a file there, so that a test can
//! read it, change it without the state (drift), and control the behaviour of each operation.

mod ledger;
mod mirror;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

pub use ledger::{LedgerEntry, LedgerEvent};
pub use mirror::Mirror;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gobuild::{self, BuildError, Tool};

/// The provider's source address.
const SOURCE: &str = "sluice.test/sluice/trial";
/// The version that is released initially.
const VERSION: &str = "1.0.0";

/// Why the provider is not available.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// It cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The mirror has no certificate.
    #[error(transparent)]
    Certificate(#[from] crate::tls::CertificateError),
    /// A folder cannot be created or written.
    #[error("the trial provider's folder: {0}")]
    Folder(#[from] io::Error),
}

/// A data folder, and a mirror from which the CLI installs the provider. Dropping it removes both.
#[derive(Debug)]
pub struct TrialProvider {
    folder: TempDir,
    program: PathBuf,
}

impl TrialProvider {
    /// Creates an empty data folder. Builds the provider first if needed.
    ///
    /// # Errors
    /// When Go is missing, the build fails, or a folder cannot be created.
    pub fn create() -> Result<Self, TrialError> {
        let program = gobuild::build(Tool::TrialProvider, &mut |line| eprintln!("{line}"))?;
        let trial = Self {
            folder: tempfile::tempdir()?,
            program,
        };
        trial.release(VERSION)?;
        fs::create_dir_all(trial.data_dir().join("things"))?;
        fs::write(trial.cli_config(), trial.cli_config_text())?;
        Ok(trial)
    }

    /// Adds another version of the provider to the mirror.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn release(&self, version: &str) -> io::Result<()> {
        let platform = format!("{}_{}", std::env::consts::OS, go_architecture());
        let versions = self.folder.path().join("mirror").join(SOURCE);
        let folder = versions.join(version).join(platform);
        fs::create_dir_all(&folder)?;
        let file = folder.join(format!("terraform-provider-trial_v{version}"));
        fs::copy(&self.program, file).map(drop)
    }

    /// Serves the provider as a network mirror from which the CLI downloads it.
    ///
    /// # Errors
    /// When no port is free, no certificate can be created, or the program cannot be read.
    pub async fn mirror(&self) -> Result<Mirror, TrialError> {
        Mirror::serve(fs::read(&self.program)?).await
    }

    /// As [`Self::mirror`], with a program of at least this size in bytes: it ends with zeros, which are never loaded.
    ///
    /// # Errors
    /// As [`Self::mirror`].
    pub async fn mirror_of_size(&self, bytes: usize) -> Result<Mirror, TrialError> {
        let mut program = fs::read(&self.program)?;
        program.resize(program.len().max(bytes), 0);
        Mirror::serve(program).await
    }

    /// Returns a lock file that pins a version.
    #[must_use]
    pub fn lock_file(version: &str) -> String {
        format!("provider \"{SOURCE}\" {{\n  version = \"{version}\"\n}}\n")
    }

    /// Returns the path of a file for `TF_CLI_CONFIG_FILE`: providers come from the mirror only.
    #[must_use]
    pub fn cli_config(&self) -> PathBuf {
        self.folder.path().join("cli.tfrc")
    }

    /// Returns the content of that file.
    #[must_use]
    pub fn cli_config_text(&self) -> String {
        let mirror = self.folder.path().join("mirror");
        format!(
            "provider_installation {{\n  filesystem_mirror {{\n    path = {:?}\n  }}\n}}\n",
            mirror.display().to_string()
        )
    }

    /// As [`Self::provider_block`], with an expression for the provider's token.
    #[must_use]
    pub fn provider_block_with_token(&self, token: &str) -> String {
        let head = self.provider_block();
        head.replacen("  world = ", &format!("  token = {token}\n  world = "), 1)
    }

    /// Returns the beginning of a module that uses the provider: `resource "trial_thing"` (`name`, `content`; `id`, `random`
    /// and the sensitive `secret` are computed) and `data "trial_value"` (`value`, read by each plan).
    #[must_use]
    pub fn provider_block(&self) -> String {
        let world = self.data_dir().display().to_string();
        format!(
            "terraform {{\n  required_providers {{\n    trial = {{ source = \"{SOURCE}\" }}\n  }}\n}}\n\
             provider \"trial\" {{\n  world = {world:?}\n}}\n"
        )
    }

    /// Returns the data folder.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("world")
    }

    /// Permits every user, also that of a run's pod, to enter the folder and to write its data.
    ///
    /// # Errors
    /// When the modes cannot be changed.
    pub fn open_to_pods(&self) -> io::Result<()> {
        let data = self.data_dir();
        fs::set_permissions(self.folder.path(), Permissions::from_mode(0o755))?;
        fs::set_permissions(&data, Permissions::from_mode(0o777))?;
        fs::set_permissions(data.join("things"), Permissions::from_mode(0o777))
    }

    /// Controls the steps `read`, `plan`, `create`, `update`, `delete` and `value` (`create a`: for that resource only), each
    /// with `hold`, `delayMs`, `fail`, `failAfter`, `crash`, `hang`, `memoryMiB` and `fillDisk`. A step with `hold` waits until another behaviour does not
    /// hold it; its own `delayMs` follows. In `fail`, `{token}`, `{environment}` and `{secret}` stand
    /// for the configured token, `TRIAL_TOKEN` and the secret in the state. Next to `steps` are `ignoreInterrupts`,
    /// `secret` and `value`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set_behaviour(&self, behaviour: &Value) -> io::Result<()> {
        replace(&self.data_dir().join("orders.json"), &behaviour.to_string())
    }

    /// Returns the names of the existing resources.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn resources(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.data_dir().join("things"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".json").map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Returns the content of a resource; `None` if it has none or does not exist.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.file(name)).ok()?;
        let resource: Value = serde_json::from_str(&text).ok()?;
        resource["content"].as_str().map(str::to_owned)
    }

    /// Changes a resource without changing the state.
    ///
    /// # Errors
    /// When it does not exist or cannot be written.
    pub fn drift(&self, name: &str, content: &str) -> io::Result<()> {
        let mut resource: Value = serde_json::from_str(&fs::read_to_string(self.file(name))?)?;
        resource["content"] = json!(content);
        replace(&self.file(name), &resource.to_string())
    }

    /// Removes a resource without changing the state.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn delete_resource(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.file(name))
    }

    /// Returns each started step as `<step> <name>`, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        let entries = self.ledger().unwrap_or_default();
        let begun = entries.iter().filter(|entry| entry.event == LedgerEvent::Begin);
        begun
            .map(|entry| format!("{} {}", entry.step, entry.name))
            .collect()
    }

    /// Returns what the provider has done so far, oldest first.
    ///
    /// # Errors
    /// When the file cannot be read or a line of it is not an entry.
    pub fn ledger(&self) -> io::Result<Vec<LedgerEntry>> {
        match fs::read_to_string(self.data_dir().join("ledger.jsonl")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            text => ledger::parse(&text?),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.data_dir().join("things").join(format!("{name}.json"))
    }
}

/// Replaces a file atomically.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let temporary = file.with_extension("new");
    fs::write(&temporary, text)?;
    fs::rename(temporary, file)
}

/// Returns Go's name of this machine's architecture.
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
    use std::time::Duration;

    use super::*;
    use crate::cli;

    fn run(trial: &TrialProvider, module: &Path, arguments: &[&str]) -> Output {
        let program = cli::terraform().unwrap();
        let mut command = Command::new(program);
        command.args(arguments).arg("-no-color").current_dir(module);
        command
            .env("TF_CLI_CONFIG_FILE", trial.cli_config())
            .output()
            .unwrap()
    }

    fn module(trial: &TrialProvider) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "{}resource \"trial_thing\" \"a\" {{\n  name = \"a\"\n  content = \"one\"\n}}\n",
            trial.provider_block()
        );
        fs::write(folder.path().join("main.tf"), text).unwrap();
        folder
    }

    #[test]
    fn resources_are_files_that_drift_and_steps_follow_the_behaviour_file() {
        let trial = TrialProvider::create().unwrap();
        let module = module(&trial);
        let run = |arguments: &[&str]| run(&trial, module.path(), arguments);
        let stderr = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        let init = run(&["init"]);
        assert!(init.status.success(), "{}", stderr(&init));
        trial
            .set_behaviour(&json!({ "steps": { "create": { "fail": "no space" } } }))
            .unwrap();
        let apply = run(&["apply", "-auto-approve"]);
        assert!(stderr(&apply).contains("no space"), "{}", stderr(&apply));
        trial.set_behaviour(&json!({ "secret": "hidden" })).unwrap();
        let apply = run(&["apply", "-auto-approve"]);
        assert!(apply.status.success(), "{}", stderr(&apply));
        assert_eq!(
            (trial.resources().unwrap(), trial.content("a")),
            (vec!["a".to_owned()], Some("one".into()))
        );
        trial.drift("a", "other").unwrap();
        assert_eq!(run(&["plan", "-detailed-exitcode"]).status.code(), Some(2));
        trial
            .set_behaviour(&json!({ "steps": { "update": { "crash": true } } }))
            .unwrap();
        assert!(!run(&["apply", "-auto-approve"]).status.success());
        trial.set_behaviour(&json!({})).unwrap();
        assert!(run(&["apply", "-auto-approve"]).status.success());
        assert_eq!(trial.content("a"), Some("one".into()));
        trial.delete_resource("a").unwrap();
        assert_eq!(run(&["plan", "-detailed-exitcode"]).status.code(), Some(2));
        let created = trial.calls().iter().filter(|call| *call == "create a").count();
        assert_eq!(created, 2);
    }

    #[test]
    fn a_held_step_goes_on_when_another_behaviour_does_not_hold_it() {
        let trial = TrialProvider::create().unwrap();
        let module = module(&trial);
        assert!(run(&trial, module.path(), &["init"]).status.success());
        trial
            .set_behaviour(&json!({ "steps": { "create a": { "hold": true } } }))
            .unwrap();
        std::thread::scope(|scope| {
            let apply = scope.spawn(|| run(&trial, module.path(), &["apply", "-auto-approve"]));
            while !trial.calls().iter().any(|call| call == "create a") {
                assert!(!apply.is_finished(), "{:?}", trial.calls());
                std::thread::sleep(Duration::from_millis(20));
            }
            std::thread::sleep(Duration::from_millis(200));
            assert!(trial.resources().unwrap().is_empty() && !apply.is_finished());
            trial.set_behaviour(&json!({})).unwrap();
            assert!(apply.join().unwrap().status.success());
        });
        assert_eq!(trial.resources().unwrap(), ["a"]);
        let ledger = trial.ledger().unwrap();
        let events = |of: LedgerEvent| {
            let found = ledger
                .iter()
                .filter(|entry| entry.event == of && entry.step == "create");
            found.map(|entry| (entry.at, entry.cli)).collect::<Vec<_>>()
        };
        let (begin, made, end) = (
            events(LedgerEvent::Begin),
            events(LedgerEvent::Made),
            events(LedgerEvent::End),
        );
        assert_eq!((begin.len(), made.len(), end.len()), (1, 1, 1), "{ledger:?}");
        assert!(begin[0].0 <= made[0].0 && made[0].0 <= end[0].0, "{ledger:?}");
        assert!(begin[0].1 == end[0].1 && begin[0].1 > 0, "{ledger:?}");
    }
}
