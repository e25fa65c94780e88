//! What can go wrong with ssh before any command is run: with what the Secret holds, and while the two sides agree.

use crate::git::ssh::{IdentityError, KnownHostsError, Refusal};

/// What of a Secret cannot be used for ssh.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthMethodError {
    /// The private key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The known hosts.
    #[error(transparent)]
    KnownHosts(#[from] KnownHostsError),
    /// A proxy that does not carry ssh.
    #[error("ssh goes through socks5 proxies only, and {0} is none")]
    Proxy(String),
}

/// Why an ssh connection was given up before any command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The host is not the one it should be.
    #[error(transparent)]
    HostKey(#[from] Refusal),
    /// The host has no key of a type that may be shown.
    #[error(
        "no common algorithm for host key; the host has: {theirs}; offered: {ours}; known_hosts expects {expected}"
    )]
    HostKeyAlgorithm {
        /// What the host has.
        theirs: String,
        /// What it was offered.
        ours: String,
        /// What the known hosts have for it.
        expected: String,
    },
    /// Nothing that both sides understand.
    #[error("no common algorithm for {kind}; the host has: {theirs}; offered: {ours}")]
    Algorithm {
        /// What for.
        kind: &'static str,
        /// What the host has.
        theirs: String,
        /// What it was offered.
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
        /// Methods with which one may go on.
        methods: String,
    },
    /// The other side breaks the protocol.
    #[error("ssh: {0}")]
    Protocol(String),
}
