//! Any answer to a fetch is read to its end or refused.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::protocol::fetch::Answer;
use sluice_source_controller::git::protocol::packet::decode;

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    let mut answer = Answer::default();
    while let Ok(Some(packet)) = decode(&mut buffer) {
        if answer.accept(packet).is_err() {
            return;
        }
    }
});
