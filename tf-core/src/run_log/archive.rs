//! The compression of a log into parts of limited size, and within a total: the beginning and the end of a log that is too long, and how
//! much is left out between them. A part is compressed as it arrives, so that the text is never in memory as a whole.

use std::collections::VecDeque;
use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::chunk;

/// Maximum number of bytes of a compressed part. A Secret holds 1 MiB, and its base64 form is a third longer.
pub const PART_LIMIT: usize = 512 * 1024;
/// Maximum number of parts of a log: 8 MiB. A stack has some twenty runs.
pub const MAX_PARTS: usize = 16;
/// Bytes that the format adds to a piece, and the line about what is left out.
const OVERHEAD: usize = 1024;

/// The limits of a log.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Bytes that are compressed at once. Compressed they are hardly more.
    piece: usize,
    /// Maximum number of bytes of a part.
    part: usize,
    /// Maximum number of bytes of a part before compression: it bounds the memory of a reader.
    part_text: usize,
    /// Maximum number of parts of the beginning.
    head: usize,
    /// Maximum number of parts of the end.
    tail: usize,
}

impl Limits {
    const DEFAULT: Self = Self {
        piece: 64 * 1024,
        part: PART_LIMIT,
        part_text: 8 * 1024 * 1024,
        head: MAX_PARTS / 2,
        tail: MAX_PARTS - MAX_PARTS / 2,
    };
}

/// A part of the end of a log.
#[derive(Debug)]
struct TailPart {
    compressed: Vec<u8>,
    /// Its number of bytes before compression.
    text_length: usize,
}

/// A log that is compressed as it arrives.
#[derive(Debug)]
pub struct Archive {
    limits: Limits,
    /// The complete parts of the beginning.
    head: Vec<Vec<u8>>,
    /// The last complete parts after the beginning.
    tail: VecDeque<TailPart>,
    /// Bytes before compression of the parts between them that were dropped.
    left_out: u64,
    /// The part that is not complete.
    part: GzEncoder<Vec<u8>>,
    /// Bytes in [`Self::part`] before compression.
    text_length: usize,
    /// Bytes that are not compressed yet.
    piece: Vec<u8>,
}

impl Default for Archive {
    fn default() -> Self {
        Self::with_limits(Limits::DEFAULT)
    }
}

impl Archive {
    fn with_limits(limits: Limits) -> Self {
        Self {
            limits,
            head: Vec::new(),
            tail: VecDeque::new(),
            left_out: 0,
            part: encoder(),
            text_length: 0,
            piece: Vec::new(),
        }
    }

    /// Adds the next bytes of the log.
    ///
    /// # Errors
    /// None in practice: it writes to memory.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.piece.extend_from_slice(bytes);
        while self.piece.len() >= self.limits.piece {
            self.compress_piece()?;
        }
        Ok(())
    }

    /// Returns the log in at least one and at most [`MAX_PARTS`] parts of at most [`PART_LIMIT`] bytes. Each is in the format gzip, and
    /// so are all of them together.
    ///
    /// # Errors
    /// None in practice: it writes to memory.
    pub fn finish(mut self) -> io::Result<Vec<Vec<u8>>> {
        let rest = std::mem::take(&mut self.piece);
        self.part.write_all(&rest)?;
        self.text_length += rest.len();
        if self.text_length > 0 || self.head.is_empty() {
            self.end_part()?;
        }
        let mut parts = self.head;
        let mut note = if self.left_out > 0 {
            let note = format!(
                "(the log is too long: {} bytes are left out here)\n",
                self.left_out
            );
            chunk::compress(note.as_bytes())?
        } else {
            Vec::new()
        };
        for part in self.tail {
            // `gunzip` joins what is compressed separately.
            note.extend(part.compressed);
            parts.push(std::mem::take(&mut note));
        }
        Ok(parts)
    }

    /// Compresses the lines of the first bytes, and ends the part if the next ones may not fit into it.
    fn compress_piece(&mut self) -> io::Result<()> {
        let limits = self.limits;
        let last = self.piece[..limits.piece].iter().rposition(|byte| *byte == b'\n');
        let end = last.map_or(limits.piece, |last| last + 1);
        self.part.write_all(&self.piece[..end])?;
        // The size is known only of what the encoder has written.
        self.part.flush()?;
        self.text_length += end;
        self.piece.drain(..end);
        let is_full = self.part.get_ref().len() + limits.piece + OVERHEAD > limits.part
            || self.text_length + limits.piece > limits.part_text;
        if is_full { self.end_part() } else { Ok(()) }
    }

    /// Ends the part. If the log is too long, the oldest part after the beginning is dropped for it.
    fn end_part(&mut self) -> io::Result<()> {
        let mut compressed = std::mem::replace(&mut self.part, encoder()).finish()?;
        compressed.shrink_to_fit();
        let text_length = std::mem::take(&mut self.text_length);
        if self.head.len() < self.limits.head {
            self.head.push(compressed);
            return Ok(());
        }
        if self.tail.len() >= self.limits.tail
            && let Some(oldest) = self.tail.pop_front()
        {
            self.left_out += oldest.text_length as u64;
        }
        self.tail.push_back(TailPart {
            compressed,
            text_length,
        });
        Ok(())
    }
}

fn encoder() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), Compression::default())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::MultiGzDecoder;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    const PIECE: usize = Limits::DEFAULT.piece;
    /// Limits that a short log exceeds.
    const SMALL: Limits = Limits {
        piece: 512,
        part: 4096,
        part_text: 16 * 1024,
        head: 2,
        tail: 3,
    };

    fn compress(text: &[u8], piece: usize, limits: Limits) -> Vec<Vec<u8>> {
        let mut archive = Archive::with_limits(limits);
        for bytes in text.chunks(piece) {
            archive.push(bytes).unwrap();
        }
        let parts = archive.finish().unwrap();
        assert!((1..=limits.head + limits.tail).contains(&parts.len()));
        for part in &parts {
            assert!(part.len() <= limits.part, "{}", part.len());
        }
        parts
    }

    fn decompress(compressed: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        MultiGzDecoder::new(compressed).read_to_end(&mut text).unwrap();
        text
    }

    /// Numbered lines of which compression leaves about half.
    fn lines(length: usize) -> String {
        let mut random = StdRng::seed_from_u64(1);
        let mut text = String::new();
        while text.len() < length {
            let number: u128 = random.random();
            let line = format!("{} {number:032x}\n", text.len());
            text.push_str(&line);
        }
        text
    }

    /// Returns the beginning, the number of bytes in the line between, and the end.
    fn ends(text: &str) -> Option<(&str, usize, &str)> {
        let (head, rest) = text.split_once("(the log is too long: ")?;
        let (count, tail) = rest.split_once(" bytes are left out here)\n")?;
        Some((head, count.parse().unwrap(), tail))
    }

    fn read(parts: &[Vec<u8>]) -> String {
        String::from_utf8(decompress(&parts.concat())).unwrap()
    }

    #[test]
    fn a_log_that_fits_is_complete() {
        for (length, piece, count) in [
            (0, 1, 1),
            (10, 1, 1),
            (PIECE, 100, 1),
            (3 * PIECE + 7, PIECE, 1),
            (700_000, 1 << 20, 1),
            (2_200_000, 10_000, 3),
        ] {
            let text = lines(length);
            let parts = compress(text.as_bytes(), piece, Limits::DEFAULT);
            assert_eq!(parts.len(), count, "{length}");
            assert!(read(&parts) == text, "{length} {piece}");
        }
    }

    #[test]
    fn each_part_has_whole_lines_and_is_readable_without_the_others() {
        let text = lines(2_200_000);
        let parts = compress(text.as_bytes(), 10_000, Limits::DEFAULT);
        let read: Vec<_> = parts.iter().map(|part| decompress(part)).collect();
        assert!(read.iter().all(|part| part.ends_with(b"\n")));
        assert!(read.concat() == text.as_bytes());
    }

    #[test]
    fn of_a_longer_log_beginning_and_end_remain() {
        let text = lines(100_000);
        for piece in [100, 512, text.len()] {
            let parts = compress(text.as_bytes(), piece, SMALL);
            assert_eq!(parts.len(), 5);
            let shown = read(&parts);
            let (head, left_out, tail) = ends(&shown).unwrap();
            assert!(text.starts_with(head) && text.ends_with(tail), "{piece}");
            assert_eq!(head.len() + left_out + tail.len(), text.len(), "{piece}");
            assert!(head.ends_with('\n') && text[..text.len() - tail.len()].ends_with('\n'));
            assert_eq!(head.as_bytes(), decompress(&parts[..2].concat()));
        }
    }

    #[test]
    fn a_part_is_bounded_before_compression() {
        let text = "the same line\n".repeat(20_000);
        let parts = compress(text.as_bytes(), 1 << 20, SMALL);
        let shown = read(&parts);
        let (head, left_out, tail) = ends(&shown).unwrap();
        assert_eq!(head.len() + left_out + tail.len(), text.len());
        assert!(head.len() <= 2 * SMALL.part_text && tail.len() <= 3 * SMALL.part_text);
    }

    #[test]
    fn bytes_without_lines_fit_too() {
        let mut random = StdRng::seed_from_u64(2);
        let bytes: Vec<u8> = (0..60_000).map(|_| random.random_range(b'!'..=b'~')).collect();
        let shown = read(&compress(&bytes, 10_000, SMALL));
        assert!(ends(&shown).is_some(), "{}", shown.len());
    }

    #[test]
    fn the_limits_are_those_of_the_documentation() {
        let Limits {
            part,
            part_text,
            head,
            tail,
            ..
        } = Limits::DEFAULT;
        assert_eq!(part * (head + tail), 8 << 20);
        assert_eq!(part_text * (head + tail), 128 << 20);
    }

    proptest! {
        /// For lines that compress well or hardly, in any pieces: the parts are the log, or its beginning and its end with the number of
        /// bytes between them.
        #[test]
        fn no_byte_is_lost_without_a_number(
            lines in proptest::collection::vec((0_usize..400, any::<u64>()), 0..150),
            piece in 1_usize..2000,
        ) {
            let mut text = String::new();
            for (length, seed) in lines {
                let mut random = StdRng::seed_from_u64(seed);
                let is_noise = seed % 3 > 0;
                let character = |_| if is_noise { random.random_range('!'..='~') } else { 'a' };
                // Without the text of the line between beginning and end.
                text.extend((0..length).map(character).filter(|character| *character != '('));
                text.push('\n');
            }
            let parts = compress(text.as_bytes(), piece, SMALL);
            let shown = read(&parts);
            match ends(&shown) {
                None => prop_assert!(shown == text),
                Some((head, left_out, tail)) => {
                    prop_assert!(text.starts_with(head) && text.ends_with(tail));
                    prop_assert_eq!(head.len() + left_out + tail.len(), text.len());
                    prop_assert_eq!(parts.len(), SMALL.head + SMALL.tail);
                }
            }
            // Without its last parts, as after a crash, the log is readable up to there.
            for count in 1..=SMALL.head.min(parts.len()) {
                prop_assert!(text.starts_with(&read(&parts[..count])));
            }
        }
    }
}
