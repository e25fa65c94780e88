//! Any response to a fetch is parsed to its end or refused.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::protocol::fetch::ResponseParser;
use sluice_source_controller::git::protocol::pkt_line::decode;

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    let mut parser = ResponseParser::default();
    while let Ok(Some(packet)) = decode(&mut buffer) {
        if parser.accept(packet).is_err() {
            return;
        }
    }
});
