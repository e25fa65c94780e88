//! Names of algorithms, as flags give them and as they are offered to a server.

use std::fmt;
use std::str::FromStr;

use russh::kex;
use russh::keys::{Algorithm, EcdsaCurve, HashAlg};

/// Offered unless a flag says otherwise, best first. Nothing with SHA-1.
const USUAL_EXCHANGES: [kex::Name; 10] = [
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::ECDH_SHA2_NISTP256,
    kex::ECDH_SHA2_NISTP384,
    kex::ECDH_SHA2_NISTP521,
    kex::DH_GEX_SHA256,
    kex::DH_G16_SHA512,
    kex::DH_G18_SHA512,
    kex::DH_G14_SHA256,
];
/// Understood, but only offered where a flag names them.
const OTHER_EXCHANGES: [kex::Name; 5] = [
    kex::DH_G15_SHA512,
    kex::DH_G17_SHA512,
    kex::DH_G14_SHA1,
    kex::DH_GEX_SHA1,
    kex::DH_G1_SHA1,
];
/// No algorithms: they tell the server what else this side understands, and belong to every list.
const EXTENSIONS: [kex::Name; 2] = [
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
];

/// Types of host keys that are understood, best first.
pub(super) const HOST_KEYS: [Algorithm; 6] = [
    Algorithm::Ed25519,
    Algorithm::Ecdsa {
        curve: EcdsaCurve::NistP256,
    },
    Algorithm::Ecdsa {
        curve: EcdsaCurve::NistP384,
    },
    Algorithm::Ecdsa {
        curve: EcdsaCurve::NistP521,
    },
    Algorithm::Rsa {
        hash: Some(HashAlg::Sha512),
    },
    Algorithm::Rsa {
        hash: Some(HashAlg::Sha256),
    },
];
/// The same with SHA-1, which only a flag brings back.
const RSA_SHA1: Algorithm = Algorithm::Rsa { hash: None };

/// A flag names an algorithm that this program does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no {kind} algorithm that is known here; known are: {known}")]
pub struct UnknownAlgorithm {
    name: String,
    kind: &'static str,
    known: String,
}

/// A key exchange algorithm, by its name: `curve25519-sha256`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyExchange(kex::Name);

impl FromStr for KeyExchange {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let mut known = USUAL_EXCHANGES.into_iter().chain(OTHER_EXCHANGES);
        let found = known.clone().find(|known| known.as_ref() == name);
        found.map(Self).ok_or_else(|| UnknownAlgorithm {
            name: name.to_owned(),
            kind: "key exchange",
            known: join(known.by_ref().map(|known| known.as_ref().to_owned())),
        })
    }
}

/// A host key algorithm, by its name: `rsa-sha2-512`, or `ssh-ed25519-cert-v01@openssh.com` for certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeyAlgorithm {
    algorithm: Algorithm,
    certificate: bool,
}

impl FromStr for HostKeyAlgorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let known = || HOST_KEYS.into_iter().chain([RSA_SHA1]);
        let all = || {
            let plain = known().map(|algorithm| Self {
                algorithm,
                certificate: false,
            });
            plain.chain(known().map(|algorithm| Self {
                algorithm,
                certificate: true,
            }))
        };
        let found = all().find(|known| known.to_string() == name);
        found.ok_or_else(|| UnknownAlgorithm {
            name: name.to_owned(),
            kind: "host key",
            known: join(all().map(|known| known.to_string())),
        })
    }
}

impl fmt::Display for HostKeyAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.certificate {
            f.write_str(&self.algorithm.to_certificate_type())
        } else {
            f.write_str(self.algorithm.as_str())
        }
    }
}

/// What flags say about algorithms. Empty lists mean: the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// Key exchanges, in the order in which they are offered.
    pub key_exchanges: Vec<KeyExchange>,
    /// Host key algorithms, in the order in which they are offered, whatever known hosts there are.
    pub host_keys: Vec<HostKeyAlgorithm>,
}

/// Host key algorithms that one server is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Plain keys.
    pub keys: Vec<Algorithm>,
    /// Keys with a certificate.
    pub certificates: Vec<Algorithm>,
}

impl Algorithms {
    /// Key exchanges as they are sent.
    #[must_use]
    pub fn exchanges(&self) -> Vec<kex::Name> {
        let flag: Vec<_> = self.key_exchanges.iter().map(|exchange| exchange.0).collect();
        let mut names = if flag.is_empty() {
            USUAL_EXCHANGES.to_vec()
        } else {
            flag
        };
        names.extend(EXTENSIONS);
        names
    }

    /// Host key algorithms as they are sent: those of the flag alone, if it is set.
    #[must_use]
    pub fn host_keys(&self, known: Offer) -> Offer {
        if self.host_keys.is_empty() {
            return known;
        }
        let of = |certificate: bool| {
            let wanted = self
                .host_keys
                .iter()
                .filter(|each| each.certificate == certificate);
            wanted.map(|each| each.algorithm.clone()).collect()
        };
        Offer {
            keys: of(false),
            certificates: of(true),
        }
    }

    /// Whether RSA signatures with SHA-1 were asked for.
    #[must_use]
    pub fn allow_sha1(&self) -> bool {
        self.host_keys.iter().any(|each| each.algorithm == RSA_SHA1)
    }
}

fn join(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_exchanges_have_no_sha1_and_the_flag_decides_alone() {
        let names = |algorithms: &Algorithms| -> Vec<_> {
            let names = algorithms.exchanges();
            names.iter().map(|name| name.as_ref().to_owned()).collect()
        };
        let usual = names(&Algorithms::default());
        assert!(usual.iter().all(|name| !name.ends_with("-sha1")), "{usual:?}");
        let flag = Algorithms {
            key_exchanges: vec![
                "ecdh-sha2-nistp384".parse().unwrap(),
                "curve25519-sha256".parse().unwrap(),
            ],
            ..Algorithms::default()
        };
        let sent = names(&flag);
        assert_eq!(sent[..2], ["ecdh-sha2-nistp384", "curve25519-sha256"]);
        assert_eq!(sent[2..], ["ext-info-c", "kex-strict-c-v00@openssh.com"]);
    }

    #[test]
    fn host_keys_of_the_flag_replace_those_of_the_known_hosts() {
        let known = Offer {
            keys: vec![Algorithm::Ed25519],
            certificates: Vec::new(),
        };
        assert_eq!(Algorithms::default().host_keys(known.clone()), known);
        let flag = Algorithms {
            host_keys: ["ssh-rsa", "rsa-sha2-256", "ssh-ed25519-cert-v01@openssh.com"]
                .map(|name| name.parse().unwrap())
                .to_vec(),
            ..Algorithms::default()
        };
        let offered = flag.host_keys(known);
        assert_eq!(
            offered.keys,
            [
                RSA_SHA1,
                Algorithm::Rsa {
                    hash: Some(HashAlg::Sha256)
                }
            ]
        );
        assert_eq!(offered.certificates, [Algorithm::Ed25519]);
        assert!(flag.allow_sha1() && !Algorithms::default().allow_sha1());
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "curve448".parse::<KeyExchange>().unwrap_err().to_string();
        assert!(
            error.contains("\"curve448\"") && error.contains("curve25519-sha256, "),
            "{error}"
        );
        assert!(!error.contains("none") && !error.contains("ext-info"), "{error}");
        let error = "ssh-dss".parse::<HostKeyAlgorithm>().unwrap_err().to_string();
        assert!(
            error.contains("\"ssh-dss\"") && error.contains("rsa-sha2-512, "),
            "{error}"
        );
    }
}
