//! Packs as no Git writes them: entry by entry, with headers and sizes that need not be true.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1_checked::{Digest as _, Sha1};

/// The name of an object of this kind (`blob`, `tree`, `commit`, `tag`).
#[must_use]
pub fn object_name(kind: &str, content: &[u8]) -> [u8; 20] {
    let mut hash = Sha1::new();
    hash.update(format!("{kind} {}\0", content.len()));
    hash.update(content);
    hash.finalize().into()
}

/// A pack in the making.
#[derive(Clone, Debug, Default)]
pub struct PackWriter {
    entries: Vec<u8>,
    count: u32,
}

impl PackWriter {
    /// Where the next entry begins, counted from the beginning of the pack.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.entries.len() as u64 + 12
    }

    /// Adds a whole object and answers its name.
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

    /// Adds a difference to the object of this name.
    pub fn reference(&mut self, base: [u8; 20], delta: &[u8]) {
        self.entry(7, delta.len() as u64, &base, &deflate(delta));
    }

    /// Adds a difference to the entry that begins so many bytes before.
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

    /// Adds an entry of any type, with what follows its header and bytes that are compressed already.
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

    /// The pack with its true number of entries.
    #[must_use]
    pub fn finish(&self) -> Vec<u8> {
        self.finish_as(self.count)
    }

    /// The pack with a header that announces so many entries.
    #[must_use]
    pub fn finish_as(&self, count: u32) -> Vec<u8> {
        let mut pack = [b"PACK\0\0\0\x02", &count.to_be_bytes()[..], &self.entries].concat();
        let sum = Sha1::digest(&pack);
        pack.extend_from_slice(&sum);
        pack
    }
}

/// Bytes as entries hold them.
#[must_use]
pub fn deflate(content: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    written(packed.write_all(content).and_then(|()| packed.finish()))
}

/// So many zeros, as entries hold them; they are never in memory at once.
#[must_use]
pub fn deflated_zeros(count: u64) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    written(io::copy(&mut io::Read::take(io::repeat(0), count), &mut packed).and_then(|_| packed.finish()))
}

/// A difference that makes `size` bytes of the beginning of a base, which is repeated where it is too short.
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

/// A difference that makes these bytes of nothing but themselves.
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

/// Writing to memory does not fail.
fn written(result: io::Result<Vec<u8>>) -> Vec<u8> {
    result.unwrap_or_default()
}

/// A packet line.
#[must_use]
pub fn packet(payload: &[u8]) -> Vec<u8> {
    [format!("{:04x}", payload.len() + 4).as_bytes(), payload].concat()
}

/// An answer to `fetch` of protocol version 2 with this pack, after these lines of a `shallow-info` section.
#[must_use]
pub fn fetch_answer(shallow: &[u8], pack: &[u8]) -> Vec<u8> {
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
