//! The CLI behind a gate: `init`, `plan`, `apply` and the reading of outputs wait until the stack says that they go on.

use super::STACK;
use crate::world::{NAMESPACE, World};
use sluice_api::terraform::Terraform;
use std::{os::unix::fs::PermissionsExt, path::PathBuf};

/// The gates' folder; a file in it opens the gate of its name once.
fn folder(world: &World) -> PathBuf {
    world.path("gates")
}

/// Puts a program of the CLI's name before the CLI. Outputs are waited for after an apply only: before one, nothing is told
/// of them. A gate that stays shut ends the step with an error.
pub(super) fn install(world: &mut World) {
    let real = sluice_harness::cli::terraform().unwrap();
    let (gates, programs) = (folder(world), world.path("programs"));
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
    [ $turns -lt 2000 ] || {{ echo "nobody tells of $1" >&2; exit 97; }}
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
    world.environment.insert("PATH".to_owned(), path);
}

/// Opens the gates, as the stack's new words say.
pub(super) struct Keeper {
    folder: PathBuf,
}

impl Keeper {
    pub(super) fn of(world: &World) -> Self {
        Self {
            folder: folder(world),
        }
    }

    /// The stack says something new.
    pub(super) fn hears(&self, stack: &Terraform) {
        let ready = crate::looks::condition(stack, "Ready");
        let gate = match ready.as_str() {
            "Unknown Progressing Initializing" => "init",
            "Unknown Progressing Terraform Planning" => "plan",
            "Unknown Progressing Applying" => "apply",
            told if told.starts_with("Unknown TerraformAppliedSucceed ") => "output",
            _ => return,
        };
        std::fs::write(self.folder.join(gate), "").unwrap();
    }
}
