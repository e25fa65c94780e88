//! Summarizes any bytes as a state. Adds the sensitive values of any JSON; redacted texts do not contain them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::redaction::{MIN_LENGTH, Redactor};
use sluice_tf_core::state_summary::StateSummary;

fuzz_target!(|data: (&[u8], String)| {
    let (state, text) = data;
    let _ = StateSummary::parse(state);
    let mut secrets = Redactor::default();
    if let Ok(state) = serde_json::from_slice(state) {
        secrets.add_state(&state);
    }
    secrets.add_text(&text);
    let shown = secrets.redact(&text).into_owned();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| line.len() >= MIN_LENGTH)
    {
        assert!(!shown.contains(line) || "(sensitive)".contains(line), "{shown:?}");
    }
});
