//! Parses any output of the CLI: errors, locks, outputs and versions.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::cli::text::{mask_variables, strip_and_mask, strip_formatting, truncate};
use sluice_tf_core::cli::tool::{Tool, parse_version};
use sluice_tf_core::cli::{lock, output};

fuzz_target!(|data: &[u8]| {
    let tool = Tool {
        name: "tofu".into(),
        path: PathBuf::new(),
        version: None,
    };
    let _ = (
        parse_version(&tool, data),
        output::parse(data),
        output::names_from_apply(data),
    );
    let text = String::from_utf8_lossy(data);
    let _ = (strip_formatting(&text), mask_variables(&text), lock::parse(&text));
    assert!(truncate(&strip_and_mask(&text), 10).chars().count() <= 13);
});
