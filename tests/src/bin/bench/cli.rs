//! The CLI without Sluice: the same module, and the same backend on the same API.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sluice_tests::BoxError;

/// Runs the CLI directly.
pub(crate) struct Cli {
    tool: PathBuf,
    folder: PathBuf,
    kubeconfig: PathBuf,
}

impl Cli {
    pub(crate) fn new(tool: &Path, folder: &Path, kubeconfig: &Path) -> Self {
        Self {
            tool: tool.to_owned(),
            folder: folder.join("hand"),
            kubeconfig: kubeconfig.to_owned(),
        }
    }

    /// Runs `init && plan && apply` in a new directory.
    pub(crate) fn first_apply(&self, name: &str, module: &str) -> Result<Duration, BoxError> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("main.tf"), module)?;
        let backend = format!(
            "terraform {{\n  backend \"kubernetes\" {{\n    secret_suffix = \"hand-{name}\"\n    namespace = \"default\"\n  }}\n}}\n"
        );
        std::fs::write(folder.join("backend_override.tf"), backend)?;
        let began = Instant::now();
        self.call(&folder, &["init", "-input=false"])?;
        self.call(&folder, &["plan", "-input=false", "-out=plan"])?;
        self.call(&folder, &["apply", "-input=false", "plan"])?;
        Ok(began.elapsed())
    }

    /// Runs `init && plan` without changes in a new checkout.
    pub(crate) fn plan_again(&self, name: &str) -> Result<Duration, BoxError> {
        let folder = self.folder.join(name);
        std::fs::remove_dir_all(folder.join(".terraform"))?;
        let began = Instant::now();
        self.call(&folder, &["init", "-input=false"])?;
        self.call(&folder, &["plan", "-input=false", "-detailed-exitcode"])?;
        Ok(began.elapsed())
    }

    fn call(&self, folder: &Path, arguments: &[&str]) -> Result<(), BoxError> {
        let mut command = Command::new(&self.tool);
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        let command = command
            .env("CHECKPOINT_DISABLE", "1")
            .env("KUBE_CONFIG_PATH", &self.kubeconfig);
        let done = command.output()?;
        if done.status.success() {
            return Ok(());
        }
        Err(format!("{arguments:?}: {}", String::from_utf8_lossy(&done.stderr)).into())
    }
}
