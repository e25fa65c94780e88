//! Files of the user that a command changes.

use std::io::{self, Write as _};
use std::path::Path;

use tempfile::NamedTempFile;

/// Replaces the text of a file at once, by a rename in its directory: whatever happens, the file has the old text or the new one. It keeps
/// its mode, and a link to it stays a link.
///
/// # Errors
/// It is not a regular file, or its directory cannot be written.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let target = std::fs::canonicalize(path)?;
    let metadata = std::fs::metadata(&target)?;
    let Some(directory) = target.parent().filter(|_| metadata.is_file()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ));
    };
    let mut temporary = NamedTempFile::new_in(directory)?;
    temporary.write_all(text.as_bytes())?;
    let file = temporary.as_file();
    file.set_permissions(metadata.permissions())?;
    file.sync_all()?;
    temporary.persist(&target).map_err(|failed| failed.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_mode_and_its_links() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("app.yaml"), directory.path().join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        symlink("app.yaml", &link).unwrap();
        let mut reader = File::open(&path).unwrap();
        replace(&link, "the new text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "the new text");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        // A reader that has the file open reads the old text to its end: the file was not written in place.
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        assert!(replace(directory.path(), "x").is_err());
        assert!(replace(&directory.path().join("absent"), "x").is_err());
        assert!(replace(Path::new("/dev/null"), "x").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
