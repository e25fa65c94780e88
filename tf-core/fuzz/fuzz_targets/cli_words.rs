//! Whatever a CLI says, its errors can be shown, and its locks, outputs and version are found or not.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::cli::text::{bounded, masked, plain, presentable};
use sluice_tf_core::cli::tool::{Tool, version};
use sluice_tf_core::cli::{lock, output};

fuzz_target!(|data: &[u8]| {
    let tool = Tool {
        name: "tofu".into(),
        path: PathBuf::new(),
    };
    let _ = (version(&tool, data), output::parse(data), output::names_said(data));
    let text = String::from_utf8_lossy(data);
    let _ = (plain(&text), masked(&text), lock::parse(&text));
    assert!(bounded(&presentable(&text), 10).chars().count() <= 13);
});
