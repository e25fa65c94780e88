//! Any bytes are a commit or a tree, or neither; no returned name leaves the tree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_source_controller::git::object::{Commit, parse_tree};

fuzz_target!(|data: &[u8]| {
    let id = git2::Oid::from_bytes(&[0; 20]).expect("twenty bytes");
    let _ = Commit::parse(id, data);
    for entry in parse_tree(id, data).unwrap_or_default() {
        let name = &data[entry.name];
        assert!(!name.is_empty() && name != b".." && !name.contains(&b'/'));
    }
});
