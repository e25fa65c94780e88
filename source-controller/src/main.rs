//! The source controller as a program of its own: flags, logs, client, signals.

use std::process::ExitCode;

use clap::Parser as _;
use sluice_runtime::failure::chain;
use sluice_runtime::{client, shutdown, telemetry};
use sluice_source_controller::{Options, run};

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match start(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = chain(&*error), "source-controller cannot run");
            ExitCode::FAILURE
        }
    }
}

async fn start(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let logging = options.common.logging;
    telemetry::install(logging.log_encoding, logging.log_level)?;
    let signals = shutdown::on_signals()?;
    let client = client::build(&client::Settings::default()).await?;
    let running = run(options, client, signals.token()).await?;
    tracing::info!(artifacts = %running.artifacts, "source-controller started");
    running.ended().await;
    Ok(())
}
