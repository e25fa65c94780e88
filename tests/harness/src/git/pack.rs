//! Builds packs that real Git would not write: entry by entry, with arbitrary headers and sizes.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1_checked::{Digest as _, Sha1};

/// Returns the object id of a `blob`, `tree`, `commit` or `tag`.
#[must_use]
pub fn object_name(kind: &str, content: &[u8]) -> [u8; 20] {
    let mut hash = Sha1::new();
    hash.update(format!("{kind} {}\0", content.len()));
    hash.update(content);
    hash.finalize().into()
}

/// Builds a pack.
#[derive(Clone, Debug, Default)]
pub struct PackWriter {
    entries: Vec<u8>,
    count: u32,
}

impl PackWriter {
    /// Returns the offset of the next entry from the start of the pack.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.entries.len() as u64 + 12
    }

    /// Adds an object; returns its id.
    pub fn object(&mut self, kind: &str, content: &[u8]) -> [u8; 20] {
        let number = match kind {
            "commit" => 1,
            "tree" => 2,
            "blob" => 3,
            _ => 4,
        };
        self.entry(number, content.len() as u64, &[], &deflate(content));
        object_name(kind, content)
    }

    /// Adds a delta against the object with this id.
    pub fn reference(&mut self, base: [u8; 20], delta: &[u8]) {
        self.entry(7, delta.len() as u64, &base, &deflate(delta));
    }

    /// Adds a delta against the entry `distance` bytes before.
    pub fn offset(&mut self, distance: u64, delta: &[u8]) {
        let mut bytes = vec![u8::try_from(distance & 0x7f).unwrap_or_default()];
        let mut rest = distance >> 7;
        while rest > 0 {
            rest -= 1;
            bytes.push(0x80 | u8::try_from(rest & 0x7f).unwrap_or_default());
            rest >>= 7;
        }
        bytes.reverse();
        self.entry(6, delta.len() as u64, &bytes, &deflate(delta));
    }

    /// Adds an entry of any type with its base and compressed data.
    pub fn entry(&mut self, kind: u8, size: u64, base: &[u8], compressed: &[u8]) {
        let low = |size: u64, mask: u64| u8::try_from(size & mask).unwrap_or_default();
        let mut byte = (kind << 4) | low(size, 0x0f);
        let mut rest = size >> 4;
        while rest > 0 {
            self.entries.push(byte | 0x80);
            byte = low(rest, 0x7f);
            rest >>= 7;
        }
        self.entries.push(byte);
        self.entries.extend_from_slice(base);
        self.entries.extend_from_slice(compressed);
        self.count += 1;
    }

    /// Returns the pack with the correct number of entries.
    #[must_use]
    pub fn finish(&self) -> Vec<u8> {
        self.finish_with_count(self.count)
    }

    /// Returns the pack with a header that announces `count` entries.
    #[must_use]
    pub fn finish_with_count(&self, count: u32) -> Vec<u8> {
        let mut pack = [b"PACK\0\0\0\x02", &count.to_be_bytes()[..], &self.entries].concat();
        let sum = Sha1::digest(&pack);
        pack.extend_from_slice(&sum);
        pack
    }
}

/// Compresses the content of an entry.
#[must_use]
pub fn deflate(content: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    written(packed.write_all(content).and_then(|()| packed.finish()))
}

/// Compresses this many zeros without holding them in memory.
#[must_use]
pub fn deflated_zeros(count: u64) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    written(io::copy(&mut io::Read::take(io::repeat(0), count), &mut packed).and_then(|_| packed.finish()))
}

/// Returns a delta that copies `size` bytes from the start of its base, repeatedly if the base is shorter.
#[must_use]
pub fn repeating_delta(base: u64, size: u64) -> Vec<u8> {
    let mut delta = [number(base), number(size)].concat();
    let mut left = size;
    while left > 0 {
        let length = left.min(base).min(0x00ff_ffff);
        let bytes = length.to_le_bytes();
        delta.push(0xf0);
        delta.extend_from_slice(&bytes[..3]);
        left -= length;
    }
    delta
}

/// Returns a delta that inserts these bytes and copies nothing.
#[must_use]
pub fn literal_delta(base: u64, content: &[u8]) -> Vec<u8> {
    let mut delta = [number(base), number(content.len() as u64)].concat();
    for piece in content.chunks(127) {
        delta.push(u8::try_from(piece.len()).unwrap_or_default());
        delta.extend_from_slice(piece);
    }
    delta
}

fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = u8::try_from(value & 0x7f).unwrap_or_default();
        value >>= 7;
        if value == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

/// Unwraps the result: writing to memory does not fail.
fn written(result: io::Result<Vec<u8>>) -> Vec<u8> {
    result.unwrap_or_default()
}

/// Returns a packet line.
#[must_use]
pub fn packet(payload: &[u8]) -> Vec<u8> {
    [format!("{:04x}", payload.len() + 4).as_bytes(), payload].concat()
}

/// Returns a protocol version 2 response to `fetch` with this pack, after these lines of a `shallow-info` section.
#[must_use]
pub fn fetch_response(shallow: &[u8], pack: &[u8]) -> Vec<u8> {
    let mut answer = Vec::with_capacity(shallow.len() + pack.len() + 1024);
    if !shallow.is_empty() {
        answer.extend(packet(b"shallow-info\n"));
        answer.extend_from_slice(shallow);
        answer.extend_from_slice(b"0001");
    }
    answer.extend(packet(b"packfile\n"));
    for piece in pack.chunks(65_515) {
        answer.extend_from_slice(format!("{:04x}\x01", piece.len() + 5).as_bytes());
        answer.extend_from_slice(piece);
    }
    answer.extend_from_slice(b"0000");
    answer
}
