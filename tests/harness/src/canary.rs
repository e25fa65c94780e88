//! Searches bytes for texts, also in encoded form: base64 (both alphabets, with or without line breaks), hexadecimal,
//! gzip, percent-encoding, JSON escapes, and any nesting of these.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use flate2::read::MultiGzDecoder;

/// How many encodings may be nested.
const MAX_DEPTH: usize = 4;
/// Limit of the output of one gzip stream, in bytes.
const MAX_GZIP_OUTPUT: u64 = 64 << 20;
/// Magic bytes of a gzip stream.
const GZIP: &[u8] = &[0x1f, 0x8b, 8];

/// Returns the `values` that occur in `bytes`, in clear text or encoded.
#[must_use]
pub fn find<'a>(bytes: &[u8], values: &[&'a str]) -> BTreeSet<&'a str> {
    let mut search = Search {
        values,
        shortest: values.iter().map(|text| text.len()).min().unwrap_or_default(),
        visited: HashSet::new(),
        found: BTreeSet::new(),
    };
    search.visit(bytes, MAX_DEPTH);
    search.found
}

struct Search<'w, 'a> {
    values: &'w [&'a str],
    /// Length of the shortest value: shorter input cannot contain any.
    shortest: usize,
    /// Hashes of the inputs searched so far: different decodings often have the same result.
    visited: HashSet<u64>,
    found: BTreeSet<&'a str>,
}

impl Search<'_, '_> {
    fn visit(&mut self, bytes: &[u8], depth: usize) {
        let mut hash = DefaultHasher::new();
        bytes.hash(&mut hash);
        if bytes.len() < self.shortest || !self.visited.insert(hash.finish()) {
            return;
        }
        let here = self
            .values
            .iter()
            .filter(|text| contains_bytes(bytes, text.as_bytes()));
        self.found.extend(here);
        let Some(depth) = depth.checked_sub(1) else { return };
        let views = gzip(bytes).into_iter().chain(percent(bytes)).chain(json(bytes));
        for inner in views.collect::<Vec<_>>() {
            self.visit(&inner, depth);
        }
        for inner in decode_runs(bytes, self.shortest) {
            self.visit(&inner, depth);
        }
    }
}

fn contains_bytes(bytes: &[u8], text: &[u8]) -> bool {
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

/// Decompresses every gzip stream in these bytes, as far as it can be read.
fn gzip(bytes: &[u8]) -> Vec<Vec<u8>> {
    let starts = bytes
        .windows(GZIP.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == GZIP);
    let unpacked = starts.map(|(at, _)| {
        let mut inner = Vec::new();
        // A truncated stream yields the part that is there.
        let _ = MultiGzDecoder::new(&bytes[at..])
            .take(MAX_GZIP_OUTPUT)
            .read_to_end(&mut inner);
        inner
    });
    unpacked.filter(|inner| !inner.is_empty()).collect()
}

/// Decodes `%41` and `+`; `None` if the bytes contain neither.
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

/// Removes backslash escapes of JSON, HCL and quoted Go strings; `None` if there is no backslash.
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

/// Decodes runs of base64 or hexadecimal digits that are long enough for a value of `shortest` bytes. Line breaks
/// within a run are ignored: the run may be wrapped.
fn decode_runs(bytes: &[u8], shortest: usize) -> Vec<Vec<u8>> {
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
        // Letters before a run may look like part of it: those of `data:` do not, those of `key-` do.
        let texts = (0..4.min(run.len())).filter_map(|offset| unbase64(&run[offset..]));
        digits.chain(texts).collect::<Vec<_>>()
    })
    .collect()
}

fn unhex(run: &[u8]) -> Vec<u8> {
    run.chunks_exact(2).filter_map(hexadecimal).collect()
}

fn unbase64(run: &[u8]) -> Option<Vec<u8>> {
    // A single trailing digit encodes nothing.
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

    fn is_found(bytes: &[u8]) -> bool {
        find(bytes, &[CANARY, "another that is not there"]) == BTreeSet::from([CANARY])
    }

    #[test]
    fn a_value_is_found_in_each_encoding() {
        let wrapped: String = STANDARD
            .encode(format!("some text before, then {CANARY}"))
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
                "base64 after a prefix",
                format!("key-{}", STANDARD.encode(CANARY)).into_bytes(),
            ),
            (
                "base64 after another prefix",
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
            assert!(is_found(&bytes), "{form}: {}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn a_value_is_found_in_nested_encodings() {
        let state = serde_json::to_string(&format!("{{\"secret\":{CANARY:?}}}")).unwrap();
        let stored = STANDARD.encode(zipped(state.as_bytes()));
        assert!(is_found(stored.as_bytes()));
        let address = percent_encoded(&STANDARD.encode(hex::encode(CANARY)));
        assert!(is_found(address.as_bytes()));
    }

    #[test]
    fn absent_values_are_not_found() {
        assert!(find(b"", &[CANARY]).is_empty());
        assert!(find(&vec![b'A'; 10_000], &[CANARY]).is_empty());
        assert!(find(&zipped(b"canary"), &[CANARY]).is_empty());
        assert!(find(b"%4", &["x"]).is_empty() && find(b"\\u00", &["x"]).is_empty());
    }
}
