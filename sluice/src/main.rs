//! The program.

use clap::{Parser, Subcommand};
use sluice::up::{UpArgs, up};
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
    /// Carry out one run; started by `up`.
    #[command(hide = true)]
    TfRunner(RunnerArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    sluice_runtime::http::install_crypto();
    let (encoding, level) = log();
    if let Err(error) = telemetry::install(encoding, level) {
        eprintln!("sluice: no log: {error}");
    }
    match cli.command {
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

/// What a person sees is the view; the log is for what went wrong, in a form for people. Where it is kept in a file it is
/// complete and for programs.
fn log() -> (Encoding, Level) {
    use std::io::IsTerminal;
    if std::io::stderr().is_terminal() {
        (Encoding::Console, Level::Error)
    } else {
        (Encoding::Json, Level::Info)
    }
}

async fn run_one(args: &RunnerArgs) -> ExitCode {
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
