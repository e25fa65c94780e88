//! Names of algorithms in flags and in offers to a server.

use std::fmt;
use std::str::FromStr;

use russh::kex;
use russh::keys::{Algorithm, EcdsaCurve, HashAlg};

/// Default key exchanges, most preferred first. None uses SHA-1.
const DEFAULT_KEY_EXCHANGES: [kex::Name; 10] = [
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
/// Supported key exchanges that are offered only if a flag names them.
const OPTIONAL_KEY_EXCHANGES: [kex::Name; 5] = [
    kex::DH_G15_SHA512,
    kex::DH_G17_SHA512,
    kex::DH_G14_SHA1,
    kex::DH_GEX_SHA1,
    kex::DH_G1_SHA1,
];
/// Pseudo-algorithms that announce protocol extensions to the server; part of every list.
const EXTENSION_MARKERS: [kex::Name; 2] = [
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
];

/// Supported host key types, most preferred first.
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
/// RSA with SHA-1, which only a flag enables.
const RSA_SHA1: Algorithm = Algorithm::Rsa { hash: None };

/// A flag names an unsupported algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} algorithm {name:?}; supported: {known}")]
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
        let mut known = DEFAULT_KEY_EXCHANGES.into_iter().chain(OPTIONAL_KEY_EXCHANGES);
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
    is_certificate: bool,
}

impl FromStr for HostKeyAlgorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let known = || HOST_KEYS.into_iter().chain([RSA_SHA1]);
        let all = || {
            let plain = known().map(|algorithm| Self {
                algorithm,
                is_certificate: false,
            });
            plain.chain(known().map(|algorithm| Self {
                algorithm,
                is_certificate: true,
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
        if self.is_certificate {
            f.write_str(&self.algorithm.to_certificate_type())
        } else {
            f.write_str(self.algorithm.as_str())
        }
    }
}

/// Algorithms from flags. An empty list selects the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    /// Key exchanges in the order of the offer.
    pub key_exchanges: Vec<KeyExchange>,
    /// Host key algorithms in the order of the offer, independent of the known hosts.
    pub host_keys: Vec<HostKeyAlgorithm>,
}

/// Host key algorithms that are offered to one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Plain keys.
    pub keys: Vec<Algorithm>,
    /// Keys with a certificate.
    pub certificates: Vec<Algorithm>,
}

impl Algorithms {
    /// Returns the key exchanges in wire format.
    #[must_use]
    pub(crate) fn key_exchange_names(&self) -> Vec<kex::Name> {
        let flag: Vec<_> = self.key_exchanges.iter().map(|exchange| exchange.0).collect();
        let mut names = if flag.is_empty() {
            DEFAULT_KEY_EXCHANGES.to_vec()
        } else {
            flag
        };
        names.extend(EXTENSION_MARKERS);
        names
    }

    /// Returns the host key algorithms to offer: only those of the flag, if it is set.
    #[must_use]
    pub fn host_keys(&self, known: Offer) -> Offer {
        if self.host_keys.is_empty() {
            return known;
        }
        let of = |is_certificate: bool| {
            let expected = self
                .host_keys
                .iter()
                .filter(|each| each.is_certificate == is_certificate);
            expected.map(|each| each.algorithm.clone()).collect()
        };
        Offer {
            keys: of(false),
            certificates: of(true),
        }
    }

    /// Whether the flag enables RSA signatures with SHA-1.
    #[must_use]
    pub(crate) fn allows_sha1(&self) -> bool {
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
    fn the_default_key_exchanges_exclude_sha1_and_the_flag_replaces_them() {
        let names = |algorithms: &Algorithms| -> Vec<_> {
            let names = algorithms.key_exchange_names();
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
    fn host_keys_of_the_flag_replace_the_known_types() {
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
        assert!(flag.allows_sha1() && !Algorithms::default().allows_sha1());
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
