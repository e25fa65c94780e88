//! `sluice state`: the state of a stack in the generated backend, and the copies that runs made of it.

mod copies;
mod restore;
mod stored;

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use copies::{CopyEntry, entries, table};
use kube::ResourceExt as _;
use sluice_api::terraform::Terraform;
use stored::{StoredState, addresses};

use super::Context;
use crate::cluster::{Cluster, ConnectionArgs};
use crate::output::{OutputFormat, lines, list_of, printable, to_json, to_yaml};
use crate::{CliError, ExitStatus, stack};

/// The commands about the state of a stack.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum StateCommand {
    /// List the state of a stack and its copies.
    List(ListArgs),
    /// List the resources in a state.
    Show(OneArgs),
    /// Print a state. It contains all values, the sensitive ones too.
    Pull(PullArgs),
    /// Write a copy back to the backend. It changes no resource.
    Restore(RestoreArgs),
}

/// Arguments of `sluice state list`.
#[derive(clap::Args, Clone, Debug)]
pub struct ListArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The format.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: OutputFormat,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Arguments of `sluice state show`.
#[derive(clap::Args, Clone, Debug)]
pub struct OneArgs {
    /// The stack.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// A copy instead of the current state.
    #[arg(long, value_name = "ID")]
    pub copy: Option<String>,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

/// Arguments of `sluice state pull`.
#[derive(clap::Args, Clone, Debug)]
pub struct PullArgs {
    /// Which state.
    #[command(flatten)]
    pub state: OneArgs,
    /// Write to this file (mode 0600) instead of standard output. It must not exist.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `sluice state restore`.
#[derive(clap::Args, Clone, Debug)]
pub struct RestoreArgs {
    /// The stack. It must be suspended.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The copy.
    #[arg(long, value_name = "ID")]
    pub copy: String,
    /// Do not ask.
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// The API.
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

impl StateCommand {
    /// Returns the flags of the connection.
    pub(super) const fn connection(&self) -> &ConnectionArgs {
        match self {
            Self::List(args) => &args.connection,
            Self::Show(args) => &args.connection,
            Self::Pull(args) => &args.state.connection,
            Self::Restore(args) => &args.connection,
        }
    }
}

/// Reads the state of a stack in the generated backend, as the CLI reads it; `None`: there is none.
///
/// # Errors
/// The state is in another backend, in several parts or damaged, or the API rejects the request.
pub async fn current_state(cluster: &Cluster, stack: &Terraform) -> Result<Option<Vec<u8>>, CliError> {
    let found = stored::read(cluster, stack).await?;
    Ok(found.map(|state| state.bytes))
}

/// Returns the ids of the copies of a stack's state, newest first.
///
/// # Errors
/// The API rejects the request.
pub(crate) async fn copy_ids(cluster: &Cluster, stack: &Terraform) -> Result<Vec<String>, CliError> {
    let copies = copies::list(cluster, stack).await?;
    Ok(entries(&copies).into_iter().map(|entry| entry.id).collect())
}

/// Runs a command about the state.
pub(super) async fn state(context: &Context, command: &StateCommand) -> Result<ExitStatus, CliError> {
    match command {
        StateCommand::List(args) => list(context, args).await,
        StateCommand::Show(args) => show(context, args).await,
        StateCommand::Pull(args) => pull(context, args).await,
        StateCommand::Restore(args) => restore::restore(context, args).await,
    }
}

async fn list(context: &Context, args: &ListArgs) -> Result<ExitStatus, CliError> {
    let stack: Terraform = context.cluster.get(&args.name).await?;
    let copies = copies::list(&context.cluster, &stack).await?;
    let mut rows = Vec::new();
    match stored::read(&context.cluster, &stack).await {
        Ok(current) => rows.extend(current.map(|state| CopyEntry::of_current(&stack, &state))),
        // The copies are shown all the same: the state may be in another backend.
        Err(error) => context.report(&error),
    }
    rows.extend(entries(&copies));
    let console = context.console;
    match args.output {
        OutputFormat::Json => console.data(&to_json(&list_of(&rows)?)?)?,
        OutputFormat::Yaml => console.data(&to_yaml(&list_of(&rows)?)?)?,
        OutputFormat::Name => {
            console.data(&lines(rows.iter().map(|row| &row.id)))?;
        }
        OutputFormat::Table | OutputFormat::Wide if rows.is_empty() => {
            console.note("There is neither a state nor a copy.");
        }
        OutputFormat::Table | OutputFormat::Wide => console.table(&table(&rows))?,
    }
    Ok(ExitStatus::Success)
}

async fn show(context: &Context, args: &OneArgs) -> Result<ExitStatus, CliError> {
    let state = read_state(context, args).await?;
    let console = context.console;
    console.note(&format!("{}:", state.describe()));
    console.data(&printable(&lines(addresses(&state.bytes)?)))?;
    Ok(ExitStatus::Success)
}

async fn pull(context: &Context, args: &PullArgs) -> Result<ExitStatus, CliError> {
    let state = read_state(context, &args.state).await?;
    match &args.out {
        Some(path) => write_private(path, &state.bytes)?,
        None => context.console.data(&String::from_utf8_lossy(&state.bytes))?,
    }
    context.console.note(&state.describe());
    Ok(ExitStatus::Success)
}

/// Reads the copy that the arguments name, or else the current state.
async fn read_state(context: &Context, args: &OneArgs) -> Result<StoredState, CliError> {
    let stack: Terraform = context.cluster.get(&args.name).await?;
    if let Some(id) = &args.copy {
        return Ok(copies::read(&context.cluster, &stack, id).await?.state);
    }
    let current = stored::read(&context.cluster, &stack).await?;
    current.ok_or_else(|| CliError::Refused {
        object: format!("terraform {}", stack::full_name(&stack)),
        cause: "it has no state in the generated backend".to_owned(),
        next_command: format!("sluice state list {}", stack.name_any()),
    })
}

/// Writes a file that only this user can read.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let write = || {
        let mut file = std::fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|source| CliError::File {
        what: format!("cannot write {}", path.display()),
        source,
    })
}
