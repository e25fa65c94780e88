//! Proxies on loopback: HTTP that forwards and tunnels, with or without TLS to itself, and SOCKS 5. They look names up in
//! a table of the test, ask for a user if they are told to, misbehave on demand, and log what passed.

mod http;
mod socks;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::tls::{Authority, CertificateError, Terms};

/// Why a proxy could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ProxyStartError {
    /// No port on loopback.
    #[error("cannot listen on loopback: {0}")]
    Listen(#[from] io::Error),
    /// No certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// What a proxy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// HTTP.
    Http,
    /// HTTP through TLS, with a certificate of the proxy's own authority.
    Https,
    /// SOCKS 5.
    Socks5,
}

/// How something passed through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A tunnel by `CONNECT`.
    Tunnel,
    /// A request that named its whole URL.
    Forward,
    /// A SOCKS connection.
    Socks,
}

/// Something that wanted to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// How.
    pub way: Way,
    /// Host and port as the client wrote them.
    pub target: String,
    /// The user that the client named.
    pub username: Option<String>,
}

/// What a proxy does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// It connects to nothing.
    Refuse,
    /// It never answers.
    Hang,
    /// It says that it is connected, and speaks for the server itself.
    Lie,
    /// It answers with bytes of no protocol.
    Babble,
}

/// A running proxy; dropping it closes its port and breaks off what passes.
#[derive(Debug)]
pub struct ProxyServer {
    speech: Speech,
    address: SocketAddr,
    authority: Option<Authority>,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    names: Mutex<BTreeMap<String, SocketAddr>>,
    user: Mutex<Option<(String, String)>>,
    mischief: Mutex<Option<Mischief>>,
    passages: Mutex<Vec<Passage>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn mischief(&self) -> Option<Mischief> {
        *lock(&self.mischief)
    }

    fn note(&self, way: Way, target: String, username: Option<String>) {
        lock(&self.passages).push(Passage {
            way,
            target,
            username,
        });
    }

    /// Connects to `host:port`; a name of the table leads to its address, whatever the port.
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
    /// Starts a proxy at a free port of 127.0.0.1 that lets everybody pass.
    ///
    /// # Errors
    /// No port or no certificate can be had.
    pub async fn start(speech: Speech) -> Result<Self, ProxyStartError> {
        let authority = match speech {
            Speech::Https => Some(Authority::create()?),
            Speech::Http | Speech::Socks5 => None,
        };
        let acceptor = match &authority {
            Some(authority) => Some(authority.acceptor(&Terms {
                // A proxy is spoken to in HTTP/1.1.
                http2: false,
                ..Terms::default()
            })?),
            None => None,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::<State>::default();
        let accepting = tokio::spawn(accept(listener, acceptor, speech, Arc::clone(&state)));
        Ok(Self {
            speech,
            address,
            authority,
            state,
            accepting,
        })
    }

    /// Its address as users write it.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = match self.speech {
            Speech::Http => "http",
            Speech::Https => "https",
            Speech::Socks5 => "socks5",
        };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate of its authority, if it speaks TLS.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority.as_ref().map(Authority::pem)
    }

    /// Knows this name from now on.
    pub fn resolve(&self, name: &str, address: SocketAddr) {
        lock(&self.state.names).insert(name.to_owned(), address);
    }

    /// Asks for this user from now on.
    pub fn require(&self, username: &str, password: &str) {
        *lock(&self.state.user) = Some((username.to_owned(), password.to_owned()));
    }

    /// Misbehaves from now on, or no longer.
    pub fn misbehave(&self, mischief: Option<Mischief>) {
        *lock(&self.state.mischief) = mischief;
    }

    /// What wanted to pass, oldest first.
    #[must_use]
    pub fn passages(&self) -> Vec<Passage> {
        lock(&self.state.passages).clone()
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Owns the connections: when this task is aborted they go with it.
async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, speech: Speech, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        let (state, acceptor) = (Arc::clone(&state), acceptor.clone());
        connections.spawn(async move {
            match (acceptor, speech) {
                (Some(acceptor), _) => {
                    if let Ok(socket) = acceptor.accept(socket).await {
                        http::converse(socket, state).await;
                    }
                }
                (None, Speech::Socks5) => drop(socks::converse(socket, &state).await),
                (None, _) => http::converse(socket, state).await,
            }
        });
    }
}
