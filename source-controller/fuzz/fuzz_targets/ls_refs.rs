//! Any line of a list of refs is parsed or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::protocol::ls_refs::parse;

fuzz_target!(|data: &[u8]| {
    let _ = parse(data);
});
