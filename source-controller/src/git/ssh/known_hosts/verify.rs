//! Verifies the host key of a server.

use std::fmt;

use russh::keys::ssh_key::certificate::CertType;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, Certificate, HashAlg};

use super::super::algorithms::{HOST_KEYS, Offer};
use super::{KnownHosts, Line, Marker, Server, describe_key};

/// Maximum number of lines in an error; the rest are counted.
const MAX_LISTED_LINES: usize = 8;

/// Why a host key is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostKeyError {
    /// No line matches this host.
    #[error(
        "knownhosts: key is unknown: the host shows {presented}, and none of the {lines} lines of known_hosts is about {server}"
    )]
    Unknown {
        /// Type and fingerprint of the key.
        presented: String,
        /// Number of lines in the file.
        lines: usize,
        /// Host and port.
        server: String,
    },
    /// The lines for this host have other keys.
    #[error("knownhosts: key mismatch: the host shows {presented}, and known_hosts expects {expected}")]
    Mismatch {
        /// Type and fingerprint of the key.
        presented: String,
        /// The lines for this host, with their keys.
        expected: String,
    },
    /// A line revokes the key.
    #[error(
        "knownhosts: key is revoked: the host shows {presented}, which line {line} of known_hosts revokes"
    )]
    Revoked {
        /// Type and fingerprint of the key.
        presented: String,
        /// Number of the line.
        line: usize,
    },
    /// The host's certificate is invalid.
    #[error("knownhosts: the host shows a certificate for {presented}, which is not valid: {why}")]
    Certificate {
        /// Type and fingerprint of the key.
        presented: String,
        /// The reason.
        why: String,
    },
}

impl KnownHosts {
    /// Verifies that the host may use this key. Any of several keys of one type is accepted.
    ///
    /// # Errors
    /// The key is refused.
    pub(crate) fn verify_key(&self, server: Server<'_>, key: &KeyData) -> Result<(), HostKeyError> {
        self.check_revoked(key, key)?;
        if self.lines_for(server, Marker::Key).any(|line| line.key == *key) {
            return Ok(());
        }
        let presented = describe_key(key);
        let lines: Vec<_> = self.lines.iter().filter(|line| line.applies_to(server)).collect();
        if lines.is_empty() {
            return Err(HostKeyError::Unknown {
                presented,
                lines: self.lines.len(),
                server: server.to_string(),
            });
        }
        Err(HostKeyError::Mismatch {
            presented,
            expected: describe_lines(&lines),
        })
    }

    /// Verifies that the host may use this certificate at `now`, in seconds since 1970 (`PROTOCOL.certkeys`).
    ///
    /// # Errors
    /// The certificate is refused.
    pub(crate) fn verify_certificate(
        &self,
        server: Server<'_>,
        certificate: &Certificate,
        now: u64,
    ) -> Result<(), HostKeyError> {
        let (key, signer) = (certificate.public_key(), certificate.signature_key());
        self.check_revoked(key, key)?;
        self.check_revoked(signer, key)?;
        let refused = |why: String| HostKeyError::Certificate {
            presented: describe_key(key),
            why,
        };
        if !self
            .lines_for(server, Marker::Authority)
            .any(|line| line.key == *signer)
        {
            let lines: Vec<_> = self.lines.iter().filter(|line| line.applies_to(server)).collect();
            let expected = if lines.is_empty() {
                format!("nothing about {server}")
            } else {
                describe_lines(&lines)
            };
            return Err(refused(format!(
                "it is signed by {}, and known_hosts expects {expected}",
                super::describe_key(signer)
            )));
        }
        if certificate.cert_type() != CertType::Host {
            return Err(refused("it is a user's certificate, not a host's".into()));
        }
        if certificate.signature().algorithm() == (Algorithm::Rsa { hash: None }) {
            return Err(refused("it is signed with SHA-1".into()));
        }
        let principals = certificate.valid_principals();
        if !principals.is_empty()
            && !principals
                .iter()
                .any(|name| name.eq_ignore_ascii_case(server.host))
        {
            return Err(refused(format!(
                "it is for {}, not for {}",
                principals.join(", "),
                server.host
            )));
        }
        if let Some((option, _)) = certificate.critical_options().iter().next() {
            return Err(refused(format!("its critical option '{option}' is unknown")));
        }
        if now < certificate.valid_after() {
            return Err(refused("it is not valid yet".into()));
        }
        if now >= certificate.valid_before() {
            return Err(refused("it has expired".into()));
        }
        certificate
            .validate_at(now, [&signer.fingerprint(HashAlg::Sha256)])
            .map_err(|_| refused("its signature is wrong".into()))
    }

    /// Returns the algorithms to offer: the types of the host's known keys. An unknown host is offered all of them, so
    /// that the error can contain its key.
    #[must_use]
    pub fn offer(&self, server: Server<'_>) -> Offer {
        let of = |marker: Marker| -> Vec<Algorithm> {
            let types: Vec<_> = self
                .lines_for(server, marker)
                .map(|line| line.key.algorithm())
                .collect();
            HOST_KEYS
                .into_iter()
                .filter(|algorithm| types.iter().any(|key_type| can_sign(key_type, algorithm)))
                .collect()
        };
        let keys = of(Marker::Key);
        let certificates = if self.lines_for(server, Marker::Authority).next().is_some() {
            HOST_KEYS.to_vec()
        } else {
            Vec::new()
        };
        Offer {
            keys: if keys.is_empty() { HOST_KEYS.to_vec() } else { keys },
            certificates,
        }
    }

    /// Describes the lines for a host, for an error without a key.
    #[must_use]
    pub fn expected(&self, server: Server<'_>) -> String {
        let lines: Vec<_> = self.lines.iter().filter(|line| line.applies_to(server)).collect();
        if lines.is_empty() {
            format!("nothing about {server}")
        } else {
            describe_lines(&lines)
        }
    }

    fn lines_for(&self, server: Server<'_>, marker: Marker) -> impl Iterator<Item = &Line> {
        self.lines
            .iter()
            .filter(move |line| line.marker == marker && line.hosts.matches(server))
    }

    /// Checks a key against all revocations. A revoked key is revoked for all hosts, because a stolen key can be used
    /// for any host.
    fn check_revoked(&self, key: &KeyData, host_key: &KeyData) -> Result<(), HostKeyError> {
        let line = self
            .lines
            .iter()
            .find(|line| line.marker == Marker::Revoked && line.key == *key);
        line.map_or(Ok(()), |line| {
            Err(HostKeyError::Revoked {
                presented: describe_key(host_key),
                line: line.number,
            })
        })
    }
}

impl Line {
    fn applies_to(&self, server: Server<'_>) -> bool {
        self.marker != Marker::Revoked && self.hosts.matches(server)
    }
}

/// Whether a key of this type can sign with this algorithm; RSA keys support both hashes.
fn can_sign(key_type: &Algorithm, algorithm: &Algorithm) -> bool {
    match (key_type, algorithm) {
        (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
        (key_type, algorithm) => key_type == algorithm,
    }
}

fn describe_lines(lines: &[&Line]) -> String {
    let mut texts: Vec<_> = lines
        .iter()
        .take(MAX_LISTED_LINES)
        .map(|line| match line.marker {
            Marker::Authority => format!(
                "a certificate signed by {} (line {})",
                describe_key(&line.key),
                line.number
            ),
            Marker::Key | Marker::Revoked => {
                format!("{} (line {})", describe_key(&line.key), line.number)
            }
        })
        .collect();
    if lines.len() > MAX_LISTED_LINES {
        texts.push(format!("{} more", lines.len() - MAX_LISTED_LINES));
    }
    texts.join(" or ")
}

impl fmt::Display for Server<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
