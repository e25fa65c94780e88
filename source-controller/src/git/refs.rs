//! The refs of a remote, in whichever version its server speaks: one stream, read as it comes.

use super::error::{FetchError, ProtocolError};
use super::protocol::advertisement::Capabilities;
use super::protocol::ls_refs::{self, RemoteRef};
use super::protocol::v0::Listing;
use super::remote::Remote;
use super::transport::Packets;

/// A list of refs that is being read.
pub(super) struct Refs {
    packets: Packets,
    form: Form,
}

/// How the list is written.
enum Form {
    /// The answer to the command `ls-refs`.
    Command,
    /// What an older server begins with.
    Greeting(Listing),
}

impl Refs {
    /// Asks for the refs that begin with one of `prefixes`, for all without any. An older server lists all of them in any
    /// case, and a prefix also matches longer names: who asks picks what was meant.
    ///
    /// What is remembered about the server is used first. If that fails, it is asked from the start, because it may have
    /// moved since.
    pub(super) async fn ask(remote: &Remote, prefixes: &[&str]) -> Result<Self, FetchError> {
        match Self::once(remote, prefixes).await {
            Err(
                FetchError::Status { .. }
                | FetchError::Redirect { .. }
                | FetchError::RepositoryNotFound { .. },
            ) if remote.transport.forget(remote) => Self::once(remote, prefixes).await,
            other => other,
        }
    }

    async fn once(remote: &Remote, prefixes: &[&str]) -> Result<Self, FetchError> {
        let endpoint = remote.transport.endpoint(remote).await?;
        let (packets, form) = match &endpoint.capabilities {
            Capabilities::V2(capabilities) => {
                let request = ls_refs::request(capabilities, prefixes);
                let packets = remote.transport.command(remote, &endpoint, request).await?;
                (packets, Form::Command)
            }
            Capabilities::V0(_) => {
                let packets = remote.transport.listing(remote, &endpoint).await?;
                (packets, Form::Greeting(Listing::default()))
            }
        };
        Ok(Self {
            packets: packets.at_most(remote.limits.refs_bytes),
            form,
        })
    }

    /// The next ref; none at the end of the list.
    pub(super) async fn next(&mut self) -> Result<Option<RemoteRef>, FetchError> {
        loop {
            if matches!(&self.form, Form::Greeting(listing) if listing.is_over()) {
                return Ok(None);
            }
            let packet = self.packets.next().await?;
            let found = match &mut self.form {
                Form::Command => {
                    let Some(line) = packet.text() else {
                        return Ok(None);
                    };
                    ls_refs::parse(line).map_err(ProtocolError::Line)
                }
                Form::Greeting(listing) => listing.accept(&packet).map_err(ProtocolError::Listing),
            };
            if let Some(found) = found.map_err(|error| error.of(self.packets.host()))? {
                return Ok(Some(found));
            }
        }
    }

    /// Leaves the connection to others once the list was read to its end.
    pub(super) async fn finish(self) {
        self.packets.finish().await;
    }
}

/// The ref of this very name.
pub(super) async fn find(remote: &Remote, name: &str) -> Result<Option<RemoteRef>, FetchError> {
    let mut refs = Refs::ask(remote, &[name]).await?;
    let mut found = None;
    while let Some(next) = refs.next().await? {
        if next.name == name.as_bytes() {
            found = Some(next);
        }
    }
    refs.finish().await;
    Ok(found)
}

/// Whether the repository has no ref at all. Only the first of them is read.
pub(super) async fn is_empty(remote: &Remote) -> Result<bool, FetchError> {
    Ok(Refs::ask(remote, &[]).await?.next().await?.is_none())
}
