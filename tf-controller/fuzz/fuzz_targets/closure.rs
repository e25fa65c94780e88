//! The closure of a module with any bytes as a file, in either syntax: it stays in the artifact and is deterministic.
#![no_main]

use std::fs::{create_dir_all, write};

use libfuzzer_sys::fuzz_target;
use sluice_tf_controller::inputs::closure::{Tree, read};

/// Maximum length of the reason why the whole artifact counts.
const MAX_REASON: usize = 1000;

fuzz_target!(|data: (bool, &[u8])| {
    let (json, bytes) = data;
    let folder = tempfile::tempdir().expect("a folder");
    let name = if json { "a/main.tf.json" } else { "a/main.tf" };
    // Files that it can name: a nested module, a sibling module, templates.
    let files: [(&str, &[u8]); 5] = [
        (name, bytes),
        ("a/m/main.tf", b"locals { a = file(\"../b/x\") }"),
        ("b/main.tf", b""),
        ("b/x", b"plain"),
        ("b/t", b"${file(\"x\")}"),
    ];
    for (path, bytes) in files {
        let path = folder.path().join(path);
        create_dir_all(path.parent().expect("a folder")).expect("a folder");
        write(path, bytes).expect("a file");
    }
    let tree = Tree::read(folder.path()).expect("files that were just written");
    let closure = read(&tree, "a", &[]).expect("a module that was just written");
    assert_eq!(read(&tree, "a", &[]).expect("as before"), closure);
    match &closure.wide {
        Some(why) => {
            assert!(why.len() <= MAX_REASON, "{why}");
            assert!(closure.reads.is_empty() && closure.files == tree.len());
            assert_eq!(closure.digest, tree.digest());
        }
        None => {
            assert!(closure.reads.iter().any(|path| path == "a") && closure.files >= 1);
            let leads_out = |path: &String| path.starts_with('/') || path.split('/').any(|part| part == "..");
            assert!(!closure.reads.iter().any(leads_out), "{:?}", closure.reads);
        }
    }
});
