//! Proxies on loopback: HTTP that forwards and tunnels, optionally over TLS, and SOCKS 5. They resolve names with a
//! table of the test, require a user on request, inject faults and log the requests.

mod http;
mod socks;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::tls::{Authority, CertificateError, TlsOptions};

/// Why a proxy could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ProxyStartError {
    /// No free port on loopback.
    #[error("cannot listen on loopback: {0}")]
    Listen(#[from] io::Error),
    /// A certificate cannot be created.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP.
    Http,
    /// HTTP over TLS, with a certificate of the proxy's own authority.
    Https,
    /// SOCKS 5.
    Socks5,
}

/// How a request passes through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyMode {
    /// A `CONNECT` tunnel.
    Tunnel,
    /// A request with an absolute URL.
    Forward,
    /// A SOCKS connection.
    Socks,
}

/// A request to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedRequest {
    /// How it passes through.
    pub mode: ProxyMode,
    /// Host and port as sent by the client.
    pub target: String,
    /// The user name of the client's credentials.
    pub username: Option<String>,
}

/// A fault of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyFault {
    /// Refuses every connection.
    Refuse,
    /// Never responds.
    Hang,
    /// Confirms the connection and responds in place of the server.
    Impersonate,
    /// Responds with bytes of no protocol.
    Garbage,
}

/// A running proxy; dropping it closes its port and its connections.
#[derive(Debug)]
pub struct ProxyServer {
    protocol: Protocol,
    address: SocketAddr,
    authority: Option<Authority>,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    names: Mutex<BTreeMap<String, SocketAddr>>,
    user: Mutex<Option<(String, String)>>,
    fault: Mutex<Option<ProxyFault>>,
    requests: Mutex<Vec<ProxiedRequest>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn fault(&self) -> Option<ProxyFault> {
        *lock(&self.fault)
    }

    fn record(&self, mode: ProxyMode, target: String, username: Option<String>) {
        lock(&self.requests).push(ProxiedRequest {
            mode,
            target,
            username,
        });
    }

    /// Connects to `host:port`; a name in the table is replaced by its address, whatever the port.
    async fn connect(&self, target: &str) -> io::Result<TcpStream> {
        let name = target.rsplit_once(':').map_or(target, |(name, _)| name);
        let known = lock(&self.names).get(name).copied();
        match known {
            Some(address) => TcpStream::connect(address).await,
            None => TcpStream::connect(target).await,
        }
    }
}

impl ProxyServer {
    /// Starts a proxy without authentication at a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port is free or no certificate can be created.
    pub async fn start(protocol: Protocol) -> Result<Self, ProxyStartError> {
        let authority = match protocol {
            Protocol::Https => Some(Authority::create()?),
            Protocol::Http | Protocol::Socks5 => None,
        };
        let acceptor = match &authority {
            Some(authority) => Some(authority.acceptor(&TlsOptions {
                // Proxies are addressed by HTTP/1.1.
                http2: false,
                ..TlsOptions::default()
            })?),
            None => None,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::<State>::default();
        let accepting = tokio::spawn(accept(listener, acceptor, protocol, Arc::clone(&state)));
        Ok(Self {
            protocol,
            address,
            authority,
            state,
            accepting,
        })
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = match self.protocol {
            Protocol::Http => "http",
            Protocol::Https => "https",
            Protocol::Socks5 => "socks5",
        };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the certificate of its authority, if it uses TLS.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority.as_ref().map(Authority::pem)
    }

    /// Adds a name to its table.
    pub fn resolve(&self, name: &str, address: SocketAddr) {
        lock(&self.state.names).insert(name.to_owned(), address);
    }

    /// Requires these credentials from now on.
    pub fn require(&self, username: &str, password: &str) {
        *lock(&self.state.user) = Some((username.to_owned(), password.to_owned()));
    }

    /// Sets or clears the fault.
    pub fn set_fault(&self, fault: Option<ProxyFault>) {
        *lock(&self.state.fault) = fault;
    }

    /// Returns the requests so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<ProxiedRequest> {
        lock(&self.state.requests).clone()
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Owns the connections: aborting this task closes them.
async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, protocol: Protocol, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        let (state, acceptor) = (Arc::clone(&state), acceptor.clone());
        connections.spawn(async move {
            match (acceptor, protocol) {
                (Some(acceptor), _) => {
                    if let Ok(socket) = acceptor.accept(socket).await {
                        http::serve(socket, state).await;
                    }
                }
                (None, Protocol::Socks5) => drop(socks::serve(socket, &state).await),
                (None, _) => http::serve(socket, state).await,
            }
        });
    }
}
