//! Removal of the preamble of JSON output. OpenTofu prints warnings about the CLI configuration before the JSON; Terraform prints them
//! to the standard error.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Size limit of a preamble, in bytes.
const PREAMBLE_LIMIT: u64 = 256 * 1024;

/// Removes everything before the first line that begins with `{`. A file without such a line stays as it is; its parser rejects it.
///
/// # Errors
/// The file cannot be read or written.
pub fn strip_preamble(file: &Path) -> io::Result<()> {
    let mut source = File::open(file)?;
    let start = find_object(BufReader::new(&source).take(PREAMBLE_LIMIT))?.unwrap_or(0);
    if start == 0 {
        return Ok(());
    }
    source.seek(SeekFrom::Start(start))?;
    let stripped = file.with_extension("bare");
    // The output may be sensitive.
    let mut target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&stripped)?;
    io::copy(&mut source, &mut target)?;
    std::fs::rename(stripped, file)
}

/// Returns the position of the first line that begins with `{`.
fn find_object(mut source: impl BufRead) -> io::Result<Option<u64>> {
    let (mut position, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let read = source.read_until(b'\n', &mut line)?;
        if line.first() == Some(&b'{') {
            return Ok(Some(position));
        }
        if read == 0 {
            return Ok(None);
        }
        position += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    const WARNING: &str =
        "\nWarning: Unable to open CLI configuration file\n\nThe file \"{x}\" does not exist.\n";

    fn strip(text: &[u8]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("1.out");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        strip_preamble(&file).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::read(&file).unwrap()
    }

    #[test]
    fn the_preamble_before_json_is_removed() {
        let stripped =
            |answer: &str| String::from_utf8(strip(format!("{WARNING}{answer}").as_bytes())).unwrap();
        assert_eq!(stripped("{\"a\":1}"), "{\"a\":1}");
        assert_eq!(stripped("{\n  \"a\": {}\n}\n"), "{\n  \"a\": {}\n}\n");
        assert_eq!(
            strip(b"{\"a\":\n{}}"),
            b"{\"a\":\n{}}",
            "an answer alone is left alone"
        );
    }

    #[test]
    fn output_without_json_is_unchanged() {
        for text in ["", "\n", "Terraform v1.11.4\n", WARNING] {
            assert_eq!(strip(text.as_bytes()), text.as_bytes());
        }
        let far = format!("{}\n{{}}", "x".repeat(300 * 1024));
        assert_eq!(strip(far.as_bytes()), far.as_bytes());
    }

    proptest! {
        #[test]
        fn only_a_prefix_of_arbitrary_bytes_is_removed(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let left = strip(&text);
            prop_assert!(text.ends_with(&left));
            prop_assert!(left == text || left.first() == Some(&b'{'), "{left:?}");
        }
    }
}
