//! Verifies SSH signatures (OpenSSH's `PROTOCOL.sshsig`) in Git's namespace against keys in `authorized_keys` format.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ssh_key::encoding::Decode as _;
use ssh_key::{Algorithm, HashAlg, PublicKey, SshSig};

use super::object::SignedObject;
use super::{MAX_KEYS_BYTES, MAX_SIGNATURE_BYTES};

/// The namespace of `git`; signatures for files or logins are not valid for commits.
const NAMESPACE: &str = "git";
const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
const END: &str = "-----END SSH SIGNATURE-----";

/// An error that prevents the verification by any authorized key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SshError {
    /// The signature cannot be parsed.
    #[error("unable to unarmor SSH signature: {0}")]
    Armor(String),
    /// No entry can be parsed.
    #[error("unable to parse authorized keys: unable to parse authorized key: {0}")]
    Keys(String),
    /// No key matches, or the content was changed.
    #[error("unable to verify payload with any of the given authorized keys: no matching key{0}")]
    NoMatch(String),
}

/// Verifies a signature; returns the fingerprint of the signer's key.
pub(super) fn verify<'a>(
    signed: &SignedObject,
    entries: impl Iterator<Item = &'a [u8]>,
) -> Result<String, SshError> {
    let signature = unarmor(&signed.signature).map_err(SshError::Armor)?;
    let (mut unreadable, mut readable) = (None, false);
    let mut refused = String::new();
    for entry in entries {
        let keys = match authorized_keys(entry) {
            Ok(keys) => keys,
            Err(why) => {
                unreadable.get_or_insert(why);
                continue;
            }
        };
        readable = true;
        for key in keys.iter().filter(|key| key.key_data() == signature.public_key()) {
            match check(key, &signature, &signed.payload) {
                Ok(()) => return Ok(key.fingerprint(HashAlg::Sha256).to_string()),
                Err(why) => refused = format!(" (key '{}': {why})", key.fingerprint(HashAlg::Sha256)),
            }
        }
    }
    match unreadable {
        Some(why) if !readable => Err(SshError::Keys(why)),
        _ => Err(SshError::NoMatch(refused)),
    }
}

fn check(key: &PublicKey, signature: &SshSig, payload: &[u8]) -> Result<(), String> {
    if signature.namespace() != NAMESPACE {
        let namespace: String = signature.namespace().chars().take(40).collect();
        return Err(format!(
            "the signature is for the namespace {namespace:?}, not \"git\""
        ));
    }
    if signature.algorithm() == (Algorithm::Rsa { hash: None }) {
        return Err("the signature uses RSA with SHA-1".into());
    }
    key.verify(NAMESPACE, payload, signature)
        .map_err(|_| "the signature does not match the content".into())
}

/// Decodes the armor. Accepts lines of any length, since not every tool wraps like OpenSSH. Ignores what follows the
/// end line.
fn unarmor(signature: &[u8]) -> Result<SshSig, String> {
    if signature.len() > MAX_SIGNATURE_BYTES {
        return Err(format!(
            "the signature is larger than {MAX_SIGNATURE_BYTES} bytes"
        ));
    }
    let text = std::str::from_utf8(signature)
        .map_err(|_| "not UTF-8 text")?
        .trim();
    let (body, _) = text
        .strip_prefix(BEGIN)
        .and_then(|rest| rest.split_once(END))
        .ok_or("missing end line")?;
    let body: String = body.split_ascii_whitespace().collect();
    if body.is_empty() {
        return Err("empty signature".into());
    }
    let bytes = STANDARD.decode(body).map_err(|_| "invalid base64")?;
    let mut reader = bytes.as_slice();
    let signature = SshSig::decode(&mut reader).map_err(|error| error.to_string())?;
    if reader.is_empty() {
        Ok(signature)
    } else {
        Err("trailing data".into())
    }
}

/// Parses a text in `authorized_keys` format. One invalid line makes the whole text invalid.
fn authorized_keys(text: &[u8]) -> Result<Vec<PublicKey>, String> {
    if text.len() > MAX_KEYS_BYTES {
        return Err(format!("the text is larger than {MAX_KEYS_BYTES} bytes"));
    }
    let text = std::str::from_utf8(text).map_err(|_| "the text is not UTF-8")?;
    let mut keys = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // Do not print the line: it may be a misplaced private key.
        let key = authorized_key(line).ok_or_else(|| format!("line {} is not a public key", number + 1))?;
        keys.push(key);
    }
    Ok(keys)
}

/// Parses one line: optional options, type, key and optional comment.
fn authorized_key(line: &str) -> Option<PublicKey> {
    let key = |text: &str| {
        let mut words = text.split_ascii_whitespace();
        PublicKey::from_openssh(&format!("{} {}", words.next()?, words.next()?)).ok()
    };
    key(line).or_else(|| key(after_options(line)?))
}

/// Returns the text after the options of a line, which end at the first blank outside quotes.
fn after_options(line: &str) -> Option<&str> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b' ' | b'\t' if !quoted => return Some(line[at..].trim_start()),
            b'"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = byte == b'\\' && !escaped;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHtQYp3Zp1Ju5dPjEF4ZrRAOBNVk3mmKbnlCuI9Ec4Ri";

    fn count(text: &str) -> Result<usize, String> {
        authorized_keys(text.as_bytes()).map(|keys| keys.len())
    }

    #[test]
    fn comments_blank_lines_and_options_are_allowed() {
        for (text, keys) in [
            (String::new(), 0),
            ("# only a comment\n\n \n".into(), 0),
            (KEY.into(), 1),
            (format!("{KEY} someone@somewhere with a long comment"), 1),
            (format!("  {KEY}\r\n#x\n\n{KEY} again\n"), 2),
            (format!("no-pty,restrict {KEY} comment"), 1),
            (format!("command=\"a b \\\" c\",no-pty {KEY}"), 1),
            (format!("from=\"h\"\t{}", KEY.replace(' ', "\t")), 1),
        ] {
            assert_eq!(count(&text), Ok(keys), "{text}");
        }
    }

    #[test]
    fn an_invalid_line_invalidates_the_whole_text_and_is_not_printed() {
        for bad in [
            "invalid-key-data",
            "ssh-ed25519",
            "ssh-ed25519 AAAA",
            "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIHtQYp3Zp1Ju5dPjEF4ZrRAOBNVk3mmKbnlCuI9Ec4Ri",
            "command=\"open ssh-ed25519 AAAA",
            "-----BEGIN OPENSSH PRIVATE KEY-----",
        ] {
            assert_eq!(
                count(&format!("{KEY}\n\n{bad}\n")),
                Err("line 3 is not a public key".into())
            );
        }
        assert!(count(&" \n".repeat(MAX_KEYS_BYTES)).is_err());
    }

    #[test]
    fn an_invalid_armor_is_refused() {
        for (text, why) in [
            (format!("{BEGIN}\nAAAA"), "missing end line"),
            (format!("{BEGIN}\n\n{END}"), "empty signature"),
            (format!("{BEGIN}\n!!!!!!\n{END}"), "invalid base64"),
            (
                format!("{BEGIN}\n{}\n{END}", "A".repeat(MAX_SIGNATURE_BYTES)),
                "the signature is larger than 131072 bytes",
            ),
        ] {
            assert_eq!(unarmor(text.as_bytes()), Err(why.to_owned()));
        }
        assert!(unarmor(format!("{BEGIN}\nU1NIU0lHAAAAAQAA\n{END}").as_bytes()).is_err());
        assert!(unarmor(b"\xff").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(text in "[ -~\n\t]{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = authorized_keys(text.as_bytes());
            let _ = authorized_keys(&bytes);
            let _ = unarmor(&bytes);
            let armored = format!("{BEGIN}\n{}\n{END}", STANDARD.encode([b"SSHSIG", bytes.as_slice()].concat()));
            let _ = unarmor(armored.as_bytes());
        }
    }
}
