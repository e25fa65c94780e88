//! The images of the controllers and of runs, packed from the programs of this build and Debian's libraries.

use std::path::PathBuf;

use sluice_harness::cli;
use sluice_harness::node::{Image, ImageFile, Node};
use sluice_tests::binary;

/// The names in `config`.
const CONTROLLERS: [&str; 2] = ["source-controller", "tf-controller"];
/// The image of runs.
pub(crate) const RUNNER: &str = "sluice.invalid/tf-runner:0.1.0";
/// The libraries that the dynamic linker loads for the program.
const LIBRARIES: [&str; 7] = [
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libresolv.so.2",
    "ld-linux-x86-64.so.2",
];

/// Imports the images under the names of `config`.
pub(crate) fn import(node: &Node) {
    for name in CONTROLLERS {
        let image = base(&format!("sluice.invalid/{name}:0.1.0"), name);
        node.import(&image).unwrap();
    }
    let tofu = cli::tofu().unwrap();
    let runner = base(RUNNER, "tf-runner").file(ImageFile::program(tofu, "/usr/local/bin/tofu"));
    node.import(&runner).unwrap();
}

/// The program under a name, with its libraries.
fn base(image: &str, program: &str) -> Image {
    let path = format!("/usr/local/bin/{program}");
    let image = Image::new(image)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .file(ImageFile::link(&path, "sluice"))
        .file(ImageFile::program(
            binary("sluice").unwrap(),
            "/usr/local/bin/sluice",
        ))
        .file(ImageFile::link(
            "/lib64/ld-linux-x86-64.so.2",
            "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        ));
    LIBRARIES.into_iter().fold(image, |image, library| {
        let path = format!("/lib/x86_64-linux-gnu/{library}");
        let found = PathBuf::from(&path).canonicalize().unwrap();
        image.file(ImageFile::program(found, &path))
    })
}
