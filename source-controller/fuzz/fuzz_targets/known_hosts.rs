//! Any known_hosts file is parsed or refused, and any host can be verified with it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::ssh::KnownHosts;
use sluice_source_controller::git::ssh::known_hosts::Server;

fuzz_target!(|data: (&str, &str, u16)| {
    let (text, host, port) = data;
    if let Ok(known) = KnownHosts::parse(text) {
        let server = Server { host, port };
        let _ = (known.offer(server), known.expected(server));
    }
});
