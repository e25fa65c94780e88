//! The module's dependency lock file: what `init` chose is what the plan's effect counts and what its apply gets again, so it
//! is read whole or not at all.

use std::io::{Error, ErrorKind};
use std::path::Path;

use crate::run::lifecycle::error::RunError;
use crate::run::workdir;
use crate::run::workdir::failed;
use crate::run::workdir::prepare::write_private;

/// Its name.
const FILE: &str = ".terraform.lock.hcl";
/// Largest that is read; one of a hundred providers has some hundred kilobytes, and what is
/// kept of an apply holds it beside the bundle.
pub(crate) const LIMIT: u64 = 2 * 1024 * 1024;

/// Its text; `None` where there is no such file.
pub(crate) fn read(module: &Path) -> Result<Option<String>, RunError> {
    let text = match workdir::read_limited(&module.join(FILE), LIMIT) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is no UTF-8 text"))
        }),
    };
    text.map(Some)
        .map_err(|source| failed("read .terraform.lock.hcl", source))
}

/// Puts it into the module.
pub(crate) fn write(module: &Path, text: &str) -> Result<(), RunError> {
    write_private(&module.join(FILE), text.as_bytes())
}

/// Makes it as it was before `init`.
pub(crate) fn restore(module: &Path, text: Option<&str>) -> Result<(), RunError> {
    match text {
        Some(text) => write(module, text),
        None => match std::fs::remove_file(module.join(FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed("remove .terraform.lock.hcl", error))
            }
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_whole_or_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let long = "# a provider\n".repeat(120_000);
        write(dir.path(), &long).unwrap();
        assert_eq!(read(dir.path()).unwrap().as_deref(), Some(long.as_str()));
        std::fs::write(dir.path().join(FILE), [0xff]).unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("lock.hcl") && error.contains("UTF-8"), "{error}");
        let file = std::fs::File::create(dir.path().join(FILE)).unwrap();
        file.set_len(LIMIT + 1).unwrap();
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("2097153 bytes"), "{error}");
    }
}
