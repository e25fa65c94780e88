//! Any text is a constraint or not, and any tag satisfies it or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_runtime::semver::{Constraint, Version};

fuzz_target!(|data: (&str, &str)| {
    let (Ok(constraint), Some(version)) = (data.0.parse::<Constraint>(), Version::parse(data.1)) else {
        return;
    };
    let _ = constraint.admits(&version);
});
