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
    // For all layers, as there is only one: a filter of a layer looks up its span again whenever that is entered or left.
    let filter = filter(level);
    match encoding {
        Encoding::Json => {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let lines = JsonLines::new(clock, writer);
            tracing_subscriber::registry()
                .with(lines.and_then(filter))
                .try_init()?;
        }
        Encoding::Console => {
            let lines = fmt::layer()
                .with_writer(writer)
                .with_ansi(colours)
                .with_target(false);
            tracing_subscriber::registry()
                .with(lines.and_then(filter))
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use tracing::subscriber::with_default;
    use tracing::{Event, Subscriber};
    use tracing_subscriber::layer::Context;
    use tracing_subscriber::registry::LookupSpan;

    use super::*;

    /// Sends the target of each event, and the names of its spans.
    struct Recording(Sender<(String, Vec<&'static str>)>);

    impl<S> tracing_subscriber::Layer<S> for Recording
    where
        S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    {
        fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
            let spans = context
                .event_scope(event)
                .into_iter()
                .flat_map(tracing_subscriber::registry::Scope::from_root);
            let names = spans.map(|span| span.name()).collect();
            let target = event.metadata().target().to_owned();
            self.0.send((target, names)).unwrap();
        }
    }

    fn emit() {
        tracing::info_span!(target: "sluice", "pass").in_scope(|| {
            tracing::info_span!(target: "kube_client", "request").in_scope(|| {
                tracing::debug!(target: "sluice", "a detail");
                tracing::info!(target: "sluice", "a change");
                tracing::info!(target: "hyper::client", "a detail of a library");
                tracing::warn!(target: "hyper::client", "a failure in a library");
            });
            tracing::info!(target: "sluice", "the end");
        });
    }

    #[test]
    fn libraries_log_less() {
        let (sender, passed) = channel();
        let layer = Recording(sender).and_then(filter(Level::Info));
        with_default(tracing_subscriber::registry().with(layer), emit);
        let passed: Vec<_> = passed.try_iter().collect();
        let expected = ["sluice", "hyper::client", "sluice"].map(|target| (target.to_owned(), vec!["pass"]));
        assert_eq!(passed, expected);
    }

    #[test]
    fn a_filter_of_all_passes_what_a_filter_of_the_layer_passes() {
        for level in [Level::Trace, Level::Debug, Level::Info, Level::Error] {
            let (sender, of_all) = channel();
            let layer = Recording(sender).and_then(filter(level));
            with_default(tracing_subscriber::registry().with(layer), emit);
            let (sender, of_layer) = channel();
            let layer = Recording(sender).with_filter(filter(level));
            with_default(tracing_subscriber::registry().with(layer), emit);
            let passed: Vec<_> = of_all.try_iter().collect();
            assert_eq!(passed, of_layer.try_iter().collect::<Vec<_>>(), "{level:?}");
            assert!(!passed.is_empty(), "{level:?}");
        }
    }
}
