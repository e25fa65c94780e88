//! Gates of the CLI: `init`, `plan`, `apply` and the reading of outputs wait until the stack's conditions report them.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use sluice_api::terraform::Terraform;

use super::STACK;
use crate::environment::{NAMESPACE, TestEnvironment};

/// Returns the folder of the gates; a file in it opens the gate with its name once.
fn folder(env: &TestEnvironment) -> PathBuf {
    env.path("gates")
}

/// Installs a wrapper of the CLI. Outputs are gated only after an apply: before one, no condition reports them. A gate that stays
/// closed fails the step.
pub(super) fn install(env: &mut TestEnvironment) {
    let real = sluice_harness::cli::terraform().unwrap();
    let (gates, programs) = (folder(env), env.path("programs"));
    std::fs::create_dir_all(&gates).unwrap();
    std::fs::create_dir_all(&programs).unwrap();
    let text = format!(
        r#"#!/bin/sh
gates={gates}
wait_for() {{
  turns=0
  until [ -e "$gates/$1" ]; do
    sleep 0.02
    turns=$((turns + 1))
    [ $turns -lt 2000 ] || {{ echo "no test opens the gate $1" >&2; exit 97; }}
  done
  rm "$gates/$1"
}}
case "$PWD/" in
*/{NAMESPACE}_{STACK}/*)
  case "$1" in
  init) wait_for init ;;
  plan) rm -f "$gates/applied"; wait_for plan ;;
  apply) touch "$gates/applied"; wait_for apply ;;
  output) [ ! -e "$gates/applied" ] || {{ rm "$gates/applied"; wait_for output; }} ;;
  esac ;;
esac
exec {real} "$@"
"#,
        gates = gates.display(),
        real = real.display()
    );
    let program = programs.join(real.file_name().unwrap());
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        programs.display(),
        sluice_harness::cli::search_path().unwrap()
    );
    env.environment.insert("PATH".to_owned(), path);
}

/// Opens the gates as conditions are reported.
pub(super) struct GateKeeper {
    folder: PathBuf,
}

impl GateKeeper {
    pub(super) fn of(env: &TestEnvironment) -> Self {
        Self { folder: folder(env) }
    }

    /// Handles a changed condition of the stack.
    pub(super) fn update(&self, stack: &Terraform) {
        let ready = crate::observe::condition(stack, "Ready");
        let gate = match ready.as_str() {
            "Unknown Progressing Initializing" => "init",
            "Unknown Progressing Terraform Planning" => "plan",
            "Unknown Progressing Applying" => "apply",
            condition if condition.starts_with("Unknown TerraformAppliedSucceed ") => "output",
            _ => return,
        };
        std::fs::write(self.folder.join(gate), "").unwrap();
    }
}
