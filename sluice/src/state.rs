//! `sluice state`: inspects a state directory that no program uses, and repairs a damaged one. The commands about the state of a stack are
//! those of the command line.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_embedded::{Inspection, StoreError, discard, inspect};

use crate::up::{StateDir, StateDirError};

/// Arguments of `sluice state`.
#[derive(clap::Args, Clone, Debug)]
pub struct StateArgs {
    /// The command.
    #[command(subcommand)]
    pub command: StateCommand,
}

/// The commands of `sluice state`.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum StateCommand {
    /// About a state directory.
    #[command(flatten)]
    Directory(DirectoryCommand),
    /// About the state of a stack.
    #[command(flatten)]
    Stack(sluice_cli::StateCommand),
}

/// The commands about a state directory.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum DirectoryCommand {
    /// Check a state directory of `sluice up`: every page and record of its objects. Exit code 1: something is wrong.
    Check(CheckArgs),
    /// Write the objects of a state directory as one JSON List; a damaged one yields all readable objects.
    Export(ExportArgs),
}

/// Arguments of `sluice state check`.
#[derive(clap::Args, Clone, Debug)]
pub struct CheckArgs {
    /// The directory of `sluice up --state`.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Remove this record, which a check reports as invalid.
    #[arg(long, value_name = "KEY")]
    discard: Option<String>,
}

/// Arguments of `sluice state export`.
#[derive(clap::Args, Clone, Debug)]
pub struct ExportArgs {
    /// The directory of `sluice up --state`.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Write to this file (mode 0600) instead of standard output. It must not exist: the list contains Secrets in clear text.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Why a state directory cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// The objects cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The record to discard is valid or does not exist.
    #[error("--discard {0}: there is no invalid record with this key; delete objects with kubectl")]
    NoBadRecord(String),
    /// The output cannot be written.
    #[error("cannot write {path}: {source}")]
    Output {
        /// The path.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// Runs a command about a state directory. Returns whether the objects are intact.
///
/// # Errors
/// [`StateError`].
pub fn state(command: &DirectoryCommand) -> Result<bool, StateError> {
    let directory = match command {
        DirectoryCommand::Check(check) => &check.state,
        DirectoryCommand::Export(export) => &export.state,
    };
    let state_dir = StateDir::open_existing(directory)?;
    let path = state_dir.store_path();
    if let DirectoryCommand::Check(CheckArgs {
        discard: Some(key), ..
    }) = command
        && !discard(&path, key)?
    {
        return Err(StateError::NoBadRecord(key.clone()));
    }
    let inspection = inspect(&path)?;
    let intact = inspection.damage.is_none() && inspection.bad_records.is_empty();
    match command {
        DirectoryCommand::Check(_) => print(&report(&path, &inspection))?,
        DirectoryCommand::Export(export) => {
            if !intact {
                eprintln!("{}", report(&path, &inspection).trim_end());
            }
            write_list(&inspection, export.out.as_deref())?;
        }
    }
    Ok(intact)
}

/// Returns the report of a check.
fn report(path: &Path, inspection: &Inspection) -> String {
    let format = inspection.format.unwrap_or(0);
    let mut lines = vec![format!(
        "{}: format {format}, version {}, {} objects",
        path.display(),
        inspection.revision,
        inspection.objects.len()
    )];
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for object in &inspection.objects {
        let text = |field: &str| object[field].as_str().unwrap_or("?").to_owned();
        let kind = format!("{} {}", text("apiVersion"), text("kind"));
        *kinds.entry(kind).or_default() += 1;
    }
    for (kind, count) in kinds {
        lines.push(format!("  {count:>6}  {kind}"));
    }
    for record in &inspection.bad_records {
        lines.push(format!("invalid record: {}: {}", record.key, record.reason));
    }
    if let Some(why) = &inspection.damage {
        lines.push(format!("damaged: {why}"));
        lines.push(
            "Readable objects may be wrong. Restore a backup of the directory, or start with an export."
                .into(),
        );
    }
    lines.join("\n") + "\n"
}

fn write_list(inspection: &Inspection, out: Option<&Path>) -> Result<(), StateError> {
    let list: Value = json!({"apiVersion": "v1", "kind": "List", "items": inspection.objects});
    let text = format!("{list:#}\n");
    let Some(out) = out else { return print(&text) };
    let write = || {
        let mut file = fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(out)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| StateError::Output {
        path: out.display().to_string(),
        source,
    })
}

fn print(text: &str) -> Result<(), StateError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|source| StateError::Output {
        path: "standard output".into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sluice_embedded::{ApiServer, Store};

    use super::*;

    fn args(arguments: &[&str], state: &Path) -> DirectoryCommand {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            state: StateArgs,
        }
        let state = state.display().to_string();
        let arguments = ["state"]
            .iter()
            .chain(arguments)
            .copied()
            .chain(["--state", &state]);
        let args = <Cli as clap::Parser>::try_parse_from(arguments).unwrap();
        match args.state.command {
            StateCommand::Directory(command) => command,
            StateCommand::Stack(command) => panic!("not about a directory: {command:?}"),
        }
    }

    /// Creates a state directory with the objects that every server has.
    fn create_state(dir: &Path) {
        let embedded = ApiServer::builder()
            .store(Store::file(dir.join("objects.redb")).unwrap())
            .build()
            .unwrap();
        embedded.stop();
    }

    #[test]
    fn a_state_is_checked_and_exported() {
        let dir = tempfile::tempdir().unwrap();
        // The server's tasks, and with them the store, end with the runtime.
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { create_state(dir.path()) });
        drop(runtime);
        assert!(state(&args(&["check"], dir.path())).unwrap());
        let out = dir.path().join("export.json");
        let text = out.display().to_string();
        assert!(state(&args(&["export", "--out", &text], dir.path())).unwrap());
        let list: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
        let names: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|object| object["kind"] == "Namespace")
            .map(|o| o["metadata"]["name"].clone())
            .collect();
        assert_eq!(names, ["default", "kube-system"]);
        assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
        let again = state(&args(&["export", "--out", &text], dir.path()));
        assert!(
            matches!(again, Err(StateError::Output { .. })),
            "an existing file is not overwritten"
        );
        let refused = state(&args(&["check", "--discard", "namespaces//default"], dir.path()));
        assert!(matches!(refused, Err(StateError::NoBadRecord(_))));
    }

    #[test]
    fn a_report_names_each_problem() {
        let inspection = Inspection {
            bad_records: vec![sluice_embedded::BadRecord {
                key: "secrets/default/a".into(),
                reason: "EOF".into(),
            }],
            damage: Some("checksum".into()),
            ..Inspection::default()
        };
        let text = report(Path::new("objects.redb"), &inspection);
        assert!(text.contains("invalid record: secrets/default/a: EOF"), "{text}");
        assert!(text.contains("damaged: checksum"), "{text}");
    }
}
