//! Renders any template, with the functions of Go and with those of sprig.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::template::{Delimiters, Functions, render};

fuzz_target!(|text: &str| {
    let data = serde_json::json!({"name": "web", "count": 3, "items": ["a", "b"], "map": {"k": "v"}, "wide": "é漢🦀"});
    let _ = render(text, Delimiters::Curly, Functions::Text, &data);
    let _ = render(text, Delimiters::DollarCurly, Functions::BuiltIn, &data);
});
