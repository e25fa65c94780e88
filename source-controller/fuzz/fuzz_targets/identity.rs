//! Any private key is parsed or refused in bounded time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::ssh::identity::{is_encrypted, parse};

fuzz_target!(|data: &str| {
    let _ = (is_encrypted(data), parse(data, None), parse(data, Some("passphrase")));
});
