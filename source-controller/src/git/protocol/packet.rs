//! The packet line: four hexadecimal digits of length, then that many bytes less four (`gitprotocol-common`).

use bytes::{Buf, Bytes, BytesMut};

/// Longest packet, its length digits included.
pub const LONGEST: usize = 65_520;

/// One packet of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Bytes of the layer above.
    Data(Bytes),
    /// `0000`: the end of a message.
    Flush,
    /// `0001`: the end of a section.
    Delimiter,
    /// `0002`: the end of a response of a stateless connection.
    ResponseEnd,
}

impl Packet {
    /// The bytes of a data packet without the line feed that text packets may end in.
    #[must_use]
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Data(data) => Some(data.strip_suffix(b"\n").unwrap_or(data)),
            Self::Flush | Self::Delimiter | Self::ResponseEnd => None,
        }
    }
}

/// The stream is no sequence of packets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The four length bytes are no hexadecimal number, or one that no packet has.
    #[error("'{0}' is no length of a packet")]
    Length(String),
}

/// Takes the next packet off the front of `buffer`; `None` when more bytes are needed first.
///
/// # Errors
/// The bytes at the front are no packet. The stream cannot be read any further then.
pub fn decode(buffer: &mut BytesMut) -> Result<Option<Packet>, PacketError> {
    let Some(digits) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = length(*digits).ok_or_else(|| PacketError::Length(digits.escape_ascii().to_string()))?;
    let marker = match length {
        0 => Packet::Flush,
        1 => Packet::Delimiter,
        2 => Packet::ResponseEnd,
        _ if buffer.len() < length => return Ok(None),
        _ => {
            let mut packet = buffer.split_to(length);
            packet.advance(4);
            return Ok(Some(Packet::Data(packet.freeze())));
        }
    };
    buffer.advance(4);
    Ok(Some(marker))
}

/// Strictly four hexadecimal digits (`from_str_radix` alone would take a sign), and no reserved value.
fn length(digits: [u8; 4]) -> Option<usize> {
    let mut value = 0;
    for digit in digits {
        value = value * 16 + char::from(digit).to_digit(16)? as usize;
    }
    (value != 3 && value <= LONGEST).then_some(value)
}

/// A request being written, packet by packet.
#[derive(Clone, Debug, Default)]
pub struct Request(Vec<u8>);

impl Request {
    /// Adds a text packet; the line feed is added here. Callers write lines far below [`LONGEST`]: keywords, object
    /// names, and ref names whose length was checked.
    #[must_use]
    pub fn line(mut self, text: &str) -> Self {
        debug_assert!(
            text.len() + 5 <= LONGEST,
            "a request line of {} bytes",
            text.len()
        );
        self.0
            .extend_from_slice(format!("{:04x}{text}\n", text.len() + 5).as_bytes());
        self
    }

    /// Adds one packet for each line.
    #[must_use]
    pub fn lines(self, lines: impl IntoIterator<Item = String>) -> Self {
        lines.into_iter().fold(self, |request, line| request.line(&line))
    }

    /// Ends the section of capabilities.
    #[must_use]
    pub fn delimiter(mut self) -> Self {
        self.0.extend_from_slice(b"0001");
        self
    }

    /// Ends a list.
    #[must_use]
    pub fn flush(mut self) -> Self {
        self.0.extend_from_slice(b"0000");
        self
    }

    /// Ends the request with a flush and gives its bytes.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.flush().into_bytes()
    }

    /// The bytes as they are.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Packet>, PacketError> {
        let mut buffer = BytesMut::from(bytes);
        let mut packets = Vec::new();
        while let Some(packet) = decode(&mut buffer)? {
            packets.push(packet);
        }
        Ok(packets)
    }

    #[test]
    fn packets_are_read_in_order() {
        let packets = all(b"0006a\n0005b0004000100020000").unwrap();
        let data = |bytes: &'static [u8]| Packet::Data(Bytes::from_static(bytes));
        assert_eq!(
            packets,
            [
                data(b"a\n"),
                data(b"b"),
                data(b""),
                Packet::Delimiter,
                Packet::ResponseEnd,
                Packet::Flush
            ]
        );
        assert_eq!(packets[0].text(), Some(&b"a"[..]));
    }

    #[test]
    fn lengths_that_no_packet_has_are_refused() {
        for bad in ["0003", "ffff", "fff1", "+004", "-001", "zzzz", "    "] {
            assert_eq!(all(bad.as_bytes()), Err(PacketError::Length(bad.into())), "{bad}");
        }
    }

    #[test]
    fn an_incomplete_packet_waits_for_the_rest() {
        for part in ["", "0", "000", "0006", "0006a"] {
            assert_eq!(all(part.as_bytes()), Ok(vec![]), "{part}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_packets_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            if let Ok(packets) = all(&bytes) {
                prop_assert!(packets.len() <= bytes.len() / 4);
            }
        }

        #[test]
        fn what_is_written_is_read(lines in proptest::collection::vec("[ -~]{0,200}", 0..20)) {
            let bytes = Request::default().lines(lines.clone()).finish();
            let read: Vec<_> = all(&bytes).unwrap().iter()
                .filter_map(|packet| Some(String::from_utf8_lossy(packet.text()?).into_owned())).collect();
            prop_assert_eq!(read, lines);
        }

        #[test]
        fn how_the_bytes_are_cut_makes_no_difference(cut in 0_usize..24) {
            let bytes = b"0006a\n0005b000400010000";
            let mut buffer = BytesMut::new();
            let mut packets = Vec::new();
            for part in [&bytes[..cut.min(bytes.len())], &bytes[cut.min(bytes.len())..]] {
                buffer.extend_from_slice(part);
                while let Some(packet) = decode(&mut buffer).unwrap() {
                    packets.push(packet);
                }
            }
            prop_assert_eq!(packets, all(bytes).unwrap());
        }
    }
}
