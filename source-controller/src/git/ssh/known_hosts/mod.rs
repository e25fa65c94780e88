//! A `known_hosts` file (sshd(8), "`SSH_KNOWN_HOSTS` FILE FORMAT"): which keys which hosts may show.
//!
//! A file with a line that cannot be read is refused as a whole: half a list would trust less, or revoke less, than
//! its author thinks. Matching is in [`pattern`], decisions are in [`judge`].

mod judge;
mod pattern;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use russh::keys::key::parse_public_key;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, HashAlg};

pub use judge::Refusal;
use pattern::Hosts;

/// Longest file that is read; a Secret cannot hold more.
const LONGEST: usize = 1 << 20;

/// A file, read.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts {
    lines: Vec<Line>,
}

/// One line that is neither blank nor a comment.
#[derive(Clone, Debug)]
struct Line {
    /// Its number in the file, from 1.
    number: usize,
    marker: Marker,
    hosts: Hosts,
    key: KeyData,
}

/// What a line says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    /// These hosts have it.
    Key,
    /// It signs the certificates of these hosts.
    Authority,
    /// Nobody is to be believed who shows it.
    Revoked,
}

/// A host as a line names it: without brackets, and always with its port.
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
    /// A line that is not of the form.
    #[error("known_hosts: line {line}: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        why: LineError,
    },
    /// Nothing but comments.
    #[error("known_hosts: there is no host key in it")]
    Empty,
    /// More than any Secret holds.
    #[error("known_hosts: longer than {LONGEST} bytes")]
    TooLong,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// `@` and a word that means nothing.
    #[error("the marker is neither @cert-authority nor @revoked")]
    Marker,
    /// Too few words.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// A host that is not of the form.
    #[error("host pattern: {0}")]
    Pattern(&'static str),
    /// The key is no base64.
    #[error("the key is not base64")]
    Base64,
    /// The key is no key.
    #[error("the key cannot be read: {0}")]
    Key(String),
    /// A certificate stands where a key should.
    #[error("a certificate is no host key: use @cert-authority with the key that signed it")]
    Certificate,
}

impl KnownHosts {
    /// Reads a file.
    ///
    /// # Errors
    /// A line is not of the form, the file is empty or too long.
    pub fn parse(text: &str) -> Result<Self, KnownHostsError> {
        if text.len() > LONGEST {
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

/// Reads one line; blank ones and comments are none.
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
    // The type stands in the key as well, and only there it counts.
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

/// Type and fingerprint, as `ssh-keygen -l` shows them.
#[must_use]
pub fn shown(key: &KeyData) -> String {
    format!("{} {}", kind(key), key.fingerprint(HashAlg::Sha256))
}

/// The type of a key, by the name that stands in files.
fn kind(key: &KeyData) -> Algorithm {
    key.algorithm()
}

#[cfg(test)]
mod tests;
