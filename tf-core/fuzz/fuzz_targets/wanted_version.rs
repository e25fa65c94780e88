//! Any text is a version, a constraint or neither, and any version is taken by it or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semver::Version;
use sluice_tf_core::cli::installed::Wanted;

fuzz_target!(|data: (&str, &str)| {
    let Ok(wanted) = data.0.parse::<Wanted>() else { return };
    assert_eq!(wanted.to_string().parse().as_ref(), Ok(&wanted));
    if let Ok(version) = data.1.parse::<Version>() {
        assert_eq!(wanted.newest([&version]).is_some(), wanted.takes(&version));
    }
});
