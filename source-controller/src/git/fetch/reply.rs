//! The answer to a request for objects, in whichever version its server speaks.

use super::super::error::{FetchError, ProtocolError};
use super::super::mirror::Opened;
use super::super::protocol::advertisement::Capabilities;
use super::super::protocol::fetch::{self, Event, WHOLE_HISTORY, Wish};
use super::super::protocol::v0;
use super::super::remote::Remote;
use super::super::transport::Packets;
use super::transfer::{Held, Round};

/// An answer that is being read.
pub(super) struct Reply {
    packets: Packets,
    form: Form,
}

/// How the answer is written.
enum Form {
    V2(fetch::Answer),
    V0(v0::Answer),
}

impl Reply {
    /// Asks for the objects of a round; what the generation holds need not be sent.
    pub(super) async fn ask(remote: &Remote, opened: &Opened, round: &Round) -> Result<Self, FetchError> {
        let endpoint = remote.transport.endpoint(remote).await?;
        // What has no history is not cut off anywhere.
        let cut = opened.record.shallow.iter().filter(|_| round.depth.is_some());
        let shallow: Vec<_> = cut.copied().collect();
        let wish = Wish {
            wants: &round.wants,
            have: match round.held {
                Held::Tips => &opened.record.tips,
                Held::Wanted => &round.wants,
                Held::Nothing => &[],
            },
            shallow: &shallow,
            depth: round.depth.map(|depth| depth.min(WHOLE_HISTORY)),
            pack: round.pack,
        };
        let (request, form) = match &endpoint.capabilities {
            Capabilities::V2(capabilities) => (
                fetch::request(capabilities, &wish),
                Form::V2(fetch::Answer::default()),
            ),
            Capabilities::V0(capabilities) => (
                v0::request(capabilities, &wish),
                Form::V0(v0::Answer::of(capabilities)),
            ),
        };
        let packets = remote.transport.command(remote, &endpoint, request).await?;
        Ok(Self { packets, form })
    }

    /// What the next packet means, if it means anything.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, FetchError> {
        let event = match &mut self.form {
            Form::V0(answer) if answer.is_bare() => {
                // Whether it is complete is for the pack's own checksum to say.
                return Ok(Some(self.packets.rest().await?.map_or(Event::End, Event::Pack)));
            }
            Form::V0(answer) => answer.accept(self.packets.next().await?),
            Form::V2(answer) => answer.accept(self.packets.next().await?),
        };
        event.map_err(|error| ProtocolError::Answer(error).of(self.packets.host()))
    }

    /// The host that answers.
    pub(super) fn host(&self) -> &str {
        self.packets.host()
    }

    /// Bytes of the answer so far.
    pub(super) const fn taken(&self) -> u64 {
        self.packets.taken()
    }

    /// Leaves the connection to others once the answer was read to its end.
    pub(super) async fn finish(self) {
        self.packets.finish().await;
    }
}
