//! The runner: carries out one `TerraformRun` and ends. Exit code 0: it succeeded; 1: it failed, and its status says why;
//! 2: the run was superseded; 3: it could not begin, or somebody else has it.

use std::process::ExitCode;

use clap::Parser;
use sluice_runtime::telemetry::{self, Encoding, Level};
use sluice_tf_runner::args::{self, RunnerArgs};
use sluice_tf_runner::run::Ending;

/// Carries out one TerraformRun.
#[derive(Parser)]
#[command(name = "tf-runner", version)]
struct Cli {
    #[command(flatten)]
    runner: RunnerArgs,
    /// Form of the log.
    #[arg(long, value_enum, default_value_t)]
    log_encoding: Encoding,
    /// Least severe entry of the log.
    #[arg(long, value_enum, default_value_t)]
    log_level: Level,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = telemetry::install(cli.log_encoding, cli.log_level) {
        eprintln!("tf-runner: no log: {error}");
    }
    match args::run(&cli.runner).await {
        Ok(Ending::Succeeded) => ExitCode::SUCCESS,
        Ok(Ending::Failed) => ExitCode::from(1),
        Ok(Ending::Superseded) => ExitCode::from(2),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the run did not begin");
            eprintln!("tf-runner: {}", sluice_runtime::failure::chain(&error));
            ExitCode::from(3)
        }
    }
}
