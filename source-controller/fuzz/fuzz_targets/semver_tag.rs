//! Any two tag names are versions or not, and versions are ordered.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_runtime::semver::Version;

fuzz_target!(|data: (&str, &str)| {
    if let (Some(one), Some(other)) = (Version::from_tag(data.0), Version::from_tag(data.1)) {
        assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
    }
});
