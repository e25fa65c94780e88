//! Decodes any bytes as a bundle; a decoded bundle survives encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_tf_core::bundle::Bundle;

fuzz_target!(|data: &[u8]| {
    let Ok(bundle) = Bundle::decode(data) else { return };
    if let Ok(again) = bundle.encode() {
        assert!(Bundle::decode(again.as_bytes()).is_ok_and(|again| again == bundle));
    }
});
