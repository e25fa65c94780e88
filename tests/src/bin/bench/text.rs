//! Repositories of text that looks like source code, from a seed.

use std::collections::VecDeque;
use std::ops::Range;

use sluice_harness::git::Repository;
use sluice_tests::BoxError;

/// Words of all texts.
const WORDS: usize = 4_000;
/// Files of a folder.
const FILES_OF_FOLDER: usize = 50;
/// How many of so many lines repeat one of the lines before them, and how far before. It decides how well a text compresses.
const REPEATED: (usize, usize) = (4, 5);
const RECENT: usize = 100;

/// Text of words from one vocabulary, from a seed. It compresses to about a sixth, as the repository does from which the limits are: source
/// code of 473 MB, of which an artifact has 66 MB.
pub(crate) struct Text {
    words: Vec<String>,
    state: u64,
}

impl Text {
    pub(crate) fn new() -> Self {
        let (words, state) = (Vec::new(), 1);
        let mut text = Self { words, state };
        for _ in 0..WORDS {
            let length = 2 + text.number(9);
            let letters =
                (0..length).map(|_| char::from(b'a' + u8::try_from(text.number(26)).unwrap_or_default()));
            let word = letters.collect();
            text.words.push(word);
        }
        text
    }

    /// Returns the next number below a limit. Small ones are more frequent, as words are.
    fn number(&mut self, limit: usize) -> usize {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.state >> 33).unwrap_or_default() % limit
    }

    /// Returns the next text of about this many bytes.
    pub(crate) fn next(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 100);
        let mut recent: VecDeque<Range<usize>> = VecDeque::with_capacity(RECENT);
        let (repeated, all) = REPEATED;
        while text.len() < bytes {
            let start = text.len();
            if !recent.is_empty() && self.number(all) < repeated {
                let line = self.number(recent.len());
                text.extend_from_within(recent[line].clone());
            } else {
                self.append_line(&mut text);
            }
            if recent.len() == RECENT {
                recent.pop_front();
            }
            recent.push_back(start..text.len());
        }
        text
    }

    fn append_line(&mut self, text: &mut String) {
        let limit = 1 + self.number(self.words.len());
        for _ in 0..=self.number(8) {
            let word = self.number(limit);
            text.push_str(&self.words[word]);
            text.push(' ');
        }
        text.push_str("=\n");
    }
}

/// Returns the path of a file of [`create_repository`].
pub(crate) fn path(file: usize) -> String {
    format!("folder{}/file{file}.tf", file / FILES_OF_FOLDER)
}

/// Creates a repository of this many files with this many bytes each, in one commit and one pack, as a server has it after `git gc`.
pub(crate) fn create_repository(text: &mut Text, files: usize, bytes: usize) -> Result<Repository, BoxError> {
    let repository = Repository::create()?;
    for file in 0..files {
        repository.write(&path(file), text.next(bytes))?;
    }
    repository.commit("A repository of text")?;
    // Texts from a seed have nothing in common that a search for deltas would find.
    repository.git(["-c", "pack.window=0", "repack", "-a", "-d", "-q"])?;
    Ok(repository)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;

    #[test]
    fn a_text_compresses_to_a_seventh_up_to_a_fifth() {
        let text = Text::new().next(1 << 20);
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(text.as_bytes()).unwrap();
        let compressed = encoder.finish().unwrap().len();
        let parts = text.len() / compressed;
        assert!((5..=7).contains(&parts), "{parts}");
    }
}
