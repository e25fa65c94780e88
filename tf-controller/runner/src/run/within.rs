//! Files of the working directory that are read whole: never more of one than its limit, which is looked at first.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result};
use std::path::Path;

/// The bytes of a file.
///
/// # Errors
/// It cannot be read, or is larger than the limit.
pub(super) fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    if size <= limit {
        file.take(limit + 1).read_to_end(&mut bytes)?;
    }
    let size = size.max(bytes.len() as u64);
    if size <= limit {
        return Ok(bytes);
    }
    let name = path.file_name().unwrap_or_default().display();
    let text = format!("{name} has {size} bytes, more than the {limit} that are read");
    Err(Error::new(ErrorKind::FileTooLarge, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_its_limit_is_refused_before_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"four");
        let error = read(&path, 3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(
            error.to_string(),
            "file has 4 bytes, more than the 3 that are read"
        );
        // As large as no memory is.
        let sparse = dir.path().join("sparse");
        File::create(&sparse).unwrap().set_len(1 << 42).unwrap();
        assert_eq!(read(&sparse, 9).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(
            read(&dir.path().join("none"), 9).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}
