//! The list of all refs that a server begins with.

use super::super::ls_refs::RemoteRef;
use super::super::packet::Packet;
use super::super::{object_id, remote_text};
use super::Capabilities;

/// What follows the name of a tag on the line that says what it leads to.
const PEELED: &[u8] = b"^{}";
/// Stands in the place of a ref in a repository without any.
const NO_REFS: &[u8] = b"capabilities^{}";

/// A list that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// The server's own words.
    #[error("remote: {0}")]
    Remote(String),
    /// A repository of a hash function that revisions have no form for.
    #[error("the repository's object format is {0}; only sha1 is supported")]
    ObjectFormat(String),
    /// A line without the form of a ref, or at a place where none may stand.
    #[error("'{0}' is no ref")]
    Form(String),
    /// A packet that is no line.
    #[error("the list of refs is broken")]
    Broken,
}

/// Where in the list the next packet stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// At the beginning, where http says which service answers.
    #[default]
    Start,
    /// Behind that line.
    Service,
    /// Before the first ref.
    First,
    /// Among the refs.
    Refs,
    /// Behind the last packet.
    Over,
}

/// Reads the list, packet by packet. A ref is given out when the line behind it was read, because that line may say
/// what it leads to.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    place: Place,
    capabilities: Capabilities,
    held: Option<RemoteRef>,
}

impl Listing {
    /// Takes the next packet and gives the ref that is complete now, if one is.
    ///
    /// # Errors
    /// The packet has no place in a list of refs, or the repository cannot be used.
    pub fn accept(&mut self, packet: &Packet) -> Result<Option<RemoteRef>, ListingError> {
        let line = match (self.place, packet) {
            (Place::Service, Packet::Flush) => {
                self.place = Place::First;
                return Ok(None);
            }
            // An old server without any ref may say nothing at all.
            (Place::Start | Place::First | Place::Refs, Packet::Flush) => {
                self.place = Place::Over;
                return Ok(self.held.take());
            }
            (Place::Over, _) => return Err(ListingError::Broken),
            (_, packet) => packet.text().ok_or(ListingError::Broken)?,
        };
        if let Some(words) = line.strip_prefix(b"ERR ") {
            return Err(ListingError::Remote(remote_text(words)));
        }
        match self.place {
            Place::Start if line.starts_with(b"# service=git-upload-pack") => {
                self.place = Place::Service;
                Ok(None)
            }
            Place::Start | Place::Service | Place::First if line == b"version 1" => {
                self.place = Place::First;
                Ok(None)
            }
            Place::Start | Place::Service | Place::First => {
                self.place = Place::Refs;
                self.first(line)
            }
            Place::Refs | Place::Over => self.line(line),
        }
    }

    /// What the server offers; known once the first ref was accepted.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Whether the first line was read, which tells all but the refs.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        matches!(self.place, Place::Refs | Place::Over)
    }

    /// Whether the list is complete.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.place == Place::Over
    }

    /// The first ref has the capabilities behind a NUL.
    fn first(&mut self, line: &[u8]) -> Result<Option<RemoteRef>, ListingError> {
        let (line, words) = match line.iter().position(|byte| *byte == 0) {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        self.capabilities = Capabilities::parse(words).map_err(ListingError::ObjectFormat)?;
        let digits = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        // A server of before object formats had names says it by the length of its hashes.
        if digits == 64 && line[..digits].iter().all(u8::is_ascii_hexdigit) {
            return Err(ListingError::ObjectFormat("sha256".into()));
        }
        self.line(line)
    }

    fn line(&mut self, line: &[u8]) -> Result<Option<RemoteRef>, ListingError> {
        let malformed = || ListingError::Form(remote_text(line));
        // Where the server's own history is cut off.
        if let Some(id) = line.strip_prefix(b"shallow ") {
            return object_id(id).map(|_| None).ok_or_else(malformed);
        }
        let id = line.get(..40).and_then(object_id).ok_or_else(malformed)?;
        let name = line[40..].strip_prefix(b" ").filter(|name| !name.is_empty());
        let name = name.ok_or_else(malformed)?;
        if name == NO_REFS {
            return Ok(None);
        }
        if let Some(tag) = name.strip_suffix(PEELED) {
            let held = self.held.as_mut().filter(|held| held.name == tag);
            held.ok_or_else(malformed)?.peeled = Some(id);
            return Ok(None);
        }
        Ok(self.held.replace(RemoteRef {
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

    /// Name, object and what it leads to, of each ref.
    fn refs(lines: &[&str]) -> Result<Vec<String>, ListingError> {
        let mut listing = Listing::default();
        let mut found = Vec::new();
        for line in lines {
            found.extend(listing.accept(&packet(line))?);
        }
        assert!(listing.is_over());
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
    fn refs_come_with_what_they_lead_to_over_any_transport() {
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
        let wanted = vec![
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
            assert_eq!(refs(&lines).unwrap(), wanted);
        }
    }

    #[test]
    fn capabilities_stand_on_the_first_line() {
        let mut listing = Listing::default();
        listing.accept(&packet("version 1")).unwrap();
        assert!(!listing.has_begun());
        listing
            .accept(&packet(&format!("{A} refs/heads/main\0shallow ofs-delta")))
            .unwrap();
        assert!(listing.has_begun() && listing.capabilities().shallow && listing.capabilities().ofs_delta);
    }

    #[test]
    fn an_empty_repository_has_no_refs() {
        let none = format!("{} capabilities^{{}}\0shallow", "0".repeat(40));
        assert_eq!(refs(&[&none, "0000"]), Ok(vec![]));
        assert_eq!(refs(&["# service=git-upload-pack", "0000", "0000"]), Ok(vec![]));
    }

    #[test]
    fn another_hash_function_is_named() {
        let long = "8".repeat(64);
        for line in [
            format!("{long} HEAD\0object-format=sha256"),
            format!("{long} HEAD\0shallow"),
            format!("{long} capabilities^{{}}\0object-format=sha256"),
        ] {
            assert_eq!(refs(&[&line]), Err(ListingError::ObjectFormat("sha256".into())));
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        assert_eq!(
            refs(&["ERR access denied"]),
            Err(ListingError::Remote("access denied".into()))
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
            assert!(matches!(refs(&lines), Err(ListingError::Form(_))), "{lines:?}");
        }
        assert_eq!(refs(&[&main, "0000", &main]), Err(ListingError::Broken));
        let mut listing = Listing::default();
        assert_eq!(listing.accept(&Packet::Delimiter), Err(ListingError::Broken));
    }

    proptest! {
        #[test]
        fn any_packets_are_read_or_refused(lines in proptest::collection::vec(
            prop_oneof![
                Just("0000".to_owned()), Just("version 1".into()), Just("# service=git-upload-pack".into()),
                Just(format!("shallow {A}")), "[0-9a-f]{40} (refs/tags/a|HEAD)(\\^\\{\\})?(\\x00[a-z =-]{0,20})?", "\\PC{0,60}",
            ], 0..12)) {
            let mut listing = Listing::default();
            for line in &lines {
                if listing.accept(&packet(line)).is_err() {
                    break;
                }
            }
        }

        #[test]
        fn any_line_is_read_or_refused(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..100), 1..5)) {
            let mut listing = Listing::default();
            for line in lines {
                if listing.accept(&Packet::Data(line.into())).is_err() {
                    break;
                }
            }
        }
    }
}
