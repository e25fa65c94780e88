//! The pkt-line format: four hexadecimal digits of length, then that many bytes less four (`gitprotocol-common`).

use bytes::{Buf, Bytes, BytesMut};

/// Maximum length of a packet, including the length digits.
pub(crate) const MAX_PACKET_BYTES: usize = 65_520;

/// One packet of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Payload.
    Data(Bytes),
    /// `0000`: the end of a message.
    Flush,
    /// `0001`: the end of a section.
    Delimiter,
    /// `0002`: the end of a response of a stateless connection.
    ResponseEnd,
}

impl Packet {
    /// Returns the payload of a data packet without the optional trailing line feed.
    #[must_use]
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Data(data) => Some(data.strip_suffix(b"\n").unwrap_or(data)),
            Self::Flush | Self::Delimiter | Self::ResponseEnd => None,
        }
    }
}

/// The stream is not a sequence of packets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The length is not a hexadecimal number, or not an allowed one.
    #[error("invalid packet length '{0}'")]
    Length(String),
}

/// Removes the next packet from the front of `buffer`; returns `None` if more bytes are needed.
///
/// # Errors
/// The bytes at the front are not a packet. The stream cannot be read any further then.
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

/// Parses exactly four hexadecimal digits (`from_str_radix` alone would accept a sign) and rejects the reserved value.
fn length(digits: [u8; 4]) -> Option<usize> {
    let mut value = 0;
    for digit in digits {
        value = value * 16 + char::from(digit).to_digit(16)? as usize;
    }
    (value != 3 && value <= MAX_PACKET_BYTES).then_some(value)
}

/// A request under construction, packet by packet.
#[derive(Clone, Debug, Default)]
pub struct Request(Vec<u8>);

impl Request {
    /// Creates an empty request with space for this number of bytes.
    #[must_use]
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Appends a text packet with its line feed. Callers write lines far below [`MAX_PACKET_BYTES`]: keywords, object names, and
    /// ref names of bounded length.
    #[must_use]
    pub fn line(self, text: &str) -> Self {
        self.line_of(&[text])
    }

    /// Appends a text packet as [`Self::line`] does, from the parts of its text. Each lookup writes such lines, so this does
    /// without the machinery of `format!`.
    #[must_use]
    pub(crate) fn line_of(mut self, parts: &[&str]) -> Self {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() + 5;
        debug_assert!(
            length <= MAX_PACKET_BYTES,
            "a request line of {} bytes",
            length - 5
        );
        self.0.reserve(length);
        for shift in [12, 8, 4, 0] {
            self.0.push(b"0123456789abcdef"[(length >> shift) & 0xf]);
        }
        for part in parts {
            self.0.extend_from_slice(part.as_bytes());
        }
        self.0.push(b'\n');
        self
    }

    /// Appends one packet for each line.
    #[must_use]
    pub fn lines(self, lines: impl IntoIterator<Item = String>) -> Self {
        lines.into_iter().fold(self, |request, line| request.line(&line))
    }

    /// Appends a delimiter packet, which ends the capabilities.
    #[must_use]
    pub(crate) fn delimiter(mut self) -> Self {
        self.0.extend_from_slice(b"0001");
        self
    }

    /// Appends a flush packet.
    #[must_use]
    pub fn flush(mut self) -> Self {
        self.0.extend_from_slice(b"0000");
        self
    }

    /// Appends a flush packet and returns the bytes.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.flush().into_bytes()
    }

    /// Returns the bytes without a final flush packet.
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
    fn invalid_packet_lengths_are_refused() {
        for bad in ["0003", "ffff", "fff1", "+004", "-001", "zzzz", "    "] {
            assert_eq!(all(bad.as_bytes()), Err(PacketError::Length(bad.into())), "{bad}");
        }
    }

    #[test]
    fn an_incomplete_packet_needs_more_bytes() {
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
        fn written_data_is_parsed_back(lines in proptest::collection::vec("[ -~]{0,200}", 0..20)) {
            let bytes = Request::default().lines(lines.clone()).finish();
            let read: Vec<_> = all(&bytes).unwrap().iter()
                .filter_map(|packet| Some(String::from_utf8_lossy(packet.text()?).into_owned())).collect();
            prop_assert_eq!(read, lines);
        }

        #[test]
        fn a_line_of_parts_is_its_length_and_its_text(one in "[ -~]{0,300}", other in "[ -~]{0,5000}") {
            let bytes = Request::default().line_of(&[&one, &other]).into_bytes();
            let text = format!("{one}{other}");
            prop_assert_eq!(String::from_utf8_lossy(&bytes), format!("{:04x}{text}\n", text.len() + 5));
        }

        #[test]
        fn chunk_boundaries_do_not_matter(split_at_byte in 0_usize..24) {
            let bytes = b"0006a\n0005b000400010000";
            let mut buffer = BytesMut::new();
            let mut packets = Vec::new();
            for part in [&bytes[..split_at_byte.min(bytes.len())], &bytes[split_at_byte.min(bytes.len())..]] {
                buffer.extend_from_slice(part);
                while let Some(packet) = decode(&mut buffer).unwrap() {
                    packets.push(packet);
                }
            }
            prop_assert_eq!(packets, all(bytes).unwrap());
        }
    }
}
