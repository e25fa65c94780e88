//! Errors of ssh before a command runs: invalid Secrets and failed handshakes.

use crate::git::ssh::{HostKeyError, IdentityError, KnownHostsError};

/// Invalid ssh settings of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthMethodError {
    /// The private key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The known hosts.
    #[error(transparent)]
    KnownHosts(#[from] KnownHostsError),
    /// A proxy that does not support ssh.
    #[error("ssh supports only socks5 proxies, not {0}")]
    Proxy(String),
}

/// Why an ssh handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The host's key is not trusted.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The host has no key of an allowed type.
    #[error(
        "no common algorithm for host key; the host has: {theirs}; offered: {ours}; known_hosts expects {expected}"
    )]
    HostKeyAlgorithm {
        /// The host's algorithms.
        theirs: String,
        /// The algorithms offered to it.
        ours: String,
        /// The known hosts for it.
        expected: String,
    },
    /// No common algorithm.
    #[error("no common algorithm for {kind}; the host has: {theirs}; offered: {ours}")]
    Algorithm {
        /// The purpose of the algorithm.
        kind: &'static str,
        /// The host's algorithms.
        theirs: String,
        /// The algorithms offered to it.
        ours: String,
    },
    /// The key is not authorized.
    #[error(
        "ssh: unable to authenticate as '{user}', attempted methods [publickey] with {key}; the host accepts: {methods}"
    )]
    Unauthorized {
        /// The user at the server.
        user: String,
        /// Type and fingerprint of the key.
        key: String,
        /// Methods that the server would accept.
        methods: String,
    },
    /// The server violates the protocol.
    #[error("ssh: {0}")]
    Protocol(String),
}
