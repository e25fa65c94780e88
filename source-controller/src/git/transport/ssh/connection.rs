//! One ssh connection: connect, check the host key, authenticate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use russh::client::{self, AuthResult, DisconnectReason, Handle};
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{AlgorithmKind, Preferred, SshId};
use sluice_runtime::failure::chain;
use sluice_runtime::http::{ProxyKind, connect};
use sluice_runtime::sync::lock;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::super::error::{AuthMethodError, FetchError, HandshakeError};
use super::super::super::protocol::sanitize_text;
use super::super::super::remote::Remote;
use super::super::super::ssh::known_hosts::{Server, describe_key};
use super::super::super::ssh::{Algorithms, HostKeyError, KnownHosts, SshCredentials, identity};
use super::cancellable::CancellableStream;

/// Maximum number of concurrent commands on one connection; OpenSSH allows ten.
const MAX_COMMANDS: usize = 8;
/// Interval of keepalive requests to a silent server.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Unanswered keepalive requests after which the connection is closed.
const MAX_MISSED_KEEPALIVES: usize = 2;
/// Maximum time without any data from the server, in all states of the connection.
const INACTIVITY_TIMEOUT: Duration = Duration::from_mins(2);
/// Timeout for the check of a suspect connection.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Port of an address without one.
const DEFAULT_PORT: u16 = 22;

/// A connection for commands.
pub(super) struct Connection {
    handle: Handle<ClientHandler>,
    /// One permit for each additional command.
    pub(super) permits: Arc<Semaphore>,
    last_used: Mutex<Instant>,
    /// A command was abandoned before its end, perhaps because of the connection.
    suspect: AtomicBool,
    close_reason: CloseReason,
    _close_on_drop: DropGuard,
}

/// Why a connection ended, once it has ended.
type CloseReason = Arc<Mutex<Option<String>>>;

impl Connection {
    /// Connects and authenticates. Dropping the future closes the socket.
    pub(super) async fn open(
        remote: &Remote,
        credentials: &SshCredentials,
        algorithms: &Algorithms,
    ) -> Result<Self, FetchError> {
        let secrets = Secrets::read(credentials).await?;
        let port = remote.address.url().port().unwrap_or(DEFAULT_PORT);
        let server = Server {
            host: remote.address.hostname(),
            port,
        };
        let expected = secrets.known_hosts.expected(server);
        let config = config(algorithms, &secrets.known_hosts, server);
        let socket = open_socket(remote, server.host, port).await?;
        socket.set_nodelay(true).map_err(|error| broken(remote, &error))?;
        let (close, close_reason) = (CancellationToken::new(), CloseReason::default());
        let close_on_drop = close.clone().drop_guard();
        let handler = ClientHandler {
            known_hosts: secrets.known_hosts,
            host: server.host.to_owned(),
            port,
            close_reason: Arc::clone(&close_reason),
        };
        let handle =
            client::connect_stream(Arc::new(config), CancellableStream::new(socket, close), handler).await;
        let mut handle = handle.map_err(|error| fetch_error(remote, error, &expected))?;
        let sha1 = algorithms.allows_sha1();
        let accepted = authenticate(&mut handle, credentials.user(), secrets.identity, sha1).await;
        let accepted = accepted.map_err(|error| fetch_error(remote, ClientError::Ssh(error), &expected));
        if let Some(source) = accepted? {
            let url = remote.address.to_string();
            return Err(FetchError::Handshake { url, source });
        }
        Ok(Self {
            handle,
            permits: Arc::new(Semaphore::new(MAX_COMMANDS)),
            last_used: Mutex::new(Instant::now()),
            suspect: AtomicBool::new(false),
            close_reason,
            _close_on_drop: close_on_drop,
        })
    }

    /// Opens a channel for one command.
    pub(super) async fn channel(&self) -> Result<russh::Channel<client::Msg>, russh::Error> {
        self.touch();
        self.handle.channel_open_session().await
    }

    /// Whether the connection still works. Waits for a reply only if the connection is suspect.
    pub(super) async fn is_alive(&self) -> bool {
        if self.handle.is_closed() {
            return false;
        }
        if !self.suspect.swap(false, Ordering::Relaxed) {
            return true;
        }
        matches!(
            tokio::time::timeout(CHECK_TIMEOUT, self.handle.send_ping()).await,
            Ok(Ok(()))
        )
    }

    /// Marks the connection for a check; called when a command is abandoned before its end.
    pub(super) fn mark_suspect(&self) {
        self.suspect.store(true, Ordering::Relaxed);
    }

    pub(super) fn touch(&self) {
        *lock(&self.last_used) = Instant::now();
    }

    /// Returns how long the connection has been unused.
    pub(super) fn idle_time(&self) -> Duration {
        if self.permits.available_permits() < MAX_COMMANDS {
            return Duration::ZERO;
        }
        lock(&self.last_used).elapsed()
    }

    /// Returns why the connection ended.
    pub(super) fn close_reason(&self) -> String {
        let close_reason = lock(&self.close_reason);
        close_reason
            .clone()
            .unwrap_or_else(|| "the connection was closed".to_owned())
    }
}

/// The parsed parts of the credentials.
struct Secrets {
    identity: PrivateKey,
    known_hosts: KnownHosts,
}

impl Secrets {
    /// Parses the credentials. Decrypting a key is slow by design, so it runs off the reactor.
    async fn read(credentials: &SshCredentials) -> Result<Self, FetchError> {
        let credentials = credentials.clone();
        let work = move || -> Result<Self, AuthMethodError> {
            Ok(Self {
                known_hosts: KnownHosts::parse(credentials.known_hosts())?,
                identity: identity::parse(credentials.identity(), credentials.passphrase())?,
            })
        };
        let read = tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| FetchError::Storage(std::io::Error::other(error)))?;
        read.map_err(FetchError::AuthMethod)
    }
}

fn config(algorithms: &Algorithms, known_hosts: &KnownHosts, server: Server<'_>) -> client::Config {
    let offer = algorithms.host_keys(known_hosts.offer(server));
    client::Config {
        client_id: SshId::Standard(concat!("SSH-2.0-sluice_", env!("CARGO_PKG_VERSION")).into()),
        preferred: Preferred {
            kex: algorithms.key_exchange_names().into(),
            key: offer.keys.into(),
            host_key_certificates: offer.certificates.into(),
            ..Preferred::DEFAULT
        },
        inactivity_timeout: Some(INACTIVITY_TIMEOUT),
        keepalive_interval: Some(KEEPALIVE_INTERVAL),
        keepalive_max: MAX_MISSED_KEEPALIVES,
        nodelay: true,
        ..client::Config::default()
    }
}

/// Connects directly, or through the SOCKS proxy of the object or the environment.
async fn open_socket(remote: &Remote, host: &str, port: u16) -> Result<TcpStream, FetchError> {
    let Some(proxy) = remote.transport.proxy(remote) else {
        let socket = TcpStream::connect((host, port)).await;
        return socket.map_err(|error| broken(remote, &error));
    };
    if proxy.kind() != ProxyKind::Socks5 {
        return Err(FetchError::AuthMethod(AuthMethodError::Proxy(proxy.to_string())));
    }
    // A proxy expects IPv6 addresses in brackets.
    let host = remote.address.url().host_str().unwrap_or(host);
    let socket = connect(&proxy, host, port, remote.timeout).await;
    socket.map_err(|error| broken(remote, &error))
}

/// Authenticates with the key; returns the error if the server refuses it.
async fn authenticate(
    handle: &mut Handle<ClientHandler>,
    user: &str,
    identity: PrivateKey,
    sha1: bool,
) -> Result<Option<HandshakeError>, russh::Error> {
    let hashes = match identity.algorithm() {
        Algorithm::Rsa { .. } => {
            let supported = handle.best_supported_rsa_hash().await?;
            rsa_hashes(supported.flatten(), sha1)
        }
        _ => vec![None],
    };
    let (identity, mut accepted) = (Arc::new(identity), String::new());
    for hash in hashes {
        let key = PrivateKeyWithHashAlg::new(Arc::clone(&identity), hash);
        match handle.authenticate_publickey(user, key).await? {
            AuthResult::Success => return Ok(None),
            AuthResult::Failure {
                remaining_methods, ..
            } => {
                let names: Vec<&str> = remaining_methods.iter().map(Into::into).collect();
                accepted = names.join(", ");
            }
        }
    }
    let methods = if accepted.is_empty() {
        "nothing".to_owned()
    } else {
        accepted
    };
    Ok(Some(HandshakeError::Unauthorized {
        user: user.to_owned(),
        key: describe_key(identity.public_key().key_data()),
        methods,
    }))
}

/// Returns the hashes for RSA signatures in the order of the attempts. Servers do not always accept what they
/// advertise.
fn rsa_hashes(best: Option<HashAlg>, sha1: bool) -> Vec<Option<HashAlg>> {
    let mut hashes = vec![
        best.or(Some(HashAlg::Sha512)),
        Some(HashAlg::Sha512),
        Some(HashAlg::Sha256),
        None,
    ];
    let mut tried = Vec::new();
    hashes.retain(|hash| {
        let new = !tried.contains(hash);
        tried.push(*hash);
        new && (sha1 || hash.is_some())
    });
    hashes
}

/// Checks the host key against the known hosts, and records why a connection ended.
pub(super) struct ClientHandler {
    known_hosts: KnownHosts,
    host: String,
    port: u16,
    close_reason: CloseReason,
}

/// Errors of the ssh library and of the host key check.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    #[error(transparent)]
    Ssh(#[from] russh::Error),
}

impl client::Handler for ClientHandler {
    type Error = ClientError;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, ClientError> {
        let server = Server {
            host: &self.host,
            port: self.port,
        };
        match presented {
            PublicKeyOrCertificate::PublicKey { key, .. } => {
                self.known_hosts.verify_key(server, key.key_data())?;
            }
            PublicKeyOrCertificate::Certificate(certificate) => {
                let now = SystemTime::now()
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .unwrap_or_default();
                self.known_hosts
                    .verify_certificate(server, certificate, now.as_secs())?;
            }
        }
        Ok(true)
    }

    async fn disconnected(&mut self, reason: DisconnectReason<ClientError>) -> Result<(), ClientError> {
        let text = match &reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                format!(
                    "the host closed the connection: {}",
                    sanitize_text(info.message.as_bytes())
                )
            }
            DisconnectReason::Error(error) => format!("the connection broke: {}", chain(error)),
        };
        *lock(&self.close_reason) = Some(text);
        Ok(())
    }
}

fn broken(remote: &Remote, error: &(dyn std::error::Error + 'static)) -> FetchError {
    FetchError::Connection {
        host: remote.address.host(),
        why: chain(error),
    }
}

/// Classifies errors of the ssh library.
fn fetch_error(remote: &Remote, error: ClientError, expected: &str) -> FetchError {
    let url = remote.address.to_string();
    let source = match error {
        ClientError::HostKey(refusal) => refusal.into(),
        ClientError::Ssh(russh::Error::NoCommonAlgo { kind, ours, theirs }) => {
            let list = |names: &[String]| sanitize_text(names.join(", ").as_bytes());
            let (theirs, ours) = (list(&theirs), list(&ours));
            let kind = match kind {
                AlgorithmKind::Key => None,
                AlgorithmKind::Kex => Some("key exchange"),
                AlgorithmKind::Cipher => Some("encryption"),
                AlgorithmKind::Mac => Some("message authentication"),
                AlgorithmKind::Compression => Some("compression"),
            };
            let expected = expected.to_owned();
            match kind {
                None => HandshakeError::HostKeyAlgorithm {
                    theirs,
                    ours,
                    expected,
                },
                Some(kind) => HandshakeError::Algorithm { kind, theirs, ours },
            }
        }
        ClientError::Ssh(
            error @ (russh::Error::IO(_)
            | russh::Error::HUP
            | russh::Error::Disconnect
            | russh::Error::SendError
            | russh::Error::RecvError
            | russh::Error::ConnectionTimeout
            | russh::Error::KeepaliveTimeout
            | russh::Error::InactivityTimeout),
        ) => {
            return broken(remote, &error);
        }
        ClientError::Ssh(error) => HandshakeError::Protocol(chain(&error)),
    };
    FetchError::Handshake { url, source }
}
