//! The compression of a log within a size limit: the beginning and the end of a log that is too long, and how much is left out
//! between them. It needs bounded memory, and compresses a bounded part of the log.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::tail::{Tail, suffix_start};
use crate::chunk;

/// Maximum number of bytes of a compressed log. A Secret holds 1 MiB, and a stack has some twenty runs.
pub const LIMIT: usize = 512 * 1024;
/// Maximum number of compressed bytes of the beginning, and of the end.
const HALF: usize = LIMIT / 2;
/// Bytes that are compressed at once. Compressed they are hardly more.
const PIECE: usize = 64 * 1024;
/// Bytes that the format adds to a piece, and the line about what is left out.
const OVERHEAD: usize = 1024;
/// Maximum number of bytes of the beginning, before compression.
const HEAD_LIMIT: usize = 8 * 1024 * 1024;
/// Maximum number of bytes of the end, before compression.
const TAIL_LIMIT: usize = 2 * 1024 * 1024;

/// A log that is compressed as it arrives.
#[derive(Debug)]
pub struct Archive {
    head: GzEncoder<Vec<u8>>,
    /// Bytes in [`Self::head`] before compression.
    head_length: usize,
    /// Bytes that are not compressed yet.
    piece: Vec<u8>,
    /// The end, once the beginning is complete.
    tail: Option<Tail>,
}

impl Default for Archive {
    fn default() -> Self {
        Self {
            head: GzEncoder::new(Vec::new(), Compression::default()),
            head_length: 0,
            piece: Vec::new(),
            tail: None,
        }
    }
}

impl Archive {
    /// Adds the next bytes of the log.
    ///
    /// # Errors
    /// None in practice: it writes to memory.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(tail) = &mut self.tail {
            tail.push(bytes);
            return Ok(());
        }
        self.piece.extend_from_slice(bytes);
        while self.piece.len() >= PIECE {
            self.compress_piece()?;
        }
        Ok(())
    }

    /// Returns the log in the format gzip, of at most [`LIMIT`] bytes.
    ///
    /// # Errors
    /// None in practice: it writes to memory.
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        self.head.write_all(&self.piece)?;
        let mut compressed = self.head.finish()?;
        let Some(tail) = self.tail else {
            return Ok(compressed);
        };
        let (lines, before) = tail.into_lines();
        let (end, more) = compress_end(&lines)?;
        let left_out = before + more;
        if left_out > 0 {
            let note = format!("(the log is too long: {left_out} bytes are left out here)\n");
            compressed.extend(chunk::compress(note.as_bytes())?);
        }
        // `gunzip` joins what is compressed in parts.
        compressed.extend(end);
        Ok(compressed)
    }

    /// Compresses the lines of the first bytes, or begins with the end of the log.
    fn compress_piece(&mut self) -> io::Result<()> {
        let is_complete =
            self.head.get_ref().len() + PIECE + OVERHEAD > HALF || self.head_length + PIECE > HEAD_LIMIT;
        if is_complete {
            let mut tail = Tail::new(TAIL_LIMIT);
            tail.push(&std::mem::take(&mut self.piece));
            self.tail = Some(tail);
            return Ok(());
        }
        let last = self.piece[..PIECE].iter().rposition(|byte| *byte == b'\n');
        let end = last.map_or(PIECE, |last| last + 1);
        self.head.write_all(&self.piece[..end])?;
        // The size is known only of what the encoder has written.
        self.head.flush()?;
        self.head_length += end;
        self.piece.drain(..end);
        Ok(())
    }
}

/// Compresses the last lines that fit. Returns the number of bytes before them.
fn compress_end(lines: &[u8]) -> io::Result<(Vec<u8>, u64)> {
    let mut start = 0;
    loop {
        let rest = &lines[start..];
        let compressed = chunk::compress(rest)?;
        if compressed.len() + OVERHEAD <= HALF {
            return Ok((compressed, start as u64));
        }
        // What fits if it compresses alike, less a tenth.
        let fits = rest.len() * (HALF - OVERHEAD) / compressed.len() / 10 * 9;
        start += suffix_start(rest, fits);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::MultiGzDecoder;
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    fn compress(text: &[u8], piece: usize) -> Vec<u8> {
        let mut archive = Archive::default();
        for bytes in text.chunks(piece) {
            archive.push(bytes).unwrap();
        }
        let compressed = archive.finish().unwrap();
        assert!(compressed.len() <= LIMIT, "{}", compressed.len());
        compressed
    }

    fn decompress(compressed: &[u8]) -> String {
        let mut text = String::new();
        MultiGzDecoder::new(compressed).read_to_string(&mut text).unwrap();
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
    fn parts(text: &str) -> Option<(&str, usize, &str)> {
        let (head, rest) = text.split_once("(the log is too long: ")?;
        let (count, tail) = rest.split_once(" bytes are left out here)\n")?;
        Some((head, count.parse().unwrap(), tail))
    }

    #[test]
    fn a_log_that_fits_is_complete() {
        for (length, piece) in [
            (0, 1),
            (10, 1),
            (PIECE, 100),
            (3 * PIECE + 7, PIECE),
            (700_000, 1 << 20),
        ] {
            let text = lines(length);
            assert_eq!(
                decompress(&compress(text.as_bytes(), piece)),
                text,
                "{length} {piece}"
            );
        }
    }

    #[test]
    fn of_a_longer_log_beginning_and_end_remain() {
        let text = lines(5_000_000);
        for piece in [1000, PIECE, text.len()] {
            let shown = decompress(&compress(text.as_bytes(), piece));
            let (head, left_out, tail) = parts(&shown).unwrap();
            assert!(text.starts_with(head) && text.ends_with(tail), "{piece}");
            assert_eq!(head.len() + left_out + tail.len(), text.len(), "{piece}");
            assert!(head.ends_with('\n') && text[..text.len() - tail.len()].ends_with('\n'));
            assert!(
                head.len() > 200_000 && tail.len() > 200_000,
                "{} {}",
                head.len(),
                tail.len()
            );
        }
    }

    #[test]
    fn memory_is_bounded_by_the_text_before_compression() {
        let text = "the same line\n".repeat(2_000_000);
        let shown = decompress(&compress(text.as_bytes(), 1 << 20));
        let (head, left_out, tail) = parts(&shown).unwrap();
        assert_eq!(head.len() + left_out + tail.len(), text.len());
        assert!(head.len() <= HEAD_LIMIT && tail.len() <= TAIL_LIMIT);
    }

    #[test]
    fn bytes_without_lines_fit_too() {
        let mut random = StdRng::seed_from_u64(2);
        let bytes: Vec<u8> = (0..3_000_000).map(|_| random.random_range(b'!'..=b'~')).collect();
        let shown = decompress(&compress(&bytes, 10_000));
        assert!(parts(&shown).is_some(), "{}", shown.len());
    }
}
