//! Folders on the disk of the target directory. The temporary directory may be in memory, where a sync costs nothing.

use std::path::{Path, PathBuf};

use sluice_tests::{BoxError, binary};

/// Folder of repositories that are created once.
pub(crate) const INPUTS: &str = "bench-inputs";
/// Folder of the stores of a measurement.
pub(crate) const DATA: &str = "bench-data";

/// Creates a folder in the target directory of the programs, and returns its path.
pub(crate) fn folder(name: &str) -> Result<PathBuf, BoxError> {
    let program = binary("sluice")?;
    let target = program.parent().and_then(Path::parent);
    let folder = target.ok_or("the program is in no target directory")?.join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
