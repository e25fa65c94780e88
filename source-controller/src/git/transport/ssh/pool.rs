//! Pooled connections, shared by all objects that use one server with the same credentials.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use sluice_runtime::sync::lock;
use tokio::sync::OwnedSemaphorePermit;

use super::super::super::error::FetchError;
use super::super::super::remote::Remote;
use super::super::super::ssh::{Algorithms, SshCredentials};
use super::connection::Connection;

/// Idle timeout of connections, long enough for a poll each minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Number of servers above which entries without connections are removed.
const MAX_SERVERS: usize = 1000;

/// Key of the pool: host, port, and the access digest.
type Key = (String, Option<u16>, [u8; 32]);

/// All pooled connections.
#[derive(Default)]
pub(super) struct Pool {
    servers: Mutex<HashMap<Key, Arc<ServerConnections>>>,
}

/// The connections of one key. The lock is held while connecting, so concurrent callers wait for the result.
#[derive(Default)]
struct ServerConnections {
    connections: tokio::sync::Mutex<Vec<Arc<Connection>>>,
}

/// The permission to run one command on a connection.
pub(super) struct Lease {
    pub(super) connection: Arc<Connection>,
    /// Whether the connection was opened for this lease.
    pub(super) is_new: bool,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// Returns a connection with a free permit, pooled or new.
    pub(super) async fn lease(
        &self,
        remote: &Remote,
        credentials: &SshCredentials,
        algorithms: &Algorithms,
    ) -> Result<Lease, FetchError> {
        let server = self.server(remote);
        let mut connections = server.connections.lock().await;
        let mut index = 0;
        while let Some(connection) = connections.get(index) {
            if !connection.is_alive().await {
                connections.remove(index);
                continue;
            }
            if let Ok(permit) = Arc::clone(&connection.permits).try_acquire_owned() {
                return Ok(Lease {
                    connection: Arc::clone(connection),
                    is_new: false,
                    _permit: permit,
                });
            }
            index += 1;
        }
        let connection = Arc::new(Connection::open(remote, credentials, algorithms).await?);
        let permit = Arc::clone(&connection.permits).try_acquire_owned();
        let permit = permit.map_err(|error| FetchError::Storage(std::io::Error::other(error)))?;
        connections.push(Arc::clone(&connection));
        tokio::spawn(close_when_idle(
            Arc::downgrade(&server),
            Arc::downgrade(&connection),
        ));
        Ok(Lease {
            connection,
            is_new: true,
            _permit: permit,
        })
    }

    /// Removes a connection from the pool; its running commands continue.
    pub(super) async fn discard(&self, remote: &Remote, connection: &Arc<Connection>) {
        let server = self.server(remote);
        server
            .connections
            .lock()
            .await
            .retain(|pooled| !Arc::ptr_eq(pooled, connection));
    }

    fn server(&self, remote: &Remote) -> Arc<ServerConnections> {
        let address = &remote.address;
        let key = (
            address.hostname().to_owned(),
            address.url().port(),
            remote.access_digest(),
        );
        let mut servers = lock(&self.servers);
        if servers.len() >= MAX_SERVERS {
            servers.retain(|_, server| {
                server
                    .connections
                    .try_lock()
                    .map_or(true, |pooled| !pooled.is_empty())
            });
        }
        Arc::clone(servers.entry(key).or_default())
    }
}

async fn close_when_idle(server: Weak<ServerConnections>, connection: Weak<Connection>) {
    let mut wait = IDLE_TIMEOUT;
    loop {
        tokio::time::sleep(wait).await;
        let (Some(server), Some(connection)) = (server.upgrade(), connection.upgrade()) else {
            return;
        };
        let mut connections = server.connections.lock().await;
        let idle_time = connection.idle_time();
        if idle_time >= IDLE_TIMEOUT {
            connections.retain(|pooled| !Arc::ptr_eq(pooled, &connection));
            return;
        }
        wait = IDLE_TIMEOUT.saturating_sub(idle_time).max(Duration::from_secs(1));
    }
}
