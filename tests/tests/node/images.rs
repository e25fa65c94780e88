//! The images of the controllers and of runs, packed from the programs of this build, as `make images` packs those of a release.

use std::path::Path;

use jiff::Timestamp;
use sluice_harness::node::Node;
use sluice_harness::{cli, gobuild};
use sluice_images::pack::{Options, cli_program, pack};
use sluice_tests::binary;

/// The image of runs under its name in `config`.
pub(crate) const RUNNER: &str = "sluice.invalid/tf-runner:0.1.0";

/// Imports the images under the names of `config`. They have the newest packages of Debian, not the locked ones: Debian's archive
/// serves no others.
pub(crate) fn import(node: &Node, folder: &Path) {
    let clis = [cli_program(&cli::tofu().unwrap(), true).unwrap()];
    let images = pack(&Options {
        program: &binary("sluice").unwrap(),
        clis: &clis,
        registry: "sluice.invalid",
        tag: "0.1.0",
        lock: None,
        cache: &gobuild::tools_dir().join("image-packages"),
        output: folder,
        created: Timestamp::UNIX_EPOCH,
        // The program of a test build is larger.
        controller_limit: None,
    });
    let images = images.unwrap();
    assert!(
        images
            .iter()
            .any(|packed| packed.image.reference.to_string() == RUNNER)
    );
    for packed in &images {
        node.import(&packed.image.archive).unwrap();
    }
}
