//! A tracing layer that writes JSON lines.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::clock::Clock;
use crate::failure::chain;

/// Writes each event as one JSON object per line: `level`, `ts` (with milliseconds), `msg`, the fields of its spans from
/// outermost to innermost, and its own fields. If a span has `controllerKind`, `name` and `namespace`, the object is also
/// written under the name of its kind.
#[derive(Debug)]
pub struct JsonLines<W> {
    clock: Arc<dyn Clock>,
    writer: W,
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl<W> JsonLines<W> {
    /// Creates a layer that opens `writer()` for each line.
    pub const fn new(clock: Arc<dyn Clock>, writer: W) -> Self {
        Self { clock, writer }
    }
}

/// The fields that a span adds to its lines. A list: nearly all reconciliations end without a line, so most spans never need a map.
struct SpanFields(Vec<(&'static str, Value)>);

impl<S, W, O> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    W: Fn() -> O + 'static,
    O: Write,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(fields.0));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(span) = context.span(id)
            && let Some(SpanFields(held)) = span.extensions_mut().get_mut()
        {
            held.extend(fields.0);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Map::new();
        line.insert("level".into(), level(*event.metadata().level()).into());
        line.insert("ts".into(), json!(format!("{:.3}", self.clock.now())));
        line.insert("msg".into(), Value::Null);
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(tracing_subscriber::registry::Scope::from_root)
        {
            if let Some(SpanFields(fields)) = span.extensions().get() {
                line.extend(
                    fields
                        .iter()
                        .map(|(name, value)| ((*name).to_owned(), value.clone())),
                );
            }
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut message = json!("");
        for (name, value) in fields.0 {
            if name == "message" {
                message = value;
            } else {
                line.insert(name.to_owned(), value);
            }
        }
        line.insert("msg".into(), message);
        if let Some(kind) = line
            .get("controllerKind")
            .and_then(Value::as_str)
            .map(str::to_owned)
            && let (Some(name), Some(namespace)) = (line.get("name"), line.get("namespace"))
        {
            line.insert(kind, json!({ "name": name, "namespace": namespace }));
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        // One write per line, so that lines of several threads do not mix. A failure cannot be reported.
        drop((self.writer)().write_all(text.as_bytes()));
    }
}

/// Flux's tools do not know `warn`.
const fn level(level: Level) -> &'static str {
    match level {
        Level::TRACE => "trace",
        Level::DEBUG => "debug",
        Level::INFO => "info",
        Level::WARN | Level::ERROR => "error",
    }
}

#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.push((field.name(), value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, json!(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, json!(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, json!(chain(value)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::clock::ManualClock;
    use crate::sync::lock;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            lock(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_a_reconciliation_has_controller_object_and_cause() {
        let sink = Sink::default();
        let out = sink.clone();
        let clock = Arc::new(ManualClock::new("2026-01-02T03:04:05.678901Z".parse().unwrap()));
        let layer = JsonLines::new(clock, move || out.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let pass = tracing::info_span!(
                "reconcile",
                controller = "gitrepository",
                controllerGroup = "source.toolkit.fluxcd.io",
                controllerKind = "GitRepository",
                namespace = "ns",
                name = "a",
                reconcileID = tracing::field::Empty
            );
            pass.record("reconcileID", "id-1");
            let error = std::io::Error::other("no \"luck\"\n");
            pass.in_scope(|| {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    bytes = 7,
                    "not {}",
                    "stored"
                );
            });
        });
        let text = String::from_utf8(lock(&sink.0).clone()).unwrap();
        assert_eq!(text.lines().count(), 1);
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            line,
            json!({
                "level": "error", "ts": "2026-01-02T03:04:05.678Z", "msg": "not stored", "error": "no \"luck\"\n", "bytes": 7,
                "controller": "gitrepository", "controllerGroup": "source.toolkit.fluxcd.io",
                "controllerKind": "GitRepository", "namespace": "ns", "name": "a",
                "reconcileID": "id-1", "GitRepository": {"name": "a", "namespace": "ns"},
            })
        );
    }

    #[test]
    fn levels_are_those_of_flux() {
        let sink = Sink::default();
        let out = sink.clone();
        let clock = Arc::new(ManualClock::new("2026-01-02T03:04:05Z".parse().unwrap()));
        let layer = JsonLines::new(clock, move || out.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::trace!("a");
            tracing::debug!("b");
            tracing::info!("c");
            tracing::warn!("d");
            tracing::error!("e");
        });
        let text = String::from_utf8(lock(&sink.0).clone()).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let expected = [
            ("trace", "a"),
            ("debug", "b"),
            ("info", "c"),
            ("error", "d"),
            ("error", "e"),
        ]
        .map(|(level, text)| json!({"level": level, "ts": "2026-01-02T03:04:05.000Z", "msg": text}));
        assert_eq!(lines, expected);
    }
}
