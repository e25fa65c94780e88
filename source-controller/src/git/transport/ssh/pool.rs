//! Kept connections, shared by all objects that ask one server with the same credentials.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::super::super::error::FetchError;
use super::super::super::remote::Remote;
use super::super::super::ssh::{Algorithms, SshCredentials};
use super::connection::Connection;

/// A connection that nobody has used for this long is closed. A poll each minute finds one.
const IDLE: Duration = Duration::from_secs(90);
/// Servers that are kept apart before those without a connection are forgotten.
const SERVERS: usize = 1000;

/// Whose connection: host, port, and a digest of user, key, known hosts and proxy.
type Key = (String, Option<u16>, [u8; 32]);

/// All kept connections.
#[derive(Default)]
pub(super) struct Pool {
    servers: Mutex<HashMap<Key, Arc<Kept>>>,
}

/// The connections of one key. Whoever holds the lock may be connecting, and the others wait for the outcome.
#[derive(Default)]
struct Kept {
    connections: tokio::sync::Mutex<Vec<Arc<Connection>>>,
}

/// The right to run one command on a connection.
pub(super) struct Lease {
    pub(super) connection: Arc<Connection>,
    /// Whether the connection was made for this lease.
    pub(super) fresh: bool,
    _room: OwnedSemaphorePermit,
}

impl Pool {
    /// A connection with room for one more command: kept, or made now.
    pub(super) async fn lease(
        &self,
        remote: &Remote,
        credentials: &SshCredentials,
        algorithms: &Algorithms,
    ) -> Result<Lease, FetchError> {
        let kept = self.kept(remote);
        let mut connections = kept.connections.lock().await;
        let mut at = 0;
        while let Some(connection) = connections.get(at) {
            if !connection.is_sound().await {
                connections.remove(at);
                continue;
            }
            if let Ok(room) = Arc::clone(&connection.room).try_acquire_owned() {
                return Ok(Lease {
                    connection: Arc::clone(connection),
                    fresh: false,
                    _room: room,
                });
            }
            at += 1;
        }
        let connection = Arc::new(Connection::open(remote, credentials, algorithms).await?);
        let room = Arc::clone(&connection.room).try_acquire_owned();
        let room = room.map_err(|error| FetchError::Storage(std::io::Error::other(error)))?;
        connections.push(Arc::clone(&connection));
        tokio::spawn(close_when_idle(
            Arc::downgrade(&kept),
            Arc::downgrade(&connection),
        ));
        Ok(Lease {
            connection,
            fresh: true,
            _room: room,
        })
    }

    /// Gives a connection up; what runs on it goes on.
    pub(super) async fn discard(&self, remote: &Remote, connection: &Arc<Connection>) {
        let kept = self.kept(remote);
        kept.connections
            .lock()
            .await
            .retain(|held| !Arc::ptr_eq(held, connection));
    }

    fn kept(&self, remote: &Remote) -> Arc<Kept> {
        let address = &remote.address;
        let key = (address.hostname().to_owned(), address.url().port(), remote.way());
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if servers.len() >= SERVERS {
            servers.retain(|_, kept| kept.connections.try_lock().map_or(true, |held| !held.is_empty()));
        }
        Arc::clone(servers.entry(key).or_default())
    }
}

async fn close_when_idle(kept: Weak<Kept>, connection: Weak<Connection>) {
    let mut wait = IDLE;
    loop {
        tokio::time::sleep(wait).await;
        let (Some(kept), Some(connection)) = (kept.upgrade(), connection.upgrade()) else {
            return;
        };
        let mut connections = kept.connections.lock().await;
        let idle = connection.idle();
        if idle >= IDLE {
            connections.retain(|held| !Arc::ptr_eq(held, &connection));
            return;
        }
        wait = IDLE.saturating_sub(idle).max(Duration::from_secs(1));
    }
}
