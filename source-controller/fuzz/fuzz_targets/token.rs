//! Any response of a provider is a token, keys or an error, and a token is a valid header value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::identity::response;

fuzz_target!(|data: &[u8]| {
    if let Ok(granted) = response::installation_token(data) {
        assert!(granted.token.expose().bytes().all(|byte| byte.is_ascii_graphic()));
    }
    let _ = response::installation_id(data);
    let _ = response::entra_token(data, Default::default());
    let _ = response::metadata_keys(data);
    let _ = response::assumed_keys(data);
    let _ = response::first_line(data);
    let _ = response::error_message(data);
});
