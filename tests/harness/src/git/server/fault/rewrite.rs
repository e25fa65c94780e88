//! Rewrites packet lines of a response: flips a bit of the pack, or removes capabilities. The framing stays valid, so that a
//! client must detect a damaged pack by its checksum or by inflating it.

use http_body_util::BodyExt;

use super::super::{Body, plain};
use super::whole;

/// The side band of the pack.
const PACK_BAND: u8 = 1;

pub(super) async fn corrupt_pack(body: Body, offset: u64) -> Body {
    let Ok(collected) = body.collect().await else {
        return plain(http::StatusCode::OK, "git failed").into_body();
    };
    let mut bytes = collected.to_bytes().to_vec();
    let positions = pack_positions(&bytes);
    if let Some(position) = offset
        .checked_rem(positions.len() as u64)
        .and_then(|at| positions.get(usize::try_from(at).ok()?))
    {
        bytes[*position] ^= 0x10;
    }
    whole(bytes)
}

/// Returns the position in the response of each byte of the pack.
fn pack_positions(bytes: &[u8]) -> Vec<usize> {
    let (mut positions, mut at) = (Vec::new(), 0);
    while let Some(length) = packet_length(bytes, at) {
        let end = (at + length.max(4)).min(bytes.len());
        if length > 5 && bytes.get(at + 4) == Some(&PACK_BAND) {
            positions.extend(at + 5..end);
        }
        at = end;
    }
    positions
}

fn packet_length(bytes: &[u8], at: usize) -> Option<usize> {
    let digits = std::str::from_utf8(bytes.get(at..at + 4)?).ok()?;
    usize::from_str_radix(digits, 16).ok()
}

/// Removes capabilities from the advertisement of protocol version 0: they follow a NUL in the line of the first ref.
pub(super) async fn remove_capabilities(body: Body, names: &[&str]) -> Body {
    match body.collect().await {
        Ok(collected) => whole(without_capabilities(&collected.to_bytes(), names)),
        Err(_) => plain(http::StatusCode::OK, "git failed").into_body(),
    }
}

fn without_capabilities(bytes: &[u8], names: &[&str]) -> Vec<u8> {
    let mut at = 0;
    while let Some(length) = packet_length(bytes, at) {
        let end = (at + length.max(4)).min(bytes.len());
        let line = &bytes[(at + 4).min(end)..end];
        if let Some(zero) = line.iter().position(|byte| *byte == 0) {
            let advertised = String::from_utf8_lossy(&line[zero + 1..]).into_owned();
            let remaining = advertised
                .trim_end()
                .split(' ')
                .filter(|name| !names.contains(name));
            let remaining = remaining.collect::<Vec<_>>().join(" ");
            let line = [&line[..=zero], remaining.as_bytes(), b"\n"].concat();
            let length = format!("{:04x}", line.len() + 4);
            return [&bytes[..at], length.as_bytes(), &line, &bytes[end..]].concat();
        }
        at = end;
    }
    bytes.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_of_side_band_1_belong_to_the_pack() {
        let response = b"000dpackfile\n0009\x01PACK0008\x02hi!0007\x01ab0000";
        let pack: Vec<u8> = pack_positions(response)
            .iter()
            .map(|position| response[*position])
            .collect();
        assert_eq!(pack, b"PACKab");
    }

    #[test]
    fn invalid_responses_contain_no_pack() {
        assert!(pack_positions(b"<html>").is_empty());
        assert!(pack_positions(b"").is_empty());
        assert!(pack_positions(b"ffff\x01").len() <= 1);
    }

    #[test]
    fn only_the_given_capabilities_are_removed() {
        let prefix = "001e# service=git-upload-pack\n0000";
        let before = format!("{prefix}001dabc HEAD\0shallow a ofs-b\n0010abc main-ref\n0000");
        let after = format!("{prefix}0015abc HEAD\0a ofs-b\n0010abc main-ref\n0000");
        let changed = without_capabilities(before.as_bytes(), &["shallow"]);
        assert_eq!(String::from_utf8(changed).unwrap(), after);
        assert_eq!(without_capabilities(b"version 2", &["shallow"]), b"version 2");
    }
}
