//! Any text that a CLI shows instead of a plan is a plan of some effect.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::plan::{shown, summary};

fuzz_target!(|text: &str| {
    let essence = shown::essence(text);
    assert!(essence.len() <= text.len());
    let _ = summary::summarize(&shown::document(text).expect("it is made here"));
});
