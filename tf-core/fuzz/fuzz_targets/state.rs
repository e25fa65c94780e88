//! Any JSON is a state or not; what it marks as sensitive is in no text afterwards.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::secrets::{SHORTEST, Secrets};

fuzz_target!(|data: (&[u8], String)| {
    let (state, text) = data;
    let mut secrets = Secrets::default();
    if let Ok(state) = serde_json::from_slice(state) {
        secrets.learn_state(&state);
    }
    secrets.learn(&text);
    let shown = secrets.hide(&text).into_owned();
    for line in text.lines().map(str::trim).filter(|line| line.len() >= SHORTEST) {
        assert!(!shown.contains(line) || "(sensitive)".contains(line), "{shown:?}");
    }
});
