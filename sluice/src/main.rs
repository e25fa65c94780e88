//! The program.

use clap::{Parser, Subcommand};
use sluice::{
    state::{StateArgs, state},
    up::{UpArgs, up},
};
use sluice_runtime::telemetry::{self, Encoding, Level};
use sluice_tf_runner::{
    args::{self, RunnerArgs},
    run::Ending,
};
use std::process::ExitCode;

/// GitOps for Terraform and OpenTofu.
#[derive(Parser)]
#[command(name = "sluice", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything on this machine, without a cluster: the API, both controllers, and runs as processes.
    Up(UpArgs),
    /// Check or export the objects of a state directory while no `up` runs on it.
    State(StateArgs),
    /// Carry out one run; started by `up`.
    #[command(hide = true)]
    TfRunner(RunnerArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    sluice_runtime::http::install_crypto();
    match cli.command {
        Command::State(args) => match state(&args) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("sluice state: {}", sluice_runtime::failure::chain(&error));
                ExitCode::from(2)
            }
        },
        Command::Up(args) => match up(args).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("sluice up: {}", sluice_runtime::failure::chain(&error));
                ExitCode::FAILURE
            }
        },
        Command::TfRunner(args) => run_one(&args).await,
    }
}

/// The log of a run is complete and for programs; a person at a terminal sees what went wrong.
fn start_log() {
    use std::io::IsTerminal;
    let (encoding, level) = if std::io::stderr().is_terminal() {
        (Encoding::Console, Level::Error)
    } else {
        (Encoding::Json, Level::Info)
    };
    if let Err(error) = telemetry::install(encoding, level) {
        eprintln!("sluice: no log: {error}");
    }
}

async fn run_one(args: &RunnerArgs) -> ExitCode {
    start_log();
    match args::run(args).await {
        Ok(Ending::Succeeded) => ExitCode::SUCCESS,
        Ok(Ending::Failed) => ExitCode::from(1),
        Ok(Ending::Superseded) => ExitCode::from(2),
        Err(error) => {
            eprintln!("sluice tf-runner: {}", sluice_runtime::failure::chain(&error));
            ExitCode::from(3)
        }
    }
}
