//! The refs of a remote as one stream, for all protocol versions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::error::{FetchError, ProtocolError};
use super::protocol::advertisement::Capabilities;
use super::protocol::ls_refs::{self, RemoteRef};
use super::protocol::v0::RefAdvertisement;
use super::remote::Remote;
use super::transport::{Endpoint, Packets};

/// A list of refs that is being read.
pub(super) struct Refs {
    endpoint: Arc<Endpoint>,
    packets: Packets,
    format: Format,
}

/// Format of the list.
enum Format {
    /// Response to the command `ls-refs`.
    LsRefs,
    /// Ref advertisement of protocol version 0 or 1.
    Advertisement(RefAdvertisement),
}

impl Refs {
    /// Requests the refs that begin with one of `prefixes`, or all refs if there are none. An older server lists all
    /// refs in any case, and a prefix also matches longer names, so the caller must filter.
    ///
    /// The cached endpoint is used first. If that fails, discovery is repeated, because the repository may have moved.
    pub(super) async fn request(remote: &Remote, prefixes: &[&str]) -> Result<Self, FetchError> {
        match Self::request_once(remote, prefixes).await {
            Err(
                FetchError::Status { .. }
                | FetchError::Redirect { .. }
                | FetchError::RepositoryNotFound { .. },
            ) if remote.transport.forget(remote) => {
                // Seldom: in a box, like all such futures below a lookup, so that a lookup itself is small.
                Box::pin(Self::request_once(remote, prefixes)).await
            }
            other => other,
        }
    }

    async fn request_once(remote: &Remote, prefixes: &[&str]) -> Result<Self, FetchError> {
        let endpoint = remote.transport.endpoint(remote).await?;
        let (packets, format) = match &endpoint.capabilities {
            Capabilities::V2(capabilities) => {
                let request = ls_refs::request(capabilities, prefixes);
                let packets = remote.transport.command(remote, &endpoint, request).await?;
                (packets, Format::LsRefs)
            }
            Capabilities::V0(_) => {
                let packets = remote.transport.advertised_refs(remote, &endpoint).await?;
                (packets, Format::Advertisement(RefAdvertisement::default()))
            }
        };
        Ok(Self {
            endpoint,
            packets: packets.with_limit(remote.limits.refs_bytes),
            format,
        })
    }

    /// Returns the next ref; `None` at the end of the list.
    pub(super) async fn next(&mut self) -> Result<Option<RemoteRef>, FetchError> {
        loop {
            if matches!(&self.format, Format::Advertisement(advertisement) if advertisement.is_complete()) {
                return Ok(None);
            }
            let packet = self.packets.next().await?;
            let found = match &mut self.format {
                Format::LsRefs => {
                    let Some(line) = packet.text() else {
                        self.endpoint.confirm();
                        return Ok(None);
                    };
                    ls_refs::parse(line).map_err(ProtocolError::Line)
                }
                Format::Advertisement(advertisement) => advertisement
                    .accept(&packet)
                    .map_err(ProtocolError::RefAdvertisement),
            };
            if let Some(found) = found.map_err(|error| error.for_host(self.packets.host()))? {
                self.endpoint.confirm();
                return Ok(Some(found));
            }
        }
    }

    /// Returns the connection to the pool after the list was read completely.
    pub(super) async fn finish(&mut self) {
        self.packets.finish().await;
    }
}

/// Returns the ref with exactly this name.
pub(super) async fn find(remote: &Remote, name: &str) -> Result<Option<RemoteRef>, FetchError> {
    let mut refs = Refs::request(remote, &[name]).await?;
    let mut found = None;
    while let Some(next) = refs.next().await? {
        if next.name == name.as_bytes() {
            found = Some(next);
        }
    }
    refs.finish().await;
    Ok(found)
}

/// Returns the refs with exactly these names, by name. Costs one request.
pub(super) async fn find_all(
    remote: &Remote,
    names: &[&str],
) -> Result<HashMap<Vec<u8>, RemoteRef>, FetchError> {
    let wanted: HashSet<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let mut refs = Refs::request(remote, names).await?;
    let mut found = HashMap::new();
    while let Some(next) = refs.next().await? {
        if wanted.contains(next.name.as_slice()) {
            found.insert(next.name.clone(), next);
        }
    }
    refs.finish().await;
    Ok(found)
}

/// Whether the repository has no ref at all. Reads only the first ref.
pub(super) async fn is_empty(remote: &Remote) -> Result<bool, FetchError> {
    Ok(Refs::request(remote, &[]).await?.next().await?.is_none())
}
