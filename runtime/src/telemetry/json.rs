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

/// The fields of a span or an event. Nearly all reconciliations end without a line, so a span keeps its texts in one string, and a line
/// makes values of them.
#[derive(Default)]
struct Fields {
    /// The texts, one after another.
    texts: String,
    fields: Vec<(&'static str, Recorded)>,
}

/// The value of a field.
enum Recorded {
    /// The length of the next text.
    Text(usize),
    /// Anything but text.
    Other(Value),
}

impl Fields {
    /// Creates an empty list with space for the fields of most spans.
    fn with_capacity(fields: usize) -> Self {
        Self {
            texts: String::with_capacity(TEXT_CAPACITY),
            fields: Vec::with_capacity(fields),
        }
    }

    fn put_text(&mut self, field: &Field, text: &str) {
        self.texts.push_str(text);
        self.fields.push((field.name(), Recorded::Text(text.len())));
    }

    fn put(&mut self, field: &Field, value: Value) {
        self.fields.push((field.name(), Recorded::Other(value)));
    }

    fn append(&mut self, later: Self) {
        self.texts.push_str(&later.texts);
        self.fields.extend(later.fields);
    }

    /// Returns names and values in the order of their recording.
    fn values(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let mut texts = &*self.texts;
        self.fields.iter().map(move |(name, recorded)| {
            let value = match recorded {
                Recorded::Text(length) => {
                    let (text, rest) = texts.split_at(*length);
                    texts = rest;
                    Value::from(text)
                }
                Recorded::Other(value) => value.clone(),
            };
            (*name, value)
        })
    }
}

/// Space for the texts of a span: those of a reconciliation with names of usual length.
const TEXT_CAPACITY: usize = 160;

impl<S, W, O> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    W: Fn() -> O + 'static,
    O: Write,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::with_capacity(attributes.metadata().fields().len());
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(span) = context.span(id)
            && let Some(earlier) = span.extensions_mut().get_mut::<Fields>()
        {
            earlier.append(fields);
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
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.extend(fields.values().map(|(name, value)| (name.to_owned(), value)));
            }
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut message = json!("");
        for (name, value) in fields.values() {
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

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, value);
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
        self.put_text(field, &chain(value));
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
    fn fields_of_each_type_and_time_reach_the_line() {
        let sink = Sink::default();
        let out = sink.clone();
        let clock = Arc::new(ManualClock::new("2026-01-02T03:04:05Z".parse().unwrap()));
        let layer = JsonLines::new(clock, move || out.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let error = std::io::Error::other("out of \"luck\"");
            let outer = tracing::info_span!(
                "outer",
                first = "é\n",
                empty = "",
                yes = true,
                none = None::<i64>,
                below = -1,
                above = u64::MAX,
                part = 0.5,
                shared = "outer",
                later = tracing::field::Empty,
                error = tracing::field::Empty,
            );
            outer.record("error", &error as &dyn std::error::Error);
            let inner = outer.in_scope(|| tracing::info_span!("inner", shared = ?Some(1), own = %"own"));
            outer.record("later", "ü");
            // A field that is recorded again has its last value.
            outer.record("first", "again");
            inner.in_scope(|| tracing::info!(yes = false, text = "end", "done"));
            outer.in_scope(|| tracing::info!("outside"));
        });
        let text = String::from_utf8(lock(&sink.0).clone()).unwrap();
        let expected = concat!(
            r#"{"above":18446744073709551615,"below":-1,"empty":"","error":"out of \"luck\"","first":"again","later":"ü","#,
            r#""level":"info","msg":"done","own":"own","part":0.5,"shared":"Some(1)","text":"end","#,
            r#""ts":"2026-01-02T03:04:05.000Z","yes":false}"#,
            "\n",
            r#"{"above":18446744073709551615,"below":-1,"empty":"","error":"out of \"luck\"","first":"again","later":"ü","#,
            r#""level":"info","msg":"outside","part":0.5,"shared":"outer","ts":"2026-01-02T03:04:05.000Z","yes":true}"#,
            "\n",
        );
        assert_eq!(text, expected);
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
