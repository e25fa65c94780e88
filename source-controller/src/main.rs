//! The source controller as a program of its own: flags, logs, client, signals.

use std::process::ExitCode;

use sluice_runtime::failure::chain;
use sluice_runtime::metrics::Metrics;
use sluice_runtime::{args, client, shutdown, telemetry};
use sluice_source_controller::{End, Options, StartError, run_with};

#[tokio::main]
async fn main() -> ExitCode {
    let options: Options = args::of_process();
    match start(options).await {
        Ok(End::Stopped) => ExitCode::SUCCESS,
        // Another instance may lead by now: what still runs in the background must not go on.
        Ok(End::LeaseLost) => std::process::exit(1),
        Err(error) => {
            tracing::error!(error = chain(&*error), "source-controller cannot run");
            ExitCode::FAILURE
        }
    }
}

async fn start(options: Options) -> Result<End, Box<dyn std::error::Error>> {
    let logging = options.common.logging;
    telemetry::install(logging.log_encoding, logging.log_level)?;
    let signals = shutdown::on_signals()?;
    let metrics = Metrics::new();
    let settings = client::Settings {
        metrics: metrics.clone(),
        ..client::Settings::default()
    };
    let client = client::build(&settings).await?;
    let running = match run_with(options, client, metrics, signals.token()).await {
        Err(StartError::Stopped) => return Ok(End::Stopped),
        running => running?,
    };
    tracing::info!(artifacts = %running.artifacts, "source-controller started");
    Ok(running.ended().await)
}
