//! Request and response of the fetch: shallow information, acknowledgments, then the pack, with or without side-band.

use bytes::Bytes;

use super::super::fetch::{
    Event, FetchArguments, ResponseError, parse_shallow_info, parse_side_band, unexpected,
};
use super::super::pkt_line::{Packet, Request};
use super::super::{AGENT, sanitize_text};
use super::Capabilities;

/// Builds the request for the wanted objects. As in version 2 it contains `done`: one request, one response.
///
/// A server without the capability `shallow` sends the complete history. It also cannot be told which commits of the
/// mirror are shallow, so in that case the request contains no `have` lines.
#[must_use]
pub fn request(capabilities: &Capabilities, arguments: &FetchArguments<'_>) -> Bytes {
    let mut capabilities_text = Vec::new();
    // Without side-band exactly one acknowledgment is required; otherwise the start of the pack is ambiguous.
    let offered = [
        (
            "multi_ack_detailed",
            capabilities.multi_ack_detailed && capabilities.has_side_band(),
        ),
        ("side-band-64k", capabilities.side_band_64k),
        ("side-band", capabilities.side_band && !capabilities.side_band_64k),
        ("thin-pack", capabilities.thin_pack),
        ("ofs-delta", capabilities.ofs_delta),
        ("no-progress", capabilities.no_progress),
        ("object-format=sha1", capabilities.object_format),
    ];
    capabilities_text.extend(
        offered
            .into_iter()
            .filter_map(|(word, offered)| offered.then_some(word)),
    );
    let agent = format!("agent={AGENT}");
    if capabilities.agent {
        capabilities_text.push(&agent);
    }
    let capabilities_text = capabilities_text.join(" ");
    let wants = arguments.wants.iter().enumerate().map(|(index, id)| match index {
        0 if !capabilities_text.is_empty() => format!("want {id} {capabilities_text}"),
        _ => format!("want {id}"),
    });
    let mut request = Request::default().lines(wants);
    if capabilities.shallow {
        request = request.lines(arguments.shallow.iter().map(|id| format!("shallow {id}")));
        request = request.lines(arguments.depth.map(|depth| format!("deepen {depth}")));
    }
    request = request.flush();
    if capabilities.shallow || arguments.shallow.is_empty() {
        request = request.lines(arguments.haves.iter().map(|id| format!("have {id}")));
    }
    request.line("done").into_bytes()
}

/// Position in the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    /// Shallow information, up to a flush.
    ShallowInfo,
    /// Acknowledgments of the `have` lines.
    Acknowledgments,
    /// The pack by side-band.
    SideBand,
    /// The raw pack without packets.
    RawPack,
    /// After the last packet.
    End,
}

/// Parses the response, packet by packet, up to a raw pack.
#[derive(Clone, Debug)]
pub struct ResponseParser {
    section: Section,
    side_band: bool,
}

impl ResponseParser {
    /// Creates the parser for a server with these capabilities.
    #[must_use]
    pub const fn new(capabilities: &Capabilities) -> Self {
        Self {
            section: if capabilities.shallow {
                Section::ShallowInfo
            } else {
                Section::Acknowledgments
            },
            side_band: capabilities.has_side_band(),
        }
    }

    /// Accepts the next packet; returns `None` if it is irrelevant for the caller.
    ///
    /// # Errors
    /// The server reports an error or violates the protocol.
    pub fn accept(&mut self, packet: Packet) -> Result<Option<Event>, ResponseError> {
        match (self.section, packet) {
            (Section::RawPack | Section::End, packet) => Err(unexpected(&packet)),
            (Section::ShallowInfo, Packet::Flush) => {
                self.section = Section::Acknowledgments;
                Ok(None)
            }
            (Section::Acknowledgments, Packet::Flush) => Err(ResponseError::MissingPack),
            (Section::SideBand, Packet::Flush) => {
                self.section = Section::End;
                Ok(Some(Event::End))
            }
            (Section::SideBand, Packet::Data(data)) => parse_side_band(data),
            (Section::Acknowledgments, Packet::Data(data))
                if self.side_band && data.first().is_some_and(|band| *band < 4) =>
            {
                self.section = Section::SideBand;
                parse_side_band(data)
            }
            (section, packet) => self.line(section, &packet),
        }
    }

    /// Whether the rest is the raw pack without packets.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.section == Section::RawPack
    }

    fn line(&mut self, section: Section, packet: &Packet) -> Result<Option<Event>, ResponseError> {
        let text = packet.text().ok_or_else(|| unexpected(packet))?;
        if let Some(message) = text.strip_prefix(b"ERR ") {
            return Err(ResponseError::Remote(sanitize_text(message)));
        }
        if section == Section::ShallowInfo {
            return parse_shallow_info(text)
                .map(Some)
                .ok_or_else(|| unexpected(packet));
        }
        if text != b"NAK" && !text.starts_with(b"ACK ") {
            return Err(unexpected(packet));
        }
        if !self.side_band {
            self.section = Section::RawPack;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use git2::Oid;
    use proptest::prelude::*;

    use super::super::super::fetch::PackMode;
    use super::super::super::parse_object_id;
    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    fn id() -> Oid {
        parse_object_id(A.as_bytes()).unwrap()
    }

    fn full() -> Capabilities {
        Capabilities::parse(
            b"multi_ack_detailed side-band side-band-64k thin-pack ofs-delta shallow no-progress agent=x",
        )
        .unwrap()
    }

    fn request_text(capabilities: &Capabilities, shallow: &[Oid]) -> String {
        let arguments = FetchArguments {
            wants: &[id(), id()],
            haves: &[id()],
            shallow,
            depth: Some(1),
            pack: PackMode::Thin,
        };
        let text = String::from_utf8(request(capabilities, &arguments).to_vec()).unwrap();
        text.replace(A, "A").replace(AGENT, "us")
    }

    #[test]
    fn the_request_uses_the_offered_capabilities() {
        // A stands for 40 digits.
        let capabilities_text = "multi_ack_detailed side-band-64k thin-pack ofs-delta no-progress agent=us";
        let lines =
            format!("want A {capabilities_text}\n|want A\n|shallow A\n|deepen 1\n|0000|have A\n|done\n");
        assert_eq!(lines_of(&request_text(&full(), &[id()])), lines);
        let plain = request_text(&Capabilities::default(), &[]);
        assert_eq!(lines_of(&plain), "want A\n|want A\n|0000|have A\n|done\n");
        // Shallow commits cannot be sent, so nothing is.
        let without_shallow = request_text(&Capabilities::default(), &[id()]);
        assert_eq!(lines_of(&without_shallow), "want A\n|want A\n|0000|done\n");
    }

    /// Splits a request into lines without their lengths.
    fn lines_of(request: &str) -> String {
        let lines = request
            .split_inclusive('\n')
            .map(|line| match line.strip_prefix("0000") {
                Some(rest) if !rest.is_empty() => format!("0000|{}", &rest[4..]),
                _ => line[4..].to_owned(),
            });
        lines.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn multi_ack_requires_side_band() {
        let bare = Capabilities {
            multi_ack_detailed: true,
            shallow: true,
            ..Capabilities::default()
        };
        assert!(!request_text(&bare, &[]).contains("multi_ack"));
        let small = Capabilities {
            side_band: true,
            ..bare
        };
        assert!(
            request_text(&small, &[]).contains("A multi_ack_detailed side-band\n"),
            "{}",
            request_text(&small, &[])
        );
    }

    fn line(text: &str) -> Packet {
        Packet::Data(Bytes::from(format!("{text}\n")))
    }

    fn run(capabilities: &Capabilities, packets: Vec<Packet>) -> Result<Vec<Event>, ResponseError> {
        let mut parser = ResponseParser::new(capabilities);
        packets
            .into_iter()
            .filter_map(|packet| parser.accept(packet).transpose())
            .collect()
    }

    #[test]
    fn a_side_band_response_is_parsed_to_its_end() {
        let events = run(
            &full(),
            vec![
                line(&format!("shallow {A}")),
                line(&format!("unshallow {A}")),
                Packet::Flush,
                line(&format!("ACK {A} common")),
                line(&format!("ACK {A} ready")),
                line("NAK"),
                line(&format!("ACK {A}")),
                Packet::Data(Bytes::from_static(b"\x02Counting")),
                Packet::Data(Bytes::from_static(b"\x01PACK")),
                Packet::Flush,
            ],
        );
        let pack = Event::Pack(Bytes::from_static(b"PACK"));
        assert_eq!(
            events.unwrap(),
            [Event::Shallow(id()), Event::Unshallow(id()), pack, Event::End]
        );
    }

    #[test]
    fn a_raw_pack_follows_the_acknowledgment() {
        let mut parser = ResponseParser::new(&Capabilities::default());
        assert_eq!(parser.accept(line("NAK")), Ok(None));
        assert!(parser.is_raw());
        assert!(parser.accept(line("PACK")).is_err());
    }

    #[test]
    fn errors_of_the_server_are_reported() {
        let expected = ResponseError::Remote("upload-pack: not our ref".into());
        assert_eq!(
            run(&full(), vec![line("ERR upload-pack: not our ref")]),
            Err(expected.clone())
        );
        assert_eq!(
            run(&full(), vec![Packet::Flush, line("ERR upload-pack: not our ref")]),
            Err(expected)
        );
        let broken = Packet::Data(Bytes::from_static(b"\x03no memory"));
        assert_eq!(
            run(&full(), vec![Packet::Flush, line("NAK"), broken]),
            Err(ResponseError::Remote("no memory".into()))
        );
    }

    #[test]
    fn an_invalid_response_is_refused() {
        assert_eq!(
            run(&full(), vec![Packet::Flush, line("NAK"), Packet::Flush]),
            Err(ResponseError::MissingPack)
        );
        for packets in [
            vec![line("shallow 1")],
            vec![Packet::Delimiter],
            vec![Packet::Flush, line("hello")],
            vec![
                Packet::Flush,
                line("NAK"),
                Packet::Data(Bytes::from_static(b"\x01x")),
                line("hello"),
            ],
        ] {
            assert!(
                matches!(run(&full(), packets.clone()), Err(ResponseError::Unexpected(_))),
                "{packets:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_packets_are_parsed_or_refused(
            shallow in any::<bool>(), side_band in any::<bool>(),
            packets in proptest::collection::vec(prop_oneof![
                Just(Packet::Flush), Just(Packet::Delimiter), Just(line("NAK")), Just(line(&format!("shallow {A}"))),
                proptest::collection::vec(any::<u8>(), 0..40).prop_map(|data| Packet::Data(data.into())),
            ], 0..20),
        ) {
            let _ = run(&Capabilities { shallow, side_band, ..Capabilities::default() }, packets);
        }
    }
}
