//! Parses any text as a version constraint and matches any version.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semver::Version;
use sluice_tf_core::cli::installed::VersionConstraint;

fuzz_target!(|data: (&str, &str)| {
    let Ok(constraint) = data.0.parse::<VersionConstraint>() else {
        return;
    };
    assert_eq!(constraint.to_string().parse().as_ref(), Ok(&constraint));
    if let Ok(version) = data.1.parse::<Version>() {
        assert_eq!(
            constraint.newest([&version]).is_some(),
            constraint.matches(&version)
        );
    }
});
