//! `sluice install` has the objects of the overlays: `make manifests` renders them into the program.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{OVERLAYS, documents};

#[test]
fn the_program_has_the_objects_of_each_overlay() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/manifests");
    for overlay in OVERLAYS {
        let path = folder.join(format!("{}.yaml", overlay.name));
        let rendered = documents(&fs::read(&path).unwrap());
        assert_eq!(
            sorted(&rendered),
            sorted(&overlay.objects()),
            "{}: run `make manifests` and commit the result",
            overlay.name
        );
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), OVERLAYS.len());
}

/// The order of the objects depends on the version of kubectl.
fn sorted(objects: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    texts.sort();
    texts
}
