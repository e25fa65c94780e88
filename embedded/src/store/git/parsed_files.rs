//! Parsed files by the hash of their content, for the read of a long journal: most of its commits change a status, and its object needs the
//! file, too, which stays the same.

use std::collections::HashMap;

use git2::{Error, Oid};

use super::branch::Branch;
use super::commit_content;
use super::yaml::ParsedFile;

/// Limit of the texts of all files, in bytes. In memory they are several times as large.
const MAX_BYTES: usize = 4 << 20;
/// Largest file that is kept, in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;

/// Parsed files.
#[derive(Debug, Default)]
pub(super) struct ParsedFiles {
    files: HashMap<Oid, ParsedFile>,
    /// Length of their texts.
    bytes: usize,
}

impl ParsedFiles {
    /// Returns a file of a commit. One that does not exist has no documents.
    pub(super) fn read(&mut self, branch: &Branch, commit: Oid, path: &str) -> Result<ParsedFile, Error> {
        let Some(blob) = branch.blob(commit, path)? else {
            return Ok(ParsedFile::default());
        };
        if let Some(file) = self.files.get(&blob) {
            return Ok(file.clone());
        }
        let text = branch.read_blob(blob)?;
        let bytes = text.as_ref().map_or(0, String::len);
        let file = commit_content::parse(text);
        if bytes <= MAX_FILE_BYTES {
            self.keep(blob, file.clone(), bytes);
        }
        Ok(file)
    }

    fn keep(&mut self, blob: Oid, file: ParsedFile, bytes: usize) {
        if self.bytes + bytes > MAX_BYTES {
            self.files.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.files.insert(blob, file);
    }
}

#[cfg(test)]
mod tests {
    use super::super::branch::Edits;
    use super::*;

    #[test]
    fn a_file_is_parsed_once() {
        let folder = tempfile::tempdir().unwrap();
        git2::Repository::init_bare(folder.path()).unwrap();
        let branch = Branch::open(folder.path(), "main", "").unwrap();
        let large = format!("# {}\n", "x".repeat(MAX_FILE_BYTES));
        let edits = [("a.yaml", "n: 1\n".to_owned()), ("b.yaml", large)];
        let edits: Edits = edits.map(|(path, text)| (path.to_owned(), Some(text))).into();
        let id = branch.write(None, &edits, "test\n", 0).unwrap();
        let mut files = ParsedFiles::default();
        for path in ["a.yaml", "b.yaml"] {
            files.read(&branch, id, path).unwrap();
            let hash = branch.blob(id, path).unwrap().unwrap().to_string();
            std::fs::remove_file(folder.path().join("objects").join(&hash[..2]).join(&hash[2..])).unwrap();
        }
        let file = files.read(&branch, id, "a.yaml").unwrap();
        assert_eq!(file.documents[0]["n"], 1);
        files.read(&branch, id, "b.yaml").unwrap_err();
        assert!(files.read(&branch, id, "c.yaml").unwrap().documents.is_empty());
    }

    #[test]
    fn the_texts_of_the_files_have_a_limit() {
        let mut files = ParsedFiles::default();
        for number in 0..=MAX_BYTES / MAX_FILE_BYTES {
            let blob = Oid::hash_object(git2::ObjectType::Blob, number.to_string().as_bytes()).unwrap();
            files.keep(blob, ParsedFile::default(), MAX_FILE_BYTES);
            assert!(files.bytes <= MAX_BYTES);
        }
        assert_eq!(files.files.len(), 1);
    }
}
