//! Logs: one JSON object per line with the fields that `flux logs` reads, or a readable console format.

mod json;

use std::io::IsTerminal as _;
use std::sync::Arc;

pub use json::JsonLines;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer as _, fmt};

use crate::clock::{Clock, SystemClock};

/// Format of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Encoding {
    /// One JSON object per line.
    #[default]
    Json,
    /// Readable text.
    Console,
}

/// Minimum level of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// Everything.
    Trace,
    /// Includes the results of reconciliations.
    Debug,
    /// Changes and failures.
    #[default]
    Info,
    /// Failures.
    Error,
}

impl Level {
    /// Returns the minimum level of tracing. `error` includes warnings: both are printed as `error`.
    const fn filter(self) -> LevelFilter {
        match self {
            Self::Trace => LevelFilter::TRACE,
            Self::Debug => LevelFilter::DEBUG,
            Self::Info => LevelFilter::INFO,
            Self::Error => LevelFilter::WARN,
        }
    }
}

/// Starts logging to standard error, once per process, and logs panics like errors.
///
/// # Errors
/// Logging was already started.
pub fn install(encoding: Encoding, level: Level) -> Result<(), TryInitError> {
    install_to(encoding, level, std::io::stderr().is_terminal(), std::io::stderr)
}

/// Starts logging to `writer`, which is called for each line. `colours` apply to the console format only.
///
/// # Errors
/// Logging was already started.
pub fn install_to<W, O>(
    encoding: Encoding,
    level: Level,
    colours: bool,
    writer: W,
) -> Result<(), TryInitError>
where
    W: Fn() -> O + Send + Sync + 'static,
    O: std::io::Write + 'static,
{
    let filter = filter(level);
    match encoding {
        Encoding::Json => {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let lines = JsonLines::new(clock, writer).with_filter(filter);
            tracing_subscriber::registry().with(lines).try_init()?;
        }
        Encoding::Console => {
            let lines = fmt::layer()
                .with_writer(writer)
                .with_ansi(colours)
                .with_target(false);
            tracing_subscriber::registry()
                .with(lines.with_filter(filter))
                .try_init()?;
        }
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let said = panic.payload();
        let text = said.downcast_ref::<&str>().copied();
        let text = text
            .or_else(|| said.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no text");
        tracing::error!(place, error = text, "panic");
    }));
    Ok(())
}

/// Libraries log one level less: their `info` does not matter to operators, their `debug` may contain whole requests.
fn filter(level: Level) -> Targets {
    let ours = level.filter();
    let theirs = if ours == LevelFilter::TRACE {
        LevelFilter::DEBUG
    } else {
        LevelFilter::WARN
    };
    let quiet = [
        "hyper",
        "hyper_util",
        "rustls",
        "h2",
        "tower",
        "kube",
        "kube_client",
        "kube_runtime",
        "mio",
    ];
    quiet
        .iter()
        .fold(Targets::new().with_default(ours), |targets, name| {
            targets.with_target(*name, theirs)
        })
}
