//! Commands for the first minutes. Those that need an API connect on their own: the others work without a kubeconfig.

mod adopt;
mod check;
mod completion;
mod components;
mod create;
mod init;
mod install;
mod migrate;
mod version;

use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, finish};
use crate::cluster::{Cluster, ConnectionArgs};
use crate::output::{Console, to_values};
use crate::{CliError, ExitStatus, output};

/// The commands for the first minutes.
#[derive(clap::Subcommand, Debug)]
pub enum BeginCommand {
    /// Write a starter repository: a small module, and the manifests that apply it.
    Init(init::InitArgs),
    /// Create a source or a stack, or print its manifest.
    Create(create::CreateArgs),
    /// Find the root modules of a repository, and print a manifest for each.
    Adopt(adopt::AdoptArgs),
    /// Say what will happen to each object of tofu-controller. Nothing is changed.
    Migrate(migrate::MigrateArgs),
    /// Check a cluster before the installation, or an installation.
    Check(check::CheckArgs),
    /// Install the controllers into a cluster.
    Install(install::InstallArgs),
    /// Delete the controllers from a cluster. Definitions, namespaces and objects stay.
    Uninstall(install::UninstallArgs),
    /// Print a script that completes commands, flags and names in a shell.
    Completion(completion::CompletionArgs),
    /// Print what the last word can be; scripts of shells and kubectl call it.
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete(completion::CompleteArgs),
    /// Print the versions of this program, of the API server and of the controllers.
    Version(version::VersionArgs),
}

impl BeginCommand {
    /// Returns the flags of the connection, if the command has them.
    fn connection(&self) -> Option<&ConnectionArgs> {
        match self {
            Self::Create(args) => Some(args.connection()),
            Self::Migrate(args) => Some(&args.connection),
            Self::Check(args) => Some(&args.connection),
            Self::Install(args) => Some(&args.connection),
            Self::Uninstall(args) => Some(&args.connection),
            Self::Version(args) => Some(&args.connection),
            Self::Init(_) | Self::Adopt(_) | Self::Completion(_) | Self::Complete(_) => None,
        }
    }
}

/// Returns a report: its version, its kind, and its entries.
fn report(kind: &str, entries: &[impl Serialize]) -> Result<Value, CliError> {
    Ok(output::report(kind, json!({ "items": to_values(entries)? })))
}

/// Runs a command and reports its error: object, cause, and the next command to type. `tree` builds all commands of the program.
pub async fn begin(command: BeginCommand, tree: fn() -> clap::Command) -> ExitCode {
    let connection = command.connection().cloned();
    let console = Console::new(connection.as_ref().is_some_and(|connection| connection.no_color));
    finish(console, connection.as_ref(), run(command, tree, console).await)
}

async fn run(
    command: BeginCommand,
    tree: fn() -> clap::Command,
    console: Console,
) -> Result<ExitStatus, CliError> {
    // Boxed: their futures hold requests and lists.
    match command {
        BeginCommand::Init(args) => init::init(&args, console),
        BeginCommand::Create(args) => Box::pin(create::create(&args, console)).await,
        BeginCommand::Adopt(args) => adopt::adopt(&args, console),
        BeginCommand::Migrate(args) => Box::pin(migrate::migrate(&args, console)).await,
        BeginCommand::Check(args) => Box::pin(check::check(&args, console)).await,
        BeginCommand::Install(args) => Box::pin(install::install(&args, console)).await,
        BeginCommand::Uninstall(args) => Box::pin(install::uninstall(&args, console)).await,
        BeginCommand::Completion(args) => completion::completion(&args, console),
        BeginCommand::Complete(args) => Box::pin(completion::complete(&args, tree(), console)).await,
        BeginCommand::Version(args) => Box::pin(version::version(&args, console)).await,
    }
}

/// Connects to the API of the flags; sends no request.
async fn connect(connection: &ConnectionArgs, console: Console) -> Result<Context, CliError> {
    let cluster = Cluster::connect(connection).await?;
    Ok(Context { cluster, console })
}
