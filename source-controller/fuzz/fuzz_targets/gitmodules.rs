//! Any bytes are a configuration file or not; no returned path of a submodule leaves the repository.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::submodule;

fuzz_target!(|data: &[u8]| {
    let _ = submodule::config::parse(data);
    for submodule in submodule::parse(data).unwrap_or_default() {
        assert!(!submodule.path.starts_with('/') && submodule.path.split('/').all(|part| part != ".."));
    }
});
