//! What a commit changes: its message, and the files that differ from the commit before it.

use std::collections::BTreeMap;

use git2::{Error, Oid};

use super::branch::{Branch, CommitInfo, FileText};
use super::yaml::ParsedFile;

/// The content of a changed file.
#[derive(Debug)]
pub(super) enum ChangedFile {
    /// The commit has no file of this path.
    Absent,
    /// It is not read yet.
    Blob(Oid),
    /// Its documents.
    Parsed(ParsedFile),
}

/// What a commit changes.
#[derive(Debug)]
pub(super) struct CommitContent {
    pub(super) info: CommitInfo,
    /// The files that differ, by path.
    pub(super) files: BTreeMap<String, ChangedFile>,
}

impl CommitContent {
    /// Compares a commit with the one before it. No file is read.
    pub(super) fn of(branch: &Branch, previous: Option<Oid>, id: Oid) -> Result<Self, Error> {
        let changed = branch.changed_files(previous, id)?;
        let files = changed.into_iter().map(|(path, blob)| {
            let file = blob.map_or(ChangedFile::Absent, ChangedFile::Blob);
            (path, file)
        });
        Ok(Self {
            info: branch.info(id)?,
            files: files.collect(),
        })
    }

    /// Reads and parses the files up to a number of bytes. The others can be read later.
    pub(super) fn read(&mut self, branch: &Branch, max_bytes: usize) -> Result<(), Error> {
        let mut bytes = 0;
        for file in self.files.values_mut() {
            let ChangedFile::Blob(blob) = *file else { continue };
            let text = branch.read_blob(blob)?;
            bytes += text.as_ref().map_or(0, String::len);
            if bytes > max_bytes {
                return Ok(());
            }
            *file = ChangedFile::Parsed(parse(text));
        }
        Ok(())
    }
}

impl ChangedFile {
    /// Returns the documents of the file.
    pub(super) fn into_parsed(self, branch: &Branch) -> Result<ParsedFile, Error> {
        Ok(match self {
            Self::Absent => ParsedFile::default(),
            Self::Blob(blob) => parse(branch.read_blob(blob)?),
            Self::Parsed(file) => file,
        })
    }
}

/// Parses the text of a file.
pub(super) fn parse(text: FileText) -> ParsedFile {
    match text {
        Ok(text) => ParsedFile::parse(&text),
        Err(reason) => ParsedFile::unreadable(reason),
    }
}
