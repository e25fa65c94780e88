//! An answer in JSON, alone in its file. OpenTofu prints what it has to say about its own configuration (a file that is not
//! there, a setting that it does not know) in front of the answer; Terraform prints it on the error output.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Most that may stand in front of an answer.
const MOST_IN_FRONT: u64 = 256 * 1024;

/// Leaves the answer in the file and nothing in front of it. What has no line that begins an object is left as it is, for its
/// reader to refuse.
///
/// # Errors
/// When the file cannot be read or written.
pub fn strip_preamble(file: &Path) -> io::Result<()> {
    let mut whole = File::open(file)?;
    let start = start(BufReader::new(&whole).take(MOST_IN_FRONT))?.unwrap_or(0);
    if start == 0 {
        return Ok(());
    }
    whole.seek(SeekFrom::Start(start))?;
    let bare = file.with_extension("bare");
    // It may hold secrets: only its owner reads it.
    let mut into = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&bare)?;
    io::copy(&mut whole, &mut into)?;
    std::fs::rename(bare, file)
}

/// Where the first line stands that begins an object.
fn start(mut source: impl BufRead) -> io::Result<Option<u64>> {
    let (mut at, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let read = source.read_until(b'\n', &mut line)?;
        if line.first() == Some(&b'{') {
            return Ok(Some(at));
        }
        if read == 0 {
            return Ok(None);
        }
        at += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    const SAID: &str =
        "\nWarning: Unable to open CLI configuration file\n\nThe file \"{x}\" does not exist.\n";

    fn bare(text: &[u8]) -> Vec<u8> {
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
    fn what_stands_in_front_of_an_answer_is_taken_away() {
        let said = |answer: &str| String::from_utf8(bare(format!("{SAID}{answer}").as_bytes())).unwrap();
        assert_eq!(said("{\"a\":1}"), "{\"a\":1}");
        assert_eq!(said("{\n  \"a\": {}\n}\n"), "{\n  \"a\": {}\n}\n");
        assert_eq!(
            bare(b"{\"a\":\n{}}"),
            b"{\"a\":\n{}}",
            "an answer alone is left alone"
        );
    }

    #[test]
    fn what_is_no_answer_is_left_for_its_reader_to_refuse() {
        for text in ["", "\n", "Terraform v1.11.4\n", SAID] {
            assert_eq!(bare(text.as_bytes()), text.as_bytes());
        }
        let far = format!("{}\n{{}}", "x".repeat(300 * 1024));
        assert_eq!(bare(far.as_bytes()), far.as_bytes());
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_and_only_a_front_is_ever_missing(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let left = bare(&text);
            prop_assert!(text.ends_with(&left));
            prop_assert!(left == text || left.first() == Some(&b'{'), "{left:?}");
        }
    }
}
