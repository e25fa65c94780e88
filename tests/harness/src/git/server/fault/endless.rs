//! Well-formed responses that do not end, for clients that must stop at a limit.

use std::io;

use futures::{StreamExt, stream};
use http::{HeaderValue, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};

use super::super::{Body, Response};
use super::Step;

/// Number of bytes after which the connection closes, for clients without a limit.
const MAX_BYTES: u64 = 4 << 30;
/// Maximum payload of a side-band packet (gitprotocol-common: 65520 with length and band).
const MAX_PAYLOAD: usize = 65515;

/// Creates the packet with a number.
type Next = fn(u64) -> Vec<u8>;

pub(super) fn response(step: Step) -> Response {
    let (first, next): (Vec<u8>, Next) = match step {
        Step::Fetch => (pack_start(), pack_more),
        Step::LsRefs => (Vec::new(), reference),
        _ => (version_two(), capability),
    };
    typed(step, body(first, next))
}

/// Returns a response with the content type of this step.
pub(super) fn typed(step: Step, body: Body) -> Response {
    let kind = match step {
        Step::Fetch | Step::LsRefs => "application/x-git-upload-pack-result",
        _ => "application/x-git-upload-pack-advertisement",
    };
    let mut response = http::Response::new(body);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn body(first: Vec<u8>, next: Next) -> Body {
    let more = stream::unfold((0_u64, 0_u64), move |(number, sent)| async move {
        let chunk = match number {
            _ if sent > MAX_BYTES => return None,
            _ => (number * 64..number * 64 + 64)
                .flat_map(next)
                .collect::<Vec<u8>>(),
        };
        let sent = sent + chunk.len() as u64;
        Some((Ok(Frame::data(Bytes::from(chunk))), (number + 1, sent)))
    });
    let end = stream::once(async { Err(io::Error::other("limit reached")) });
    let start = stream::once(async move { Ok(Frame::data(Bytes::from(first))) });
    StreamBody::new(start.chain(more).chain(end)).boxed_unsync()
}

fn packet(payload: &[u8]) -> Vec<u8> {
    [format!("{:04x}", payload.len() + 4).as_bytes(), payload].concat()
}

/// Returns section header, pack header and the header of a blob of 2^40 bytes in stored (not deflated) form.
fn pack_start() -> Vec<u8> {
    let mut pack = b"\x01PACK\x00\x00\x00\x02\x00\x00\x00\x01".to_vec();
    pack.push(0x80 | (3 << 4)); // a blob, low four bits of its size, continued
    let mut size: u64 = (1 << 40) >> 4;
    while size > 0x7f {
        pack.push(0x80 | u8::try_from(size & 0x7f).unwrap_or(0));
        size >>= 7;
    }
    pack.push(u8::try_from(size).unwrap_or(0));
    pack.extend([0x78, 0x01]);
    [packet(b"packfile\n"), packet(&pack)].concat()
}

/// Returns one stored block (RFC 1951 §3.2.4), not the last, in one side-band packet.
fn pack_more(number: u64) -> Vec<u8> {
    let length = u16::try_from(MAX_PAYLOAD - 5).unwrap_or(u16::MAX);
    let mut payload = vec![1, 0];
    payload.extend(length.to_le_bytes());
    payload.extend((!length).to_le_bytes());
    payload.resize(MAX_PAYLOAD + 1, u8::try_from(number % 251).unwrap_or(0));
    packet(&payload)
}

fn reference(number: u64) -> Vec<u8> {
    packet(format!("{number:040x} refs/heads/branch-{number}\n").as_bytes())
}

fn version_two() -> Vec<u8> {
    let service = packet(b"# service=git-upload-pack\n");
    [service, b"0000".to_vec(), packet(b"version 2\n")].concat()
}

fn capability(number: u64) -> Vec<u8> {
    packet(format!("capability-{number}=yes\n").as_bytes())
}
