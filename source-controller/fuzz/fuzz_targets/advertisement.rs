//! Any response to the first request is parsed or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::protocol::advertisement::parse;

fuzz_target!(|data: &[u8]| {
    let _ = parse(data);
});
