//! Any ref advertisement of an older server is parsed or refused, and so is any response to the following request.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::protocol::pkt_line::decode;
use sluice_source_controller::git::protocol::v0::{ResponseParser, RefAdvertisement};

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    let mut advertisement = RefAdvertisement::default();
    while !advertisement.is_complete() {
        let Ok(Some(packet)) = decode(&mut buffer) else { break };
        if advertisement.accept(&packet).is_err() {
            break;
        }
    }
    let mut parser = ResponseParser::new(&advertisement.capabilities());
    while let Ok(Some(packet)) = decode(&mut buffer) {
        if parser.accept(packet).is_err() || parser.is_raw() {
            return;
        }
    }
});
