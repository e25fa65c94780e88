//! Any bytes are the index of an artifact or not, with the digest at their end or without; an index is written as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::archive::{Algorithm, Hasher, Index};

fuzz_target!(|data: &[u8]| {
    for bytes in [data.to_vec(), signed(data)] {
        if let Ok(index) = Index::parse(&bytes) {
            assert_eq!(index.encode(), bytes);
        }
    }
});

/// Appends the SHA-256 of the bytes, which no input finds by chance.
fn signed(data: &[u8]) -> Vec<u8> {
    let mut hasher = Hasher::new(Algorithm::Sha256);
    hasher.update(data);
    let digest = hasher.finish();
    let digits = digest.hex().as_bytes().chunks(2);
    let bytes = digits.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    data.iter().copied().chain(bytes).collect()
}
