//! Any two names of tags are versions or not, and versions stand in an order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_runtime::semver::Version;

fuzz_target!(|data: (&str, &str)| {
    if let (Some(one), Some(other)) = (Version::of_tag(data.0), Version::of_tag(data.1)) {
        assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
    }
});
