//! Encodings and digests.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use gotmpl::Value;
use ring::digest::{self, Algorithm};

use super::{Args, Fault, Table};
use crate::template::value::string;

/// Functions by name.
pub(super) const TABLE: Table = &[
    ("b64enc", |args| encode(args, |bytes| BASE64.encode(bytes))),
    ("b64dec", |args| decode(args, |text| BASE64.decode(text).ok())),
    ("b32enc", |args| encode(args, base32)),
    ("b32dec", |args| decode(args, from_base32)),
    ("sha1sum", |args| {
        digest_of(args, &digest::SHA1_FOR_LEGACY_USE_ONLY)
    }),
    ("sha256sum", |args| digest_of(args, &digest::SHA256)),
    ("sha512sum", |args| digest_of(args, &digest::SHA512)),
    ("adler32sum", |args| {
        encode(args, |bytes| adler32(bytes).to_string())
    }),
];

/// As in Go: padding is required, and unused trailing bits are ignored.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn encode(args: &Args<'_>, with: fn(&[u8]) -> String) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(string(with(args.text(0)?.as_bytes())))
}

fn decode(args: &Args<'_>, with: fn(&str) -> Option<Vec<u8>>) -> Result<Value, Fault> {
    args.exactly(1)?;
    let text = args.text(0)?.replace(['\r', '\n'], "");
    let bytes = with(&text).ok_or_else(|| Fault::new("the text is not encoded in this way"))?;
    String::from_utf8(bytes)
        .map(string)
        .map_err(|_| Fault::new("the decoded bytes are not UTF-8"))
}

fn digest_of(args: &Args<'_>, algorithm: &'static Algorithm) -> Result<Value, Fault> {
    args.exactly(1)?;
    Ok(string(hex::encode(digest::digest(
        algorithm,
        args.text(0)?.as_bytes(),
    ))))
}

/// RFC 1950 section 9.
fn adler32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    high << 16 | low
}

/// RFC 4648 section 6: five bytes become eight letters, padded with `=`.
fn base32(bytes: &[u8]) -> String {
    let mut text = String::new();
    for part in bytes.chunks(5) {
        let mut bits = [0_u8; 8];
        bits[3..3 + part.len()].copy_from_slice(part);
        let bits = u64::from_be_bytes(bits);
        let letters = (part.len() * 8).div_ceil(5);
        for position in 0..8 {
            let index = usize::try_from(bits >> (35 - 5 * position) & 31).unwrap_or_default();
            text.push(if position < letters {
                char::from(BASE32[index])
            } else {
                '='
            });
        }
    }
    text
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut parts = text.as_bytes().chunks(8).peekable();
    while let Some(part) = parts.next() {
        let end = part.iter().position(|byte| *byte == b'=').unwrap_or(part.len());
        let (letters, padding) = part.split_at(end);
        let size = match letters.len() {
            8 => 5,
            7 => 4,
            5 => 3,
            4 => 2,
            2 => 1,
            _ => return None,
        };
        let last = parts.peek().is_none();
        if part.len() != 8 || padding.iter().any(|byte| *byte != b'=') || !last && !padding.is_empty() {
            return None;
        }
        let mut bits = 0_u64;
        for letter in letters {
            let value = BASE32.iter().position(|known| known == letter)?;
            bits = bits << 5 | u64::try_from(value).ok()?;
        }
        bits <<= 5 * padding.len();
        bytes.extend_from_slice(bits.to_be_bytes().get(3..3 + size)?);
    }
    Some(bytes)
}
