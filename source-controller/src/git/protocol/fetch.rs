//! The command `fetch`: one request with everything that is held already, one answer with a pack of the rest.

use bytes::{Buf, Bytes};
use git2::Oid;

use super::advertisement::V2;
use super::packet::{Packet, Request};
use super::{AGENT, object_id, remote_text};

/// The depth of a whole history.
pub const WHOLE_HISTORY: u32 = 0x7fff_ffff;

/// What is asked for, and what need not be sent.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// The objects wanted: commits, or tags that lead to them.
    pub wants: &'a [Oid],
    /// Commits whose whole trees are held.
    pub have: &'a [Oid],
    /// Commits whose parents are not held.
    pub shallow: &'a [Oid],
    /// Commits of each history, 1 for the wanted one alone; none where no histories are wanted.
    pub depth: Option<u32>,
    /// What the pack may leave out.
    pub pack: Pack,
}

/// What a pack may leave out. A mirror of which files were once left out is never sent a thin pack: that one could count
/// on a file which the mirror seems to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pack {
    /// What is held, and what objects of it are stored as a difference to.
    Thin,
    /// What is held.
    Plain,
    /// What is held, and all files but those that are wanted by their own hashes. Needs `fetch=filter`.
    WithoutFiles,
}

/// Asks for commits down to a depth.
///
/// `done` is sent at once, so there is no negotiation and no second round trip: commits that the server does not
/// know are ignored by it.
#[must_use]
pub fn request(capabilities: &V2, wish: &Wish<'_>) -> Bytes {
    let mut request = Request::default()
        .line("command=fetch")
        .line(&format!("agent={AGENT}"));
    if capabilities.object_format {
        request = request.line("object-format=sha1");
    }
    let each =
        |word: &'static str, ids: &[Oid]| ids.iter().map(|id| format!("{word} {id}")).collect::<Vec<_>>();
    let form = match wish.pack {
        Pack::Thin => Some("thin-pack"),
        Pack::Plain => None,
        Pack::WithoutFiles => Some("filter blob:none"),
    };
    request
        .delimiter()
        .lines(form.map(str::to_owned))
        .line("ofs-delta")
        .line("no-progress")
        .lines(each("want", wish.wants))
        .lines(each("shallow", wish.shallow))
        .lines(wish.depth.map(|depth| format!("deepen {depth}")))
        .lines(each("have", wish.have))
        .line("done")
        .finish()
}

/// What a packet of the answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This commit comes without its parents.
    Shallow(Oid),
    /// The parents of this commit are there now.
    Unshallow(Oid),
    /// The next bytes of the pack.
    Pack(Bytes),
    /// The pack is complete.
    End,
}

/// An answer that is no answer to a fetch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The server's own words.
    #[error("remote: {0}")]
    Remote(String),
    /// The answer ended before the pack began.
    #[error("the answer holds no pack")]
    NoPack,
    /// Something that the protocol does not allow at this point.
    #[error("unexpected {0} in the answer to a fetch")]
    Unexpected(String),
}

/// Where in the answer the next packet stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    /// Between two sections.
    #[default]
    Between,
    /// `shallow-info`.
    ShallowInfo,
    /// A section that says nothing of use: acknowledgments, wanted refs.
    Skipped,
    /// `packfile`: the rest, in bands.
    Pack,
    /// Behind the last packet.
    Over,
}

/// Reads the answer to a fetch, packet by packet.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    section: Section,
}

impl Answer {
    /// Takes the next packet; `None` when it means nothing to the caller.
    ///
    /// # Errors
    /// The server reports an error or breaks the protocol.
    pub fn accept(&mut self, packet: Packet) -> Result<Option<Event>, AnswerError> {
        match (self.section, packet) {
            (Section::Over, packet) => Err(unexpected(&packet)),
            (Section::Pack, Packet::Data(data)) => band(data),
            (Section::Pack, Packet::Flush) => {
                self.section = Section::Over;
                Ok(Some(Event::End))
            }
            (_, Packet::Flush) => Err(AnswerError::NoPack),
            (Section::ShallowInfo | Section::Skipped, Packet::Delimiter) => {
                self.section = Section::Between;
                Ok(None)
            }
            (section, packet) => {
                let text = packet.text().ok_or_else(|| unexpected(&packet))?;
                if let Some(words) = text.strip_prefix(b"ERR ") {
                    return Err(AnswerError::Remote(remote_text(words)));
                }
                match section {
                    Section::Between => {
                        self.section = named(text).ok_or_else(|| unexpected(&packet))?;
                        Ok(None)
                    }
                    Section::ShallowInfo => boundary(text).map(Some).ok_or_else(|| unexpected(&packet)),
                    Section::Skipped | Section::Pack | Section::Over => Ok(None),
                }
            }
        }
    }
}

fn named(section: &[u8]) -> Option<Section> {
    match section {
        b"shallow-info" => Some(Section::ShallowInfo),
        b"acknowledgments" | b"wanted-refs" => Some(Section::Skipped),
        b"packfile" => Some(Section::Pack),
        _ => None,
    }
}

pub(super) fn boundary(line: &[u8]) -> Option<Event> {
    if let Some(id) = line.strip_prefix(b"shallow ") {
        return object_id(id).map(Event::Shallow);
    }
    line.strip_prefix(b"unshallow ")
        .and_then(object_id)
        .map(Event::Unshallow)
}

/// The side-band: 1 is the pack, 2 is for people, 3 is the server giving up.
pub(super) fn band(mut data: Bytes) -> Result<Option<Event>, AnswerError> {
    if data.is_empty() {
        return Err(AnswerError::Unexpected("empty packet".into()));
    }
    match data.get_u8() {
        1 => Ok((!data.is_empty()).then_some(Event::Pack(data))),
        2 => Ok(None),
        3 => Err(AnswerError::Remote(remote_text(&data))),
        other => Err(AnswerError::Unexpected(format!("band {other}"))),
    }
}

pub(super) fn unexpected(packet: &Packet) -> AnswerError {
    AnswerError::Unexpected(match packet {
        Packet::Data(data) => format!("'{}'", remote_text(&data[..data.len().min(80)])),
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

    fn run(packets: Vec<Packet>) -> Result<Vec<Event>, AnswerError> {
        let mut answer = Answer::default();
        packets
            .into_iter()
            .filter_map(|packet| answer.accept(packet).transpose())
            .collect()
    }

    #[test]
    fn the_request_says_what_is_held() {
        let id = object_id(A.as_bytes()).unwrap();
        let wish = Wish {
            wants: &[id],
            have: &[id],
            shallow: &[id],
            depth: Some(1),
            pack: Pack::Thin,
        };
        let text = String::from_utf8(request(&V2::default(), &wish).to_vec()).unwrap();
        let wanted = format!("0032want {A}\n0035shallow {A}\n000ddeepen 1\n0032have {A}\n0009done\n0000");
        assert!(text.ends_with(&wanted), "{text}");
        assert!(
            text.contains("000ethin-pack\n") && !text.contains("filter"),
            "{text}"
        );
    }

    #[test]
    fn a_pack_without_files_is_never_a_thin_one() {
        let id = object_id(A.as_bytes()).unwrap();
        let wish = Wish {
            wants: &[id],
            have: &[],
            shallow: &[],
            depth: None,
            pack: Pack::WithoutFiles,
        };
        let text = String::from_utf8(request(&V2::default(), &wish).to_vec()).unwrap();
        assert!(
            text.contains("0015filter blob:none\n") && !text.contains("thin-pack"),
            "{text}"
        );
        assert!(!text.contains("deepen"), "{text}");
    }

    #[test]
    fn an_answer_is_read_to_its_end() {
        let id = object_id(A.as_bytes()).unwrap();
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
    fn errors_of_the_server_are_passed_on() {
        assert_eq!(
            run(vec![line("ERR upload-pack: not our ref")]),
            Err(AnswerError::Remote("upload-pack: not our ref".into()))
        );
        assert_eq!(
            run(vec![line("packfile"), bytes(b"\x03out of memory")]),
            Err(AnswerError::Remote("out of memory".into()))
        );
    }

    #[test]
    fn a_broken_answer_is_refused() {
        assert_eq!(run(vec![Packet::Flush]), Err(AnswerError::NoPack));
        assert_eq!(
            run(vec![line("acknowledgments"), line("NAK"), Packet::Flush]),
            Err(AnswerError::NoPack)
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
                matches!(run(packets.clone()), Err(AnswerError::Unexpected(_))),
                "{packets:?}"
            );
        }
    }

    fn packets() -> impl Strategy<Value = Packet> {
        let words = prop_oneof![
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
            words.prop_map(|text| line(&text)),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(|data| Packet::Data(data.into())),
        ]
    }

    proptest! {
        #[test]
        fn any_packets_are_read_or_refused(packets in proptest::collection::vec(packets(), 0..20)) {
            let _ = run(packets);
        }
    }
}
