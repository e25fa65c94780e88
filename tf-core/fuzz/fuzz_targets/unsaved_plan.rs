//! Parses any text as an unsaved plan.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::plan::{summary, unsaved};

fuzz_target!(|text: &str| {
    let section = unsaved::plan_section(text);
    assert!(section.len() <= text.len());
    let _ = summary::summarize(&unsaved::document(text).expect("it is made here"));
});
