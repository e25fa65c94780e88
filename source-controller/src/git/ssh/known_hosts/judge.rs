//! Whether a server is who it should be.

use std::fmt;

use russh::keys::ssh_key::certificate::CertType;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, Certificate, HashAlg};

use super::super::algorithms::{HOST_KEYS, Offer};
use super::{KnownHosts, Line, Marker, Server, kind, shown};

/// Lines that an error lists; the rest are counted.
const LISTED: usize = 8;

/// Why a server is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No line is about this host.
    #[error(
        "knownhosts: key is unknown: the host shows {shown}, and none of the {lines} lines of known_hosts is about {server}"
    )]
    Unknown {
        /// Type and fingerprint of the key.
        shown: String,
        /// Lines of the file.
        lines: usize,
        /// Host and port.
        server: String,
    },
    /// The lines about this host have other keys.
    #[error("knownhosts: key mismatch: the host shows {shown}, and known_hosts expects {expected}")]
    Mismatch {
        /// Type and fingerprint of the key.
        shown: String,
        /// The lines about this host, with their keys.
        expected: String,
    },
    /// A line says that the key is not to be trusted any more.
    #[error("knownhosts: key is revoked: the host shows {shown}, which line {line} of known_hosts revokes")]
    Revoked {
        /// Type and fingerprint of the key.
        shown: String,
        /// The line.
        line: usize,
    },
    /// The host's certificate is not to be believed.
    #[error("knownhosts: the host shows a certificate for {shown}, which is not valid: {why}")]
    Certificate {
        /// Type and fingerprint of the key.
        shown: String,
        /// What is wrong with it.
        why: String,
    },
}

impl KnownHosts {
    /// Whether the host may show this key. Each of several keys of one type is as good as the others.
    ///
    /// # Errors
    /// It may not.
    pub fn judge_key(&self, server: Server<'_>, key: &KeyData) -> Result<(), Refusal> {
        self.not_revoked(key, key)?;
        if self.about(server, Marker::Key).any(|line| line.key == *key) {
            return Ok(());
        }
        let shown = shown(key);
        let lines: Vec<_> = self.lines.iter().filter(|line| line.concerns(server)).collect();
        if lines.is_empty() {
            return Err(Refusal::Unknown {
                shown,
                lines: self.lines.len(),
                server: server.to_string(),
            });
        }
        Err(Refusal::Mismatch {
            shown,
            expected: list(&lines),
        })
    }

    /// Whether the host may show this certificate at this time, in seconds since 1970 (`PROTOCOL.certkeys`).
    ///
    /// # Errors
    /// It may not.
    pub fn judge_certificate(
        &self,
        server: Server<'_>,
        certificate: &Certificate,
        now: u64,
    ) -> Result<(), Refusal> {
        let (key, signer) = (certificate.public_key(), certificate.signature_key());
        self.not_revoked(key, key)?;
        self.not_revoked(signer, key)?;
        let refused = |why: String| Refusal::Certificate {
            shown: shown(key),
            why,
        };
        if !self
            .about(server, Marker::Authority)
            .any(|line| line.key == *signer)
        {
            let lines: Vec<_> = self.lines.iter().filter(|line| line.concerns(server)).collect();
            let expected = if lines.is_empty() {
                format!("nothing about {server}")
            } else {
                list(&lines)
            };
            return Err(refused(format!(
                "it is signed by {}, and known_hosts expects {expected}",
                super::shown(signer)
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
            return Err(refused(format!("its critical option '{option}' is not known")));
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

    /// What a server is offered: the types of the keys that it may show. A host that no line is about is offered
    /// everything, so that the error can say what it shows.
    #[must_use]
    pub fn offer(&self, server: Server<'_>) -> Offer {
        let of = |marker: Marker| -> Vec<Algorithm> {
            let types: Vec<_> = self.about(server, marker).map(|line| kind(&line.key)).collect();
            HOST_KEYS
                .into_iter()
                .filter(|algorithm| types.iter().any(|kind| fits(kind, algorithm)))
                .collect()
        };
        let keys = of(Marker::Key);
        let certificates = if self.about(server, Marker::Authority).next().is_some() {
            HOST_KEYS.to_vec()
        } else {
            Vec::new()
        };
        Offer {
            keys: if keys.is_empty() { HOST_KEYS.to_vec() } else { keys },
            certificates,
        }
    }

    /// The lines about a host, for an error in which no key was shown.
    #[must_use]
    pub fn expected(&self, server: Server<'_>) -> String {
        let lines: Vec<_> = self.lines.iter().filter(|line| line.concerns(server)).collect();
        if lines.is_empty() {
            format!("nothing about {server}")
        } else {
            list(&lines)
        }
    }

    fn about(&self, server: Server<'_>, marker: Marker) -> impl Iterator<Item = &Line> {
        self.lines
            .iter()
            .filter(move |line| line.marker == marker && line.hosts.include(server))
    }

    /// A revoked key is revoked for all hosts: whoever has it stolen does not care whose it was.
    fn not_revoked(&self, key: &KeyData, whose: &KeyData) -> Result<(), Refusal> {
        let line = self
            .lines
            .iter()
            .find(|line| line.marker == Marker::Revoked && line.key == *key);
        line.map_or(Ok(()), |line| {
            Err(Refusal::Revoked {
                shown: shown(whose),
                line: line.number,
            })
        })
    }
}

impl Line {
    fn concerns(&self, server: Server<'_>) -> bool {
        self.marker != Marker::Revoked && self.hosts.include(server)
    }
}

/// Whether a key of this type signs with this algorithm; RSA keys sign with either hash.
fn fits(kind: &Algorithm, algorithm: &Algorithm) -> bool {
    match (kind, algorithm) {
        (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
        (kind, algorithm) => kind == algorithm,
    }
}

fn list(lines: &[&Line]) -> String {
    let mut texts: Vec<_> = lines
        .iter()
        .take(LISTED)
        .map(|line| match line.marker {
            Marker::Authority => format!(
                "a certificate signed by {} (line {})",
                shown(&line.key),
                line.number
            ),
            Marker::Key | Marker::Revoked => format!("{} (line {})", shown(&line.key), line.number),
        })
        .collect();
    if lines.len() > LISTED {
        texts.push(format!("{} more", lines.len() - LISTED));
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
