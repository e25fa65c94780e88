//! Changes one bit of the pack inside a response: packet lines and side band around it stay whole, so that the fault
//! is found where a damaged pack must be found, by its checksum or by inflating it.

use http_body_util::BodyExt;

use super::super::{Body, plain};
use super::whole;

/// Side band 1 carries the pack.
const PACK_BAND: u8 = 1;

pub(super) async fn corrupt(body: Body, offset: u64) -> Body {
    let Ok(collected) = body.collect().await else {
        return plain(http::StatusCode::OK, "git broke off").into_body();
    };
    let mut bytes = collected.to_bytes().to_vec();
    let places = pack_places(&bytes);
    if let Some(place) = offset
        .checked_rem(places.len() as u64)
        .and_then(|at| places.get(usize::try_from(at).ok()?))
    {
        bytes[*place] ^= 0x10;
    }
    whole(bytes)
}

/// Where in the response each byte of the pack is.
fn pack_places(bytes: &[u8]) -> Vec<usize> {
    let (mut places, mut at) = (Vec::new(), 0);
    while let Some(length) = packet_length(bytes, at) {
        let end = (at + length.max(4)).min(bytes.len());
        if length > 5 && bytes.get(at + 4) == Some(&PACK_BAND) {
            places.extend(at + 5..end);
        }
        at = end;
    }
    places
}

pub(super) fn packet_length(bytes: &[u8], at: usize) -> Option<usize> {
    let digits = std::str::from_utf8(bytes.get(at..at + 4)?).ok()?;
    usize::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_of_the_first_band_belong_to_the_pack() {
        let response = b"000dpackfile\n0009\x01PACK0008\x02hi!0007\x01ab0000";
        let pack: Vec<u8> = pack_places(response)
            .iter()
            .map(|place| response[*place])
            .collect();
        assert_eq!(pack, b"PACKab");
    }

    #[test]
    fn nonsense_holds_no_pack() {
        assert!(pack_places(b"<html>").is_empty());
        assert!(pack_places(b"").is_empty());
        assert!(pack_places(b"ffff\x01").len() <= 1);
    }
}
