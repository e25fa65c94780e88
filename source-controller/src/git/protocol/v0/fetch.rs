//! Asking for objects, and what comes back: where history is cut off, what both have, then the pack, in bands or bare.

use bytes::Bytes;

use super::super::fetch::{AnswerError, Event, Wish, band, boundary, unexpected};
use super::super::packet::{Packet, Request};
use super::super::{AGENT, remote_text};
use super::Capabilities;

/// Asks for the wanted objects. As in version 2, `done` is sent at once: one request, one answer.
///
/// A server that cannot limit the depth gives the whole history. Nothing that was cut off can be told to it either, so
/// in that case it is told of nothing that is held.
#[must_use]
pub fn request(capabilities: &Capabilities, wish: &Wish<'_>) -> Bytes {
    let mut words = Vec::new();
    // Without bands there has to be exactly one acknowledgment, or nobody could tell where the pack begins.
    let said = [
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
    words.extend(said.into_iter().filter_map(|(word, said)| said.then_some(word)));
    let agent = format!("agent={AGENT}");
    if capabilities.agent {
        words.push(&agent);
    }
    let words = words.join(" ");
    let wants = wish.wants.iter().enumerate().map(|(index, id)| match index {
        0 if !words.is_empty() => format!("want {id} {words}"),
        _ => format!("want {id}"),
    });
    let mut request = Request::default().lines(wants);
    if capabilities.shallow {
        request = request.lines(wish.shallow.iter().map(|id| format!("shallow {id}")));
        request = request.lines(wish.depth.map(|depth| format!("deepen {depth}")));
    }
    request = request.flush();
    if capabilities.shallow || wish.shallow.is_empty() {
        request = request.lines(wish.have.iter().map(|id| format!("have {id}")));
    }
    request.line("done").into_bytes()
}

/// Where in the answer the next packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    /// Commits without parents, up to a flush.
    Boundary,
    /// What the server has of what is held.
    Acknowledgments,
    /// The pack in bands.
    Bands,
    /// The pack as it is: no packets any more.
    Bare,
    /// Behind the last packet.
    Over,
}

/// Reads the answer, packet by packet up to where it has none.
#[derive(Clone, Debug)]
pub struct Answer {
    section: Section,
    bands: bool,
}

impl Answer {
    /// The answer of a server with these capabilities.
    #[must_use]
    pub const fn of(capabilities: &Capabilities) -> Self {
        Self {
            section: if capabilities.shallow {
                Section::Boundary
            } else {
                Section::Acknowledgments
            },
            bands: capabilities.has_side_band(),
        }
    }

    /// Takes the next packet; `None` when it means nothing to the caller.
    ///
    /// # Errors
    /// The server reports an error or breaks the protocol.
    pub fn accept(&mut self, packet: Packet) -> Result<Option<Event>, AnswerError> {
        match (self.section, packet) {
            (Section::Bare | Section::Over, packet) => Err(unexpected(&packet)),
            (Section::Boundary, Packet::Flush) => {
                self.section = Section::Acknowledgments;
                Ok(None)
            }
            (Section::Acknowledgments, Packet::Flush) => Err(AnswerError::NoPack),
            (Section::Bands, Packet::Flush) => {
                self.section = Section::Over;
                Ok(Some(Event::End))
            }
            (Section::Bands, Packet::Data(data)) => band(data),
            (Section::Acknowledgments, Packet::Data(data))
                if self.bands && data.first().is_some_and(|band| *band < 4) =>
            {
                self.section = Section::Bands;
                band(data)
            }
            (section, packet) => self.line(section, &packet),
        }
    }

    /// Whether what follows is the pack itself, without packets around it.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.section == Section::Bare
    }

    fn line(&mut self, section: Section, packet: &Packet) -> Result<Option<Event>, AnswerError> {
        let text = packet.text().ok_or_else(|| unexpected(packet))?;
        if let Some(words) = text.strip_prefix(b"ERR ") {
            return Err(AnswerError::Remote(remote_text(words)));
        }
        if section == Section::Boundary {
            return boundary(text).map(Some).ok_or_else(|| unexpected(packet));
        }
        if text != b"NAK" && !text.starts_with(b"ACK ") {
            return Err(unexpected(packet));
        }
        if !self.bands {
            self.section = Section::Bare;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use git2::Oid;
    use proptest::prelude::*;

    use super::super::super::fetch::Pack;
    use super::super::super::object_id;
    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    fn id() -> Oid {
        object_id(A.as_bytes()).unwrap()
    }

    fn full() -> Capabilities {
        Capabilities::parse(
            b"multi_ack_detailed side-band side-band-64k thin-pack ofs-delta shallow no-progress agent=x",
        )
        .unwrap()
    }

    fn asked(capabilities: &Capabilities, shallow: &[Oid]) -> String {
        let wish = Wish {
            wants: &[id(), id()],
            have: &[id()],
            shallow,
            depth: Some(1),
            pack: Pack::Thin,
        };
        let text = String::from_utf8(request(capabilities, &wish).to_vec()).unwrap();
        text.replace(A, "A").replace(AGENT, "us")
    }

    #[test]
    fn the_request_uses_what_the_server_offers() {
        // A stands for 40 digits.
        let words = "multi_ack_detailed side-band-64k thin-pack ofs-delta no-progress agent=us";
        let lines = format!("want A {words}\n|want A\n|shallow A\n|deepen 1\n|0000|have A\n|done\n");
        assert_eq!(lines_of(&asked(&full(), &[id()])), lines);
        let plain = asked(&Capabilities::default(), &[]);
        assert_eq!(lines_of(&plain), "want A\n|want A\n|0000|have A\n|done\n");
        // What is cut off cannot be told, so nothing is.
        let cut = asked(&Capabilities::default(), &[id()]);
        assert_eq!(lines_of(&cut), "want A\n|want A\n|0000|done\n");
    }

    /// The lines without their lengths.
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
    fn without_bands_one_acknowledgment_is_all_there_is() {
        let bare = Capabilities {
            multi_ack_detailed: true,
            shallow: true,
            ..Capabilities::default()
        };
        assert!(!asked(&bare, &[]).contains("multi_ack"));
        let small = Capabilities {
            side_band: true,
            ..bare
        };
        assert!(
            asked(&small, &[]).contains("A multi_ack_detailed side-band\n"),
            "{}",
            asked(&small, &[])
        );
    }

    fn line(text: &str) -> Packet {
        Packet::Data(Bytes::from(format!("{text}\n")))
    }

    fn run(capabilities: &Capabilities, packets: Vec<Packet>) -> Result<Vec<Event>, AnswerError> {
        let mut answer = Answer::of(capabilities);
        packets
            .into_iter()
            .filter_map(|packet| answer.accept(packet).transpose())
            .collect()
    }

    #[test]
    fn an_answer_in_bands_is_read_to_its_end() {
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
    fn a_bare_pack_begins_behind_the_acknowledgment() {
        let mut answer = Answer::of(&Capabilities::default());
        assert_eq!(answer.accept(line("NAK")), Ok(None));
        assert!(answer.is_bare());
        assert!(answer.accept(line("PACK")).is_err());
    }

    #[test]
    fn errors_of_the_server_are_passed_on() {
        let words = AnswerError::Remote("upload-pack: not our ref".into());
        assert_eq!(
            run(&full(), vec![line("ERR upload-pack: not our ref")]),
            Err(words.clone())
        );
        assert_eq!(
            run(&full(), vec![Packet::Flush, line("ERR upload-pack: not our ref")]),
            Err(words)
        );
        let broken = Packet::Data(Bytes::from_static(b"\x03no memory"));
        assert_eq!(
            run(&full(), vec![Packet::Flush, line("NAK"), broken]),
            Err(AnswerError::Remote("no memory".into()))
        );
    }

    #[test]
    fn a_broken_answer_is_refused() {
        assert_eq!(
            run(&full(), vec![Packet::Flush, line("NAK"), Packet::Flush]),
            Err(AnswerError::NoPack)
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
                matches!(run(&full(), packets.clone()), Err(AnswerError::Unexpected(_))),
                "{packets:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_packets_are_read_or_refused(
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
