//! Recovery points of mirrors: a mirror as a fetch from nothing has left it, in storage that outlives the disk. A process whose disk lacks
//! the mirror restores it from there, and then fetches only the difference.
//!
//! A recovery point is a header with the commits, then the pack. Others may write that storage, so a reader verifies it like the response
//! of a server (`fetch::restore`).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::super::protocol::parse_object_id;
use super::super::remote::Remote;
use super::Mirrors;
use super::generation::{Generation, Record};

/// Maximum size of a recovery point in bytes, which is the default of `--git-max-pack-bytes`. A larger mirror is fetched again.
pub(crate) const MAX_BYTES: u64 = 1 << 30;
/// Maximum size of a header: a thousand commits. One fetch from nothing at depth 1 has one or two.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// First line of a header.
const FORMAT: &str = "sluice mirror 1";
/// End of a header.
const END: &[u8] = b"\n\n";
/// Uploads at once. After a start with an empty disk and bucket, all mirrors have one.
const CONCURRENT_UPLOADS: usize = 2;

/// The bytes of a recovery point in pieces.
pub(crate) type Pieces = Box<dyn Iterator<Item = io::Result<Bytes>> + Send>;

/// Storage of recovery points by the names of their mirrors. All functions block.
pub(crate) trait RecoveryStore: fmt::Debug + Send + Sync {
    /// Stores a recovery point in place of the previous one: the header, then the pack.
    ///
    /// # Errors
    /// The storage cannot be written.
    fn store(&self, mirror: &str, header: Vec<u8>, pack: File) -> io::Result<()>;

    /// Opens a recovery point of at most [`MAX_BYTES`]; `None` if there is none. Reads until the deadline.
    ///
    /// # Errors
    /// The storage cannot be read, or the recovery point is too large.
    fn open(&self, mirror: &str, deadline: Instant) -> io::Result<Option<Pieces>>;

    /// Removes recovery points that were stored long ago, and returns their number.
    ///
    /// # Errors
    /// The storage cannot be listed, or a recovery point cannot be removed.
    fn remove_expired(&self, now: Timestamp) -> io::Result<usize>;
}

/// The storage of recovery points, with a limit of concurrent uploads.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    pub(super) store: Arc<dyn RecoveryStore>,
    uploads: Arc<Semaphore>,
}

impl Recovery {
    /// Uses this storage.
    pub(super) fn new(store: Arc<dyn RecoveryStore>) -> Self {
        Self {
            store,
            uploads: Arc::new(Semaphore::new(CONCURRENT_UPLOADS)),
        }
    }

    /// Returns the storage for the mirror of a remote; `None` if its name could serve to guess credentials. The name outlives the disk as
    /// that of the recovery point. It is a digest, which covers the source of the credentials, a Secret with a random uid, or else the
    /// credentials themselves.
    pub(super) fn of(&self, remote: &Remote) -> Option<Self> {
        let is_secret_free = remote.owner.principal.is_some() || !remote.has_credentials();
        is_secret_free.then(|| self.clone())
    }

    /// Stores a recovery point on another thread. A failure is logged: it costs a fetch from nothing later.
    pub(super) fn store_later(
        &self,
        mirror: String,
        header: Vec<u8>,
        pack: PathBuf,
        generation: Arc<Generation>,
    ) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (store, uploads) = (Arc::clone(&self.store), Arc::clone(&self.uploads));
        runtime.spawn(async move {
            let Ok(_permit) = uploads.acquire().await else {
                return;
            };
            let stored = tokio::task::spawn_blocking(move || {
                let stored = store_pack(&*store, &mirror, header, &pack);
                // The pack may be deleted from now on.
                drop(generation);
                stored
            });
            if let Err(error) = stored.await.unwrap_or_else(|error| Err(error.into())) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot store the recovery point of a mirror");
            }
        });
    }
}

impl Mirrors {
    /// Stores recovery points there from now on, and restores mirrors from them. The first call counts.
    pub(crate) fn set_recovery_store(&self, store: Arc<dyn RecoveryStore>) {
        self.shared.recovery.get_or_init(|| Recovery::new(store));
    }

    /// Removes recovery points that were stored long ago, and returns their number. Blocking.
    ///
    /// # Errors
    /// Their storage cannot be listed, or a recovery point cannot be removed.
    pub(crate) fn remove_expired_recovery_points(&self, now: Timestamp) -> io::Result<usize> {
        let recovery = self.shared.recovery.get();
        recovery.map_or(Ok(0), |recovery| recovery.store.remove_expired(now))
    }
}

fn store_pack(store: &dyn RecoveryStore, mirror: &str, header: Vec<u8>, pack: &Path) -> io::Result<()> {
    let pack = match File::open(pack) {
        Ok(pack) => pack,
        // The mirror was deleted meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let bytes = pack.metadata()?.len().saturating_add(header.len() as u64);
    if bytes > MAX_BYTES {
        tracing::info!(bytes, "a mirror is too large for a recovery point");
        return Ok(());
    }
    store.store(mirror, header, pack)
}

/// Returns the header of a recovery point; `None` if there are too many commits.
pub(super) fn header(record: &Record) -> Option<Vec<u8>> {
    let tips = record.tips.iter().map(|id| format!("tip {id}"));
    let shallow = record.shallow.iter().map(|id| format!("shallow {id}"));
    let lines: Vec<String> = [FORMAT.to_owned()]
        .into_iter()
        .chain(tips)
        .chain(shallow)
        .collect();
    let mut header = lines.join("\n").into_bytes();
    header.extend_from_slice(END);
    (header.len() <= MAX_HEADER_BYTES).then_some(header)
}

/// A recovery point that is being read.
pub(in super::super) struct RecoveryPoint {
    /// The commits that it claims to have.
    pub(in super::super) record: Record,
    /// The first bytes of the pack.
    first: Option<Bytes>,
    pieces: Pieces,
}

impl RecoveryPoint {
    /// Reads the header.
    pub(super) fn read(mut pieces: Pieces) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not a recovery point of a mirror");
        let mut read = BytesMut::new();
        loop {
            let end = read.windows(END.len()).position(|bytes| bytes == END);
            if let Some(end) = end {
                let header = read.split_to(end + END.len());
                return Ok(Self {
                    record: parse(&header).ok_or_else(invalid)?,
                    first: Some(read.freeze()),
                    pieces,
                });
            }
            if read.len() > MAX_HEADER_BYTES {
                return Err(invalid());
            }
            read.extend_from_slice(&pieces.next().ok_or_else(invalid)??);
        }
    }
}

/// Returns the bytes of the pack.
impl Iterator for RecoveryPoint {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.first.take() {
            Some(first) => Some(Ok(first)),
            None => self.pieces.next(),
        }
    }
}

/// Parses a header. Its first line must be known and the others valid: the storage has what this program wrote, or something else.
fn parse(header: &[u8]) -> Option<Record> {
    let mut lines = std::str::from_utf8(header).ok()?.trim_end().lines();
    if lines.next()? != FORMAT {
        return None;
    }
    let mut record = Record::default();
    for line in lines {
        let (kind, id) = line.split_once(' ')?;
        let id = parse_object_id(id.as_bytes())?;
        match kind {
            "tip" => record.add(id),
            "shallow" => record.update_shallow(&[id], &[]),
            _ => return None,
        }
    }
    (!record.tips.is_empty()).then_some(record)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::git::{Access, Address, Credentials, Limits, Owner, Transport};

    fn read(text: &[u8], piece: usize) -> io::Result<RecoveryPoint> {
        let pieces: Vec<io::Result<Bytes>> = text.chunks(piece).map(Bytes::copy_from_slice).map(Ok).collect();
        RecoveryPoint::read(Box::new(pieces.into_iter()))
    }

    #[test]
    fn a_recovery_point_is_read_as_it_was_written() {
        let id = |digit: &str| parse_object_id(digit.repeat(40).as_bytes()).unwrap();
        let mut record = Record::default();
        record.add(id("a"));
        record.update_shallow(&[id("b"), id("a")], &[]);
        let mut bytes = header(&record).unwrap();
        bytes.extend_from_slice(b"PACK\n\n and more");
        for piece in [1, 7, 1000] {
            let point = read(&bytes, piece).unwrap();
            assert_eq!(point.record, record);
            let pack: Vec<u8> = point.flat_map(|piece| piece.unwrap().to_vec()).collect();
            assert_eq!(pack, b"PACK\n\n and more");
        }
    }

    #[derive(Debug)]
    struct NoStore;

    impl RecoveryStore for NoStore {
        fn store(&self, _: &str, _: Vec<u8>, _: File) -> io::Result<()> {
            Ok(())
        }

        fn open(&self, _: &str, _: Instant) -> io::Result<Option<Pieces>> {
            Ok(None)
        }

        fn remove_expired(&self, _: Timestamp) -> io::Result<usize> {
            Ok(0)
        }
    }

    #[tokio::test]
    async fn a_name_that_covers_credentials_does_not_outlive_the_disk() {
        let recovery = Recovery::new(Arc::new(NoStore));
        let transport = Transport::new().unwrap();
        let has_recovery = |url: &str, principal: Option<[u8; 32]>| {
            let address = Address::parse(url).unwrap();
            let access = Access {
                credentials: Credentials::resolve(&address, None).unwrap(),
                address,
                tls: Arc::default(),
                proxy: None,
                owner: Owner {
                    namespace: "ns".to_owned(),
                    principal,
                },
            };
            let remote = Remote {
                transport: transport.clone(),
                access: access.into(),
                timeout: Duration::from_secs(1),
                limits: Limits::default(),
            };
            recovery.of(&remote).is_some()
        };
        assert!(has_recovery("https://git.example/app", None));
        assert!(has_recovery("https://u:p@git.example/app", Some([1; 32])));
        assert!(!has_recovery("https://u:p@git.example/app", None));
    }

    #[test]
    fn other_content_is_no_recovery_point() {
        let id = "a".repeat(40);
        let long = format!("{FORMAT}\n{}", "x".repeat(2 * MAX_HEADER_BYTES));
        for bad in [
            "",
            "PACK",
            &format!("{FORMAT}\n\n"),
            &format!("{FORMAT}\ntip {id}"),
            &format!("{FORMAT}\ntip {id}0\n\n"),
            &format!("{FORMAT}\nshallow {id}\n\n"),
            &format!("{FORMAT}\ntip {id}\nother {id}\n\n"),
            &format!("sluice mirror 2\ntip {id}\n\n"),
            &long,
        ] {
            assert!(read(bad.as_bytes(), 100).is_err(), "{bad:.80}");
        }
    }
}
