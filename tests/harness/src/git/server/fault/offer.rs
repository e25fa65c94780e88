//! Takes words out of what a server of protocol version 0 offers: they stand behind a NUL in the line of the first ref.

use http_body_util::BodyExt;

use super::super::{Body, plain};
use super::pack::packet_length;
use super::whole;

pub(super) async fn leave_out(body: Body, words: &[&str]) -> Body {
    match body.collect().await {
        Ok(collected) => whole(without(&collected.to_bytes(), words)),
        Err(_) => plain(http::StatusCode::OK, "git broke off").into_body(),
    }
}

/// The line is written anew; all before and behind it stays.
fn without(bytes: &[u8], words: &[&str]) -> Vec<u8> {
    let mut at = 0;
    while let Some(length) = packet_length(bytes, at) {
        let end = (at + length.max(4)).min(bytes.len());
        let line = &bytes[(at + 4).min(end)..end];
        if let Some(zero) = line.iter().position(|byte| *byte == 0) {
            let offered = String::from_utf8_lossy(&line[zero + 1..]).into_owned();
            let kept = offered.trim_end().split(' ').filter(|word| !words.contains(word));
            let kept = kept.collect::<Vec<_>>().join(" ");
            let line = [&line[..=zero], kept.as_bytes(), b"\n"].concat();
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
    fn only_the_words_go() {
        let front = "001e# service=git-upload-pack\n0000";
        let before = format!("{front}001dabc HEAD\0shallow a ofs-b\n0010abc main-ref\n0000");
        let after = format!("{front}0015abc HEAD\0a ofs-b\n0010abc main-ref\n0000");
        let changed = without(before.as_bytes(), &["shallow"]);
        assert_eq!(String::from_utf8(changed).unwrap(), after);
        assert_eq!(without(b"version 2", &["shallow"]), b"version 2");
    }
}
