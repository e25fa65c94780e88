//! A `known_hosts` file (sshd(8), "`SSH_KNOWN_HOSTS` FILE FORMAT"): the keys of each host.
//!
//! A file with an invalid line is refused as a whole: ignoring the line could drop a key or a revocation unnoticed.
//! Matching is in [`pattern`], verification in [`verify`].

mod pattern;
mod verify;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pattern::Hosts;
use russh::keys::HashAlg;
use russh::keys::key::parse_public_key;
use russh::keys::ssh_key::public::KeyData;
pub use verify::HostKeyError;

/// Maximum length of the file; a Secret cannot be larger.
const MAX_BYTES: usize = 1 << 20;

/// A parsed file.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts {
    lines: Vec<Line>,
}

/// One line that is neither blank nor a comment.
#[derive(Clone, Debug)]
struct Line {
    /// Its number in the file, starting at 1.
    number: usize,
    marker: Marker,
    hosts: Hosts,
    key: KeyData,
}

/// Meaning of a line's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    /// A key of these hosts.
    Key,
    /// The authority that signs the certificates of these hosts.
    Authority,
    /// A revoked key.
    Revoked,
}

/// Host and port of a server, without brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server<'a> {
    /// Name or address.
    pub host: &'a str,
    /// Port.
    pub port: u16,
}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnownHostsError {
    /// An invalid line.
    #[error("known_hosts: line {line}: {why}")]
    Line {
        /// Its number, starting at 1.
        line: usize,
        /// The reason.
        why: LineError,
    },
    /// No keys.
    #[error("known_hosts: it contains no host key")]
    Empty,
    /// Longer than the maximum.
    #[error("known_hosts: longer than {MAX_BYTES} bytes")]
    TooLong,
}

/// Why a line is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// An unknown marker.
    #[error("the marker is neither @cert-authority nor @revoked")]
    Marker,
    /// A missing field.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// An invalid host pattern.
    #[error("host pattern: {0}")]
    Pattern(&'static str),
    /// The key is not base64.
    #[error("the key is not base64")]
    Base64,
    /// The key is invalid.
    #[error("the key cannot be read: {0}")]
    Key(String),
    /// A certificate in place of a key.
    #[error("a certificate is not a host key: use @cert-authority with the key that signed it")]
    Certificate,
}

impl KnownHosts {
    /// Parses a file.
    ///
    /// # Errors
    /// A line is invalid, or the file is empty or too long.
    pub fn parse(text: &str) -> Result<Self, KnownHostsError> {
        if text.len() > MAX_BYTES {
            return Err(KnownHostsError::TooLong);
        }
        let mut lines = Vec::new();
        for (before, text) in text.lines().enumerate() {
            let number = before + 1;
            let line = line(number, text).map_err(|why| KnownHostsError::Line { line: number, why })?;
            lines.extend(line);
        }
        if lines.is_empty() {
            return Err(KnownHostsError::Empty);
        }
        Ok(Self { lines })
    }
}

/// Parses one line; `None` for a blank line or a comment.
fn line(number: usize, text: &str) -> Result<Option<Line>, LineError> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    let mut words = text.split_ascii_whitespace().peekable();
    let marker = match words.peek().copied() {
        Some("@cert-authority") => Marker::Authority,
        Some("@revoked") => Marker::Revoked,
        Some(other) if other.starts_with('@') => return Err(LineError::Marker),
        _ => Marker::Key,
    };
    if marker != Marker::Key {
        words.next();
    }
    let hosts = words.next().ok_or(LineError::Missing("host"))?;
    // The type is part of the key as well, and only that one counts.
    words.next().ok_or(LineError::Missing("key type"))?;
    let key = words.next().ok_or(LineError::Missing("key"))?;
    Ok(Some(Line {
        number,
        marker,
        hosts: Hosts::parse(hosts)?,
        key: self::key(key)?,
    }))
}

fn key(text: &str) -> Result<KeyData, LineError> {
    let blob = STANDARD.decode(text).map_err(|_| LineError::Base64)?;
    let key = parse_public_key(&blob).map_err(|error| LineError::Key(error.to_string()))?;
    match key.key_data() {
        KeyData::Certificate(_) => Err(LineError::Certificate),
        KeyData::Other(_) => Err(LineError::Key(format!("unknown type '{}'", key.algorithm()))),
        data => Ok(data.clone()),
    }
}

/// Returns type and fingerprint in the format of `ssh-keygen -l`.
#[must_use]
pub(crate) fn describe_key(key: &KeyData) -> String {
    format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256))
}

#[cfg(test)]
mod tests;
