//! The command `fetch`: one request that lists all existing commits, one response with a pack of the missing objects.

use bytes::{Buf, Bytes};
use git2::Oid;

use super::advertisement::V2;
use super::pkt_line::{Packet, Request};
use super::{AGENT, parse_object_id, sanitize_text};

/// The depth that means the complete history.
pub(crate) const INFINITE_DEPTH: u32 = 0x7fff_ffff;

/// Arguments of the command `fetch`.
#[derive(Clone, Debug)]
pub struct FetchArguments<'a> {
    /// The wanted objects: commits, or tags that peel to them.
    pub wants: &'a [Oid],
    /// Commits that the mirror contains with their complete trees.
    pub haves: &'a [Oid],
    /// Commits of the mirror without parents.
    pub shallow: &'a [Oid],
    /// Number of commits in each history, 1 for the wanted commit alone; `None` if no commits are wanted.
    pub depth: Option<u32>,
    /// What the pack may omit.
    pub pack: PackMode,
}

/// What a pack may omit. A partial mirror never requests a thin pack: its deltas could be based on a file that the
/// mirror lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackMode {
    /// Objects that the mirror has, and the bases of deltas.
    Thin,
    /// Objects that the mirror has.
    SelfContained,
    /// Objects that the mirror has, and all blobs except those wanted by hash. Needs `fetch=filter`.
    WithoutBlobs,
}

/// Builds the request.
///
/// It contains `done`, so there is no negotiation and no second round trip. The server ignores `have` lines for commits
/// that it does not know.
#[must_use]
pub fn request(capabilities: &V2, arguments: &FetchArguments<'_>) -> Bytes {
    let mut request = Request::default()
        .line("command=fetch")
        .line(&format!("agent={AGENT}"));
    if capabilities.object_format {
        request = request.line("object-format=sha1");
    }
    let lines_of_ids =
        |word: &'static str, ids: &[Oid]| ids.iter().map(|id| format!("{word} {id}")).collect::<Vec<_>>();
    let mode_line = match arguments.pack {
        PackMode::Thin => Some("thin-pack"),
        PackMode::SelfContained => None,
        PackMode::WithoutBlobs => Some("filter blob:none"),
    };
    request
        .delimiter()
        .lines(mode_line.map(str::to_owned))
        .line("ofs-delta")
        .line("no-progress")
        .lines(lines_of_ids("want", arguments.wants))
        .lines(lines_of_ids("shallow", arguments.shallow))
        .lines(arguments.depth.map(|depth| format!("deepen {depth}")))
        .lines(lines_of_ids("have", arguments.haves))
        .line("done")
        .finish()
}

/// Meaning of a packet of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The pack contains this commit without its parents.
    Shallow(Oid),
    /// The pack contains the parents of this commit.
    Unshallow(Oid),
    /// The next bytes of the pack.
    Pack(Bytes),
    /// The pack is complete.
    End,
}

/// Why a response to a fetch is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// An error message of the server.
    #[error("remote: {0}")]
    Remote(String),
    /// The response ended before the pack began.
    #[error("the response contains no pack")]
    MissingPack,
    /// Something that the protocol does not allow at this position.
    #[error("unexpected {0} in the response to a fetch")]
    Unexpected(String),
}

/// Position in the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    /// Between two sections.
    #[default]
    Header,
    /// `shallow-info`.
    ShallowInfo,
    /// A section without relevant content: acknowledgments, wanted refs.
    Skipped,
    /// `packfile`: the rest, multiplexed by side-band.
    Pack,
    /// After the last packet.
    End,
}

/// Parses the response to a fetch, packet by packet.
#[derive(Clone, Debug, Default)]
pub struct ResponseParser {
    section: Section,
}

impl ResponseParser {
    /// Accepts the next packet; returns `None` if it is irrelevant for the caller.
    ///
    /// # Errors
    /// The server reports an error or violates the protocol.
    pub fn accept(&mut self, packet: Packet) -> Result<Option<Event>, ResponseError> {
        match (self.section, packet) {
            (Section::End, packet) => Err(unexpected(&packet)),
            (Section::Pack, Packet::Data(data)) => parse_side_band(data),
            (Section::Pack, Packet::Flush) => {
                self.section = Section::End;
                Ok(Some(Event::End))
            }
            (_, Packet::Flush) => Err(ResponseError::MissingPack),
            (Section::ShallowInfo | Section::Skipped, Packet::Delimiter) => {
                self.section = Section::Header;
                Ok(None)
            }
            (section, packet) => {
                let text = packet.text().ok_or_else(|| unexpected(&packet))?;
                if let Some(message) = text.strip_prefix(b"ERR ") {
                    return Err(ResponseError::Remote(sanitize_text(message)));
                }
                match section {
                    Section::Header => {
                        self.section = parse_section(text).ok_or_else(|| unexpected(&packet))?;
                        Ok(None)
                    }
                    Section::ShallowInfo => parse_shallow_info(text)
                        .map(Some)
                        .ok_or_else(|| unexpected(&packet)),
                    Section::Skipped | Section::Pack | Section::End => Ok(None),
                }
            }
        }
    }
}

fn parse_section(section: &[u8]) -> Option<Section> {
    match section {
        b"shallow-info" => Some(Section::ShallowInfo),
        b"acknowledgments" | b"wanted-refs" => Some(Section::Skipped),
        b"packfile" => Some(Section::Pack),
        _ => None,
    }
}

pub(super) fn parse_shallow_info(line: &[u8]) -> Option<Event> {
    if let Some(id) = line.strip_prefix(b"shallow ") {
        return parse_object_id(id).map(Event::Shallow);
    }
    line.strip_prefix(b"unshallow ")
        .and_then(parse_object_id)
        .map(Event::Unshallow)
}

/// Parses a side-band packet: band 1 is the pack, 2 is progress, 3 is a fatal error.
pub(super) fn parse_side_band(mut data: Bytes) -> Result<Option<Event>, ResponseError> {
    if data.is_empty() {
        return Err(ResponseError::Unexpected("empty packet".into()));
    }
    match data.get_u8() {
        1 => Ok((!data.is_empty()).then_some(Event::Pack(data))),
        2 => Ok(None),
        3 => Err(ResponseError::Remote(sanitize_text(&data))),
        other => Err(ResponseError::Unexpected(format!("band {other}"))),
    }
}

pub(super) fn unexpected(packet: &Packet) -> ResponseError {
    ResponseError::Unexpected(match packet {
        Packet::Data(data) => format!("'{}'", sanitize_text(&data[..data.len().min(80)])),
        Packet::Flush => "flush".into(),
        Packet::Delimiter => "delimiter".into(),
        Packet::ResponseEnd => "end of response".into(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    fn line(text: &str) -> Packet {
        Packet::Data(Bytes::from(format!("{text}\n")))
    }

    fn bytes(data: &'static [u8]) -> Packet {
        Packet::Data(Bytes::from_static(data))
    }

    fn run(packets: Vec<Packet>) -> Result<Vec<Event>, ResponseError> {
        let mut parser = ResponseParser::default();
        packets
            .into_iter()
            .filter_map(|packet| parser.accept(packet).transpose())
            .collect()
    }

    #[test]
    fn the_request_contains_the_haves() {
        let id = parse_object_id(A.as_bytes()).unwrap();
        let arguments = FetchArguments {
            wants: &[id],
            haves: &[id],
            shallow: &[id],
            depth: Some(1),
            pack: PackMode::Thin,
        };
        let text = String::from_utf8(request(&V2::default(), &arguments).to_vec()).unwrap();
        let expected = format!("0032want {A}\n0035shallow {A}\n000ddeepen 1\n0032have {A}\n0009done\n0000");
        assert!(text.ends_with(&expected), "{text}");
        assert!(
            text.contains("000ethin-pack\n") && !text.contains("filter"),
            "{text}"
        );
    }

    #[test]
    fn a_filtered_pack_is_never_thin() {
        let id = parse_object_id(A.as_bytes()).unwrap();
        let arguments = FetchArguments {
            wants: &[id],
            haves: &[],
            shallow: &[],
            depth: None,
            pack: PackMode::WithoutBlobs,
        };
        let text = String::from_utf8(request(&V2::default(), &arguments).to_vec()).unwrap();
        assert!(
            text.contains("0015filter blob:none\n") && !text.contains("thin-pack"),
            "{text}"
        );
        assert!(!text.contains("deepen"), "{text}");
    }

    #[test]
    fn a_response_is_parsed_to_its_end() {
        let id = parse_object_id(A.as_bytes()).unwrap();
        let events = run(vec![
            line("acknowledgments"),
            line("NAK"),
            Packet::Delimiter,
            line("shallow-info"),
            line(&format!("shallow {A}")),
            line(&format!("unshallow {A}")),
            Packet::Delimiter,
            line("packfile"),
            bytes(b"\x02Counting objects"),
            bytes(b"\x01PACK"),
            bytes(b"\x01"),
            bytes(b"\x01more"),
            Packet::Flush,
        ]);
        let pack = |data: &'static [u8]| Event::Pack(Bytes::from_static(data));
        assert_eq!(
            events.unwrap(),
            [
                Event::Shallow(id),
                Event::Unshallow(id),
                pack(b"PACK"),
                pack(b"more"),
                Event::End
            ]
        );
    }

    #[test]
    fn errors_of_the_server_are_reported() {
        assert_eq!(
            run(vec![line("ERR upload-pack: not our ref")]),
            Err(ResponseError::Remote("upload-pack: not our ref".into()))
        );
        assert_eq!(
            run(vec![line("packfile"), bytes(b"\x03out of memory")]),
            Err(ResponseError::Remote("out of memory".into()))
        );
    }

    #[test]
    fn an_invalid_response_is_refused() {
        assert_eq!(run(vec![Packet::Flush]), Err(ResponseError::MissingPack));
        assert_eq!(
            run(vec![line("acknowledgments"), line("NAK"), Packet::Flush]),
            Err(ResponseError::MissingPack)
        );
        for packets in [
            vec![line("mailbox")],
            vec![Packet::Delimiter],
            vec![line("shallow-info"), line("shallow 12")],
            vec![line("packfile"), bytes(b"")],
            vec![line("packfile"), bytes(b"\x09x")],
            vec![line("packfile"), Packet::Delimiter],
            vec![line("packfile"), Packet::Flush, Packet::Flush],
        ] {
            assert!(
                matches!(run(packets.clone()), Err(ResponseError::Unexpected(_))),
                "{packets:?}"
            );
        }
    }

    fn packets() -> impl Strategy<Value = Packet> {
        let message = prop_oneof![
            Just("packfile".to_owned()),
            Just("shallow-info".into()),
            Just("acknowledgments".into()),
            Just(format!("shallow {A}")),
            "[ -~]{0,40}",
        ];
        prop_oneof![
            Just(Packet::Flush),
            Just(Packet::Delimiter),
            Just(Packet::ResponseEnd),
            message.prop_map(|text| line(&text)),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(|data| Packet::Data(data.into())),
        ]
    }

    proptest! {
        #[test]
        fn any_packets_are_parsed_or_refused(packets in proptest::collection::vec(packets(), 0..20)) {
            let _ = run(packets);
        }
    }
}
