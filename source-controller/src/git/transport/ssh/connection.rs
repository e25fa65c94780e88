//! One connection: reached, the host's key checked, authenticated.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use russh::client::{self, AuthResult, DisconnectReason, Handle};
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{AlgorithmKind, Preferred, SshId};
use sluice_runtime::failure::chain;
use sluice_runtime::http::{ProxyKind, connect};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::super::error::{AuthMethodError, FetchError, HandshakeError};
use super::super::super::protocol::remote_text;
use super::super::super::remote::Remote;
use super::super::super::ssh::known_hosts::{Server, shown};
use super::super::super::ssh::{Algorithms, KnownHosts, Refusal, SshCredentials, identity};
use super::leash::Leashed;

/// Commands at once on one connection; OpenSSH allows ten.
const COMMANDS: usize = 8;
/// A silent server is asked for a sign of life this often…
const KEEPALIVE: Duration = Duration::from_secs(15);
/// …and given up after this many questions without an answer.
const UNANSWERED: usize = 2;
/// A server that says nothing at all is given up after this long, whatever state the connection is in.
const SILENCE: Duration = Duration::from_secs(120);
/// How long a doubted connection has to prove that it works.
const PROOF: Duration = Duration::from_secs(5);
/// The port of an address that names none.
const USUAL_PORT: u16 = 22;

/// A connection that commands can be run on.
pub(super) struct Connection {
    handle: Handle<Gate>,
    /// One permit for each further command.
    pub(super) room: Arc<Semaphore>,
    used: Mutex<Instant>,
    /// A command was left before it ended: perhaps because of the connection.
    doubted: AtomicBool,
    lost: Loss,
    _leash: DropGuard,
}

/// Why a connection ended, once it has.
type Loss = Arc<Mutex<Option<String>>>;

impl Connection {
    /// Connects and authenticates. Dropping the future closes the socket.
    pub(super) async fn open(
        remote: &Remote,
        credentials: &SshCredentials,
        algorithms: &Algorithms,
    ) -> Result<Self, FetchError> {
        let secrets = Secrets::read(credentials).await?;
        let port = remote.address.url().port().unwrap_or(USUAL_PORT);
        let server = Server {
            host: remote.address.hostname(),
            port,
        };
        let expected = secrets.known_hosts.expected(server);
        let config = config(algorithms, &secrets.known_hosts, server);
        let broken = |error: &(dyn std::error::Error + 'static)| FetchError::Connection {
            host: remote.address.host(),
            why: chain(error),
        };
        let socket = socket(remote, server.host, port).await?;
        socket.set_nodelay(true).map_err(|error| broken(&error))?;
        let (cut, lost) = (CancellationToken::new(), Loss::default());
        let leash = cut.clone().drop_guard();
        let gate = Gate {
            known_hosts: secrets.known_hosts,
            host: server.host.to_owned(),
            port,
            lost: Arc::clone(&lost),
        };
        let handle = client::connect_stream(Arc::new(config), Leashed::new(socket, cut), gate).await;
        let mut handle = handle.map_err(|error| failure(remote, error, &expected))?;
        let sha1 = algorithms.allow_sha1();
        let accepted = authenticate(&mut handle, credentials.user(), secrets.identity, sha1).await;
        match accepted.map_err(|error| failure(remote, GateError::Ssh(error), &expected))? {
            None => {}
            Some(refused) => {
                return Err(FetchError::Handshake {
                    url: remote.address.to_string(),
                    source: refused,
                });
            }
        }
        Ok(Self {
            handle,
            room: Arc::new(Semaphore::new(COMMANDS)),
            used: Mutex::new(Instant::now()),
            doubted: AtomicBool::new(false),
            lost,
            _leash: leash,
        })
    }

    /// A channel for one command.
    pub(super) async fn channel(&self) -> Result<russh::Channel<client::Msg>, russh::Error> {
        self.touch();
        self.handle.channel_open_session().await
    }

    /// Whether it still works, as far as can be known without waiting for long.
    pub(super) async fn is_sound(&self) -> bool {
        if self.handle.is_closed() {
            return false;
        }
        if !self.doubted.swap(false, Ordering::Relaxed) {
            return true;
        }
        matches!(
            tokio::time::timeout(PROOF, self.handle.send_ping()).await,
            Ok(Ok(()))
        )
    }

    /// To be called when a command is left before its end.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long nothing has been done with it.
    pub(super) fn idle(&self) -> Duration {
        if self.room.available_permits() < COMMANDS {
            return Duration::ZERO;
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Why it ended.
    pub(super) fn loss(&self) -> String {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.clone()
            .unwrap_or_else(|| "the connection was closed".to_owned())
    }
}

/// What of the credentials has to be read before anything can be done.
struct Secrets {
    identity: PrivateKey,
    known_hosts: KnownHosts,
}

impl Secrets {
    /// Decrypting a key takes its time by design, so it is done off the reactor.
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
            kex: algorithms.exchanges().into(),
            key: offer.keys.into(),
            host_key_certificates: offer.certificates.into(),
            ..Preferred::DEFAULT
        },
        inactivity_timeout: Some(SILENCE),
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: UNANSWERED,
        nodelay: true,
        ..client::Config::default()
    }
}

/// Connects straight, or through the SOCKS proxy of the object or the environment.
async fn socket(remote: &Remote, host: &str, port: u16) -> Result<TcpStream, FetchError> {
    let broken = |error: &(dyn std::error::Error + 'static)| FetchError::Connection {
        host: remote.address.host(),
        why: chain(error),
    };
    let Some(proxy) = remote.transport.proxy(remote) else {
        let socket = TcpStream::connect((host, port)).await;
        return socket.map_err(|error| broken(&error));
    };
    if proxy.kind() != ProxyKind::Socks5 {
        return Err(FetchError::AuthMethod(AuthMethodError::Proxy(proxy.to_string())));
    }
    // A proxy takes IPv6 addresses in brackets.
    let host = remote.address.url().host_str().unwrap_or(host);
    let socket = connect(&proxy, host, port, remote.timeout).await;
    socket.map_err(|error| broken(&error))
}

/// Proves who is asking; gives why not, if the server does not take it.
async fn authenticate(
    handle: &mut Handle<Gate>,
    user: &str,
    identity: PrivateKey,
    sha1: bool,
) -> Result<Option<HandshakeError>, russh::Error> {
    let hashes = match identity.algorithm() {
        Algorithm::Rsa { .. } => {
            let said = handle.best_supported_rsa_hash().await?;
            hashes(said.flatten(), sha1)
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
        key: shown(identity.public_key().key_data()),
        methods,
    }))
}

/// The hashes that an RSA key signs with, in the order in which they are tried. What a server says it knows is not
/// always what it takes.
fn hashes(best: Option<HashAlg>, sha1: bool) -> Vec<Option<HashAlg>> {
    let mut hashes = vec![
        best.or(Some(HashAlg::Sha512)),
        Some(HashAlg::Sha512),
        Some(HashAlg::Sha256),
        None,
    ];
    let mut seen = Vec::new();
    hashes.retain(|hash| {
        let new = !seen.contains(hash);
        seen.push(*hash);
        new && (sha1 || hash.is_some())
    });
    hashes
}

/// Lets in whom the known hosts know, and remembers why a connection ended.
pub(super) struct Gate {
    known_hosts: KnownHosts,
    host: String,
    port: u16,
    lost: Loss,
}

/// Why the library gave up.
#[derive(Debug, thiserror::Error)]
pub(super) enum GateError {
    #[error(transparent)]
    HostKey(#[from] Refusal),
    #[error(transparent)]
    Ssh(#[from] russh::Error),
}

impl client::Handler for Gate {
    type Error = GateError;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, GateError> {
        let server = Server {
            host: &self.host,
            port: self.port,
        };
        match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => {
                self.known_hosts.judge_key(server, key.key_data())?;
            }
            PublicKeyOrCertificate::Certificate(certificate) => {
                let now = SystemTime::now()
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .unwrap_or_default();
                self.known_hosts
                    .judge_certificate(server, certificate, now.as_secs())?;
            }
        }
        Ok(true)
    }

    async fn disconnected(&mut self, reason: DisconnectReason<GateError>) -> Result<(), GateError> {
        let text = match &reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                format!(
                    "the host closed the connection: {}",
                    remote_text(info.message.as_bytes())
                )
            }
            DisconnectReason::Error(error) => format!("the connection broke: {}", chain(error)),
        };
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        Ok(())
    }
}

/// Foreign errors, classified.
fn failure(remote: &Remote, error: GateError, expected: &str) -> FetchError {
    let url = remote.address.to_string();
    let source = match error {
        GateError::HostKey(refusal) => refusal.into(),
        GateError::Ssh(russh::Error::NoCommonAlgo { kind, ours, theirs }) => {
            let list = |names: &[String]| remote_text(names.join(", ").as_bytes());
            let (theirs, ours) = (list(&theirs), list(&ours));
            match kind {
                AlgorithmKind::Key => HandshakeError::HostKeyAlgorithm {
                    theirs,
                    ours,
                    expected: expected.to_owned(),
                },
                AlgorithmKind::Kex => HandshakeError::Algorithm {
                    kind: "key exchange",
                    theirs,
                    ours,
                },
                AlgorithmKind::Cipher => HandshakeError::Algorithm {
                    kind: "encryption",
                    theirs,
                    ours,
                },
                AlgorithmKind::Mac => HandshakeError::Algorithm {
                    kind: "message authentication",
                    theirs,
                    ours,
                },
                AlgorithmKind::Compression => HandshakeError::Algorithm {
                    kind: "compression",
                    theirs,
                    ours,
                },
            }
        }
        GateError::Ssh(
            error @ (russh::Error::IO(_)
            | russh::Error::HUP
            | russh::Error::Disconnect
            | russh::Error::SendError
            | russh::Error::RecvError
            | russh::Error::ConnectionTimeout
            | russh::Error::KeepaliveTimeout
            | russh::Error::InactivityTimeout),
        ) => {
            return FetchError::Connection {
                host: remote.address.host(),
                why: chain(&error),
            };
        }
        GateError::Ssh(error) => HandshakeError::Protocol(chain(&error)),
    };
    FetchError::Handshake { url, source }
}
