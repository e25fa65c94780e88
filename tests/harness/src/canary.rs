//! Looks for texts in bytes as a person would who has time: also in what the bytes encode. Base64 (both alphabets, broken
//! into lines or not), hexadecimal digits, gzip, percent-encoding, escapes of JSON, and each of them within another.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use flate2::read::MultiGzDecoder;

/// How many encodings may lie within each other.
const DEPTH: usize = 4;
/// Longest result of one gzip stream, in bytes.
const UNPACKED: u64 = 64 << 20;
/// The first bytes of a gzip stream.
const GZIP: &[u8] = &[0x1f, 0x8b, 8];

/// The texts of `wanted` that are in `bytes`, in clear or encoded.
#[must_use]
pub fn found<'a>(bytes: &[u8], wanted: &[&'a str]) -> BTreeSet<&'a str> {
    let mut look = Look {
        wanted,
        shortest: wanted.iter().map(|text| text.len()).min().unwrap_or_default(),
        known: HashSet::new(),
        found: BTreeSet::new(),
    };
    look.at(bytes, DEPTH);
    look.found
}

struct Look<'w, 'a> {
    wanted: &'w [&'a str],
    /// Length of the shortest text: what is shorter holds none.
    shortest: usize,
    /// Hashes of what was looked at: different decodings often have one result.
    known: HashSet<u64>,
    found: BTreeSet<&'a str>,
}

impl Look<'_, '_> {
    fn at(&mut self, bytes: &[u8], depth: usize) {
        let mut hash = DefaultHasher::new();
        bytes.hash(&mut hash);
        if bytes.len() < self.shortest || !self.known.insert(hash.finish()) {
            return;
        }
        let here = self.wanted.iter().filter(|text| holds(bytes, text.as_bytes()));
        self.found.extend(here);
        let Some(depth) = depth.checked_sub(1) else { return };
        let views = gzip(bytes).into_iter().chain(percent(bytes)).chain(json(bytes));
        for inner in views.collect::<Vec<_>>() {
            self.at(&inner, depth);
        }
        for inner in runs(bytes, self.shortest) {
            self.at(&inner, depth);
        }
    }
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    let Some((first, rest)) = text.split_first() else {
        return true;
    };
    let mut from = bytes;
    while let Some(at) = from.iter().position(|byte| byte == first) {
        from = &from[at + 1..];
        if from.starts_with(rest) {
            return true;
        }
    }
    false
}

/// What the gzip streams in these bytes hold, as far as they can be read.
fn gzip(bytes: &[u8]) -> Vec<Vec<u8>> {
    let starts = bytes
        .windows(GZIP.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == GZIP);
    let unpacked = starts.map(|(at, _)| {
        let mut inner = Vec::new();
        // A stream that is cut off shows what it has.
        let _ = MultiGzDecoder::new(&bytes[at..])
            .take(UNPACKED)
            .read_to_end(&mut inner);
        inner
    });
    unpacked.filter(|inner| !inner.is_empty()).collect()
}

/// The bytes with `%41` and `+` decoded; none where there is no such thing.
fn percent(bytes: &[u8]) -> Option<Vec<u8>> {
    if !bytes.contains(&b'%') && !bytes.contains(&b'+') {
        return None;
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        let byte = after.get(..2).and_then(hexadecimal).filter(|_| *first == b'%');
        decoded.push(byte.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    Some(decoded)
}

/// The bytes with backslashes taken away as JSON, HCL and Go's quoted texts mean them; none where there is none.
fn json(bytes: &[u8]) -> Option<Vec<u8>> {
    if !bytes.contains(&b'\\') {
        return None;
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let Some((escape, after)) = after.split_first().filter(|_| *first == b'\\') else {
            decoded.push(*first);
            continue;
        };
        rest = after;
        let digits = match escape {
            b'u' => 4,
            b'x' => 2,
            _ => 0,
        };
        let point = after.get(..digits).filter(|digits| !digits.is_empty());
        let point = point.and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        if let Some(point) = point.and_then(char::from_u32) {
            decoded.extend_from_slice(point.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &after[digits..];
            continue;
        }
        decoded.push(match escape {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            other => *other,
        });
    }
    Some(decoded)
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// What runs of base64 or of hexadecimal digits say, where they are long enough for a text of `shortest` bytes. Line ends
/// within a run are passed over: the run may be broken into lines.
fn runs(bytes: &[u8], shortest: usize) -> Vec<Vec<u8>> {
    let joined: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\n' | b'\r'))
        .collect();
    let views: &[&[u8]] = if joined.len() == bytes.len() {
        &[bytes]
    } else {
        &[bytes, &joined]
    };
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let runs = views
        .iter()
        .flat_map(|view| view.split(move |byte| !is_part(byte)))
        .filter(|run| run.len() * 3 / 4 >= shortest);
    runs.flat_map(|run| {
        let digits = run
            .split(|byte| !byte.is_ascii_hexdigit())
            .filter(|run| run.len() / 2 >= shortest);
        let digits = digits.flat_map(|run| (0..2).map(move |offset| unhex(&run[offset..])));
        // A run may begin with letters that do not belong to it: `data:` is not one, `key-` is.
        let texts = (0..4.min(run.len())).filter_map(|offset| unbase64(&run[offset..]));
        digits.chain(texts).collect::<Vec<_>>()
    })
    .collect()
}

fn unhex(run: &[u8]) -> Vec<u8> {
    run.chunks_exact(2).filter_map(hexadecimal).collect()
}

fn unbase64(run: &[u8]) -> Option<Vec<u8>> {
    // One digit alone says nothing.
    let whole = run.len() - usize::from(run.len() % 4 == 1);
    let digits: Vec<u8> = run[..whole]
        .iter()
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect();
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&alphabet::STANDARD, config)
        .decode(digits)
        .ok()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::Write as _;

    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

    use super::*;

    const CANARY: &str = "canary \"made\" by a provider 1c9e?>";

    fn zipped(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    fn percent_encoded(text: &str) -> String {
        text.bytes().fold(String::new(), |mut encoded, byte| {
            let plain = byte.is_ascii_alphanumeric();
            if plain {
                encoded.push(byte.into());
            } else {
                write!(encoded, "%{byte:02X}").unwrap();
            }
            encoded
        })
    }

    fn finds(bytes: &[u8]) -> bool {
        found(bytes, &[CANARY, "another that is not there"]) == BTreeSet::from([CANARY])
    }

    #[test]
    fn a_text_is_found_in_each_form() {
        let wrapped: String = STANDARD
            .encode(format!("some words before, then {CANARY}"))
            .as_bytes()
            .chunks(20)
            .flat_map(|line| [String::from_utf8_lossy(line), "\n".into()])
            .collect();
        let escaped = serde_json::to_string(CANARY).unwrap();
        let unicode = CANARY.replace('"', "\\u0022").replace('>', "\\u003e");
        let cut_off = zipped(format!("{CANARY}{}", "and so on ".repeat(9)).as_bytes());
        for (form, bytes) in [
            ("clear", format!("x{CANARY}y").into_bytes()),
            ("base64", STANDARD.encode(CANARY).into_bytes()),
            (
                "base64 in the middle",
                STANDARD.encode(format!("ab{CANARY}cd")).into_bytes(),
            ),
            (
                "base64 behind a word",
                format!("key-{}", STANDARD.encode(CANARY)).into_bytes(),
            ),
            (
                "base64 behind another word",
                format!("ab/{}", STANDARD.encode(CANARY)).into_bytes(),
            ),
            (
                "base64 for addresses",
                URL_SAFE_NO_PAD.encode(format!("??>{CANARY}")).into_bytes(),
            ),
            ("base64 in lines", wrapped.into_bytes()),
            ("hexadecimal", hex::encode(CANARY).into_bytes()),
            (
                "hexadecimal, one digit before",
                format!("a{}", hex::encode_upper(CANARY)).into_bytes(),
            ),
            ("percent-encoded", percent_encoded(CANARY).into_bytes()),
            ("a form", percent_encoded(CANARY).replace("%20", "+").into_bytes()),
            ("JSON", escaped.into_bytes()),
            ("JSON with code points", unicode.into_bytes()),
            ("gzip", [b"head".to_vec(), zipped(CANARY.as_bytes())].concat()),
            ("gzip that is cut off", cut_off[..cut_off.len() - 9].to_vec()),
        ] {
            assert!(finds(&bytes), "{form}: {}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_text_is_found_in_forms_within_forms() {
        let state = serde_json::to_string(&format!("{{\"secret\":{CANARY:?}}}")).unwrap();
        let stored = STANDARD.encode(zipped(state.as_bytes()));
        assert!(finds(stored.as_bytes()));
        let address = percent_encoded(&STANDARD.encode(hex::encode(CANARY)));
        assert!(finds(address.as_bytes()));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        assert!(found(b"", &[CANARY]).is_empty());
        assert!(found(&vec![b'A'; 10_000], &[CANARY]).is_empty());
        assert!(found(&zipped(b"canary"), &[CANARY]).is_empty());
        assert!(found(b"%4", &["x"]).is_empty() && found(b"\\u00", &["x"]).is_empty());
    }
}
