//! Any answer of a provider is a token, keys or an error, and a token can stand in a header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::identity::answer;

fuzz_target!(|data: &[u8]| {
    if let Ok(granted) = answer::installation_token(data) {
        assert!(granted.token.expose().bytes().all(|byte| byte.is_ascii_graphic()));
    }
    let _ = answer::installation_id(data);
    let _ = answer::entra_token(data, Default::default());
    let _ = answer::metadata_keys(data);
    let _ = answer::assumed_keys(data);
    let _ = answer::line(data);
    let _ = answer::complaint(data);
});
