//! Any list of refs of an older server is read or refused, and so is any answer to the request that goes by it.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::protocol::packet::decode;
use sluice_source_controller::git::protocol::v0::{Answer, Listing};

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    let mut listing = Listing::default();
    while !listing.is_over() {
        let Ok(Some(packet)) = decode(&mut buffer) else { break };
        if listing.accept(&packet).is_err() {
            break;
        }
    }
    let mut answer = Answer::of(&listing.capabilities());
    while let Ok(Some(packet)) = decode(&mut buffer) {
        if answer.accept(packet).is_err() || answer.is_bare() {
            return;
        }
    }
});
