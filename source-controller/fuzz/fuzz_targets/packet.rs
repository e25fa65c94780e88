//! Any bytes are packets or an error, with at most as many packets as the bytes can contain.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::protocol::pkt_line::decode;

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    let mut packets = 0;
    while let Ok(Some(_)) = decode(&mut buffer) {
        packets += 1;
    }
    assert!(packets <= data.len() / 4);
});
