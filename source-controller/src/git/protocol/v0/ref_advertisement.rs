//! The ref advertisement: the list of all refs at the start of a connection.

use super::super::ls_refs::RemoteRef;
use super::super::pkt_line::Packet;
use super::super::{parse_object_id, sanitize_text};
use super::Capabilities;

/// Suffix of a tag's name on the line with the peeled object.
const PEELED: &[u8] = b"^{}";
/// Placeholder for a ref in an empty repository.
const NO_REFS: &[u8] = b"capabilities^{}";

/// Why a ref advertisement is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefAdvertisementError {
    /// An error message of the server.
    #[error("remote: {0}")]
    Remote(String),
    /// A repository with an unsupported hash function.
    #[error("the repository's object format is {0}; only sha1 is supported")]
    ObjectFormat(String),
    /// A line that is not a ref, or a ref at a wrong position.
    #[error("'{0}' is not a ref")]
    Malformed(String),
    /// A packet that is not a line.
    #[error("the list of refs is broken")]
    Broken,
}

/// Position in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// At the start, where HTTP servers send the service line.
    #[default]
    Start,
    /// After the service line.
    Service,
    /// Before the first ref.
    First,
    /// Among the refs.
    Refs,
    /// After the last packet.
    End,
}

/// Parses the list, packet by packet. A ref is returned after the next line was read, because that line may contain its
/// peeled object.
#[derive(Clone, Debug, Default)]
pub struct RefAdvertisement {
    position: Position,
    capabilities: Capabilities,
    pending: Option<RemoteRef>,
}

impl RefAdvertisement {
    /// Accepts the next packet and returns a completed ref, if any.
    ///
    /// # Errors
    /// The packet is not allowed at this position, or the repository is not supported.
    pub fn accept(&mut self, packet: &Packet) -> Result<Option<RemoteRef>, RefAdvertisementError> {
        let line = match (self.position, packet) {
            (Position::Service, Packet::Flush) => {
                self.position = Position::First;
                return Ok(None);
            }
            // An old server may send nothing at all for an empty repository.
            (Position::Start | Position::First | Position::Refs, Packet::Flush) => {
                self.position = Position::End;
                return Ok(self.pending.take());
            }
            (Position::End, _) => return Err(RefAdvertisementError::Broken),
            (_, packet) => packet.text().ok_or(RefAdvertisementError::Broken)?,
        };
        if let Some(words) = line.strip_prefix(b"ERR ") {
            return Err(RefAdvertisementError::Remote(sanitize_text(words)));
        }
        match self.position {
            Position::Start if line.starts_with(b"# service=git-upload-pack") => {
                self.position = Position::Service;
                Ok(None)
            }
            Position::Start | Position::Service | Position::First if line == b"version 1" => {
                self.position = Position::First;
                Ok(None)
            }
            Position::Start | Position::Service | Position::First => {
                self.position = Position::Refs;
                self.first(line)
            }
            Position::Refs | Position::End => self.line(line),
        }
    }

    /// Returns the capabilities; set after the first ref was accepted.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Whether the first line was read, which contains the capabilities.
    #[must_use]
    pub(crate) fn has_capabilities(&self) -> bool {
        matches!(self.position, Position::Refs | Position::End)
    }

    /// Whether the list is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.position == Position::End
    }

    /// Parses the first ref, which has the capabilities after a NUL.
    fn first(&mut self, line: &[u8]) -> Result<Option<RemoteRef>, RefAdvertisementError> {
        let (line, words) = match line.iter().position(|byte| *byte == 0) {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        self.capabilities = Capabilities::parse(words).map_err(RefAdvertisementError::ObjectFormat)?;
        let digits = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        // Servers older than the capability `object-format` show the format only by the length of the hashes.
        if digits == 64 && line[..digits].iter().all(u8::is_ascii_hexdigit) {
            return Err(RefAdvertisementError::ObjectFormat("sha256".into()));
        }
        self.line(line)
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<RemoteRef>, RefAdvertisementError> {
        let malformed = || RefAdvertisementError::Malformed(sanitize_text(line));
        // A shallow commit of the server's own history.
        if let Some(id) = line.strip_prefix(b"shallow ") {
            return parse_object_id(id).map(|_| None).ok_or_else(malformed);
        }
        let id = line.get(..40).and_then(parse_object_id).ok_or_else(malformed)?;
        let name = line[40..].strip_prefix(b" ").filter(|name| !name.is_empty());
        let name = name.ok_or_else(malformed)?;
        if name == NO_REFS {
            return Ok(None);
        }
        if let Some(tag) = name.strip_suffix(PEELED) {
            let pending = self.pending.as_mut().filter(|pending| pending.name == tag);
            pending.ok_or_else(malformed)?.peeled = Some(id);
            return Ok(None);
        }
        Ok(self.pending.replace(RemoteRef {
            name: name.to_vec(),
            id,
            peeled: None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";
    const B: &str = "89abcdef0123456789abcdef0123456789abcdef";

    fn packet(line: &str) -> Packet {
        match line {
            "0000" => Packet::Flush,
            line => Packet::Data(Bytes::from(format!("{line}\n"))),
        }
    }

    /// Returns name, object and peeled object of each ref.
    fn refs(lines: &[&str]) -> Result<Vec<String>, RefAdvertisementError> {
        let mut advertisement = RefAdvertisement::default();
        let mut found = Vec::new();
        for line in lines {
            found.extend(advertisement.accept(&packet(line))?);
        }
        assert!(advertisement.is_complete());
        Ok(found
            .into_iter()
            .map(|found| {
                let peeled = found.peeled.map(|id| format!(" -> {}", &id.to_string()[..2]));
                format!(
                    "{} {}{}",
                    String::from_utf8_lossy(&found.name),
                    &found.id.to_string()[..2],
                    peeled.unwrap_or_default()
                )
            })
            .collect())
    }

    #[test]
    fn refs_have_peeled_objects_over_any_transport() {
        let first = format!("{A} HEAD\0multi_ack shallow symref=HEAD:refs/heads/main");
        let lines = [
            first.as_str(),
            &format!("{A} refs/heads/main"),
            &format!("{A} refs/pull/1/head"),
            &format!("{B} refs/tags/v1"),
            &format!("{A} refs/tags/v1^{{}}"),
            &format!("{A} refs/tags/v2"),
            &format!("shallow {B}"),
            "0000",
        ];
        let expected = vec![
            "HEAD 01",
            "refs/heads/main 01",
            "refs/pull/1/head 01",
            "refs/tags/v1 89 -> 01",
            "refs/tags/v2 01",
        ];
        for front in [
            vec![],
            vec!["version 1"],
            vec!["# service=git-upload-pack", "0000"],
            vec!["# service=git-upload-pack", "0000", "version 1"],
        ] {
            let lines: Vec<_> = front.into_iter().chain(lines).collect();
            assert_eq!(refs(&lines).unwrap(), expected);
        }
    }

    #[test]
    fn capabilities_are_on_the_first_line() {
        let mut advertisement = RefAdvertisement::default();
        advertisement.accept(&packet("version 1")).unwrap();
        assert!(!advertisement.has_capabilities());
        advertisement
            .accept(&packet(&format!("{A} refs/heads/main\0shallow ofs-delta")))
            .unwrap();
        assert!(
            advertisement.has_capabilities()
                && advertisement.capabilities().shallow
                && advertisement.capabilities().ofs_delta
        );
    }

    #[test]
    fn an_empty_repository_has_no_refs() {
        let none = format!("{} capabilities^{{}}\0shallow", "0".repeat(40));
        assert_eq!(refs(&[&none, "0000"]), Ok(vec![]));
        assert_eq!(refs(&["# service=git-upload-pack", "0000", "0000"]), Ok(vec![]));
    }

    #[test]
    fn an_unsupported_object_format_is_reported() {
        let long = "8".repeat(64);
        for line in [
            format!("{long} HEAD\0object-format=sha256"),
            format!("{long} HEAD\0shallow"),
            format!("{long} capabilities^{{}}\0object-format=sha256"),
        ] {
            assert_eq!(
                refs(&[&line]),
                Err(RefAdvertisementError::ObjectFormat("sha256".into()))
            );
        }
    }

    #[test]
    fn an_invalid_advertisement_is_refused() {
        assert_eq!(
            refs(&["ERR access denied"]),
            Err(RefAdvertisementError::Remote("access denied".into()))
        );
        let main = format!("{A} refs/heads/main");
        for lines in [
            vec!["hello"],
            vec![A],
            vec![&format!("{A} ")],
            vec![&main, "hello"],
            vec![&main, "shallow 1"],
            vec![&main, &format!("{B} refs/tags/v1^{{}}")],
        ] {
            assert!(
                matches!(refs(&lines), Err(RefAdvertisementError::Malformed(_))),
                "{lines:?}"
            );
        }
        assert_eq!(refs(&[&main, "0000", &main]), Err(RefAdvertisementError::Broken));
        let mut advertisement = RefAdvertisement::default();
        assert_eq!(
            advertisement.accept(&Packet::Delimiter),
            Err(RefAdvertisementError::Broken)
        );
    }

    proptest! {
        #[test]
        fn any_packets_are_parsed_or_refused(lines in proptest::collection::vec(
            prop_oneof![
                Just("0000".to_owned()), Just("version 1".into()), Just("# service=git-upload-pack".into()),
                Just(format!("shallow {A}")), "[0-9a-f]{40} (refs/tags/a|HEAD)(\\^\\{\\})?(\\x00[a-z =-]{0,20})?", "\\PC{0,60}",
            ], 0..12)) {
            let mut advertisement = RefAdvertisement::default();
            for line in &lines {
                if advertisement.accept(&packet(line)).is_err() {
                    break;
                }
            }
        }

        #[test]
        fn any_line_is_parsed_or_refused(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 1..5)) {
            let mut advertisement = RefAdvertisement::default();
            for line in lines {
                if advertisement.accept(&Packet::Data(line.into())).is_err() {
                    break;
                }
            }
        }
    }
}
