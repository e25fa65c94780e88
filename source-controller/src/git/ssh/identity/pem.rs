//! The PEM armor of keys (RFC 7468), and its own encryption headers (RFC 1421), which are older than PKCS#8 and still
//! written by `ssh-keygen -m PEM`.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockModeDecrypt as _, KeyIvInit as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{IdentityError, MAX_BYTES};

/// A decoded key.
pub(super) struct Pem<'a> {
    /// The label, such as `RSA PRIVATE KEY`.
    pub(super) label: &'a str,
    /// The encryption of the `DEK-Info` header.
    pub(super) cipher: Option<Cipher>,
    pub(super) body: Vec<u8>,
}

/// AES in CBC mode with a key derived from the passphrase by MD5.
#[derive(Clone, Debug)]
pub(super) struct Cipher {
    key_length: usize,
    iv: [u8; 16],
}

impl<'a> Pem<'a> {
    /// Decodes the first private key in a text; the surrounding text is ignored.
    pub(super) fn parse(text: &'a str) -> Result<Self, IdentityError> {
        if text.len() > MAX_BYTES {
            return Err(IdentityError::TooLong);
        }
        let mut lines = text.lines().map(str::trim);
        let label = lines.find_map(|line| {
            let label = line.strip_prefix("-----BEGIN ")?.strip_suffix("-----")?;
            label.ends_with("PRIVATE KEY").then_some(label)
        });
        let label = label.ok_or(IdentityError::UnknownFormat)?;
        match label {
            "RSA PRIVATE KEY"
            | "EC PRIVATE KEY"
            | "PRIVATE KEY"
            | "ENCRYPTED PRIVATE KEY"
            | "OPENSSH PRIVATE KEY" => {}
            "DSA PRIVATE KEY" => return Err(IdentityError::Type("DSA".into())),
            _ => return Err(IdentityError::UnknownFormat),
        }
        let (mut cipher, mut base64, mut ended) = (None, String::new(), false);
        for line in lines {
            if line.starts_with("-----END ") {
                ended = true;
                break;
            }
            match line.split_once(':') {
                Some(("DEK-Info", value)) => cipher = Some(Cipher::parse(value.trim())?),
                Some(_) => {}
                None => base64.push_str(line),
            }
        }
        let damaged = |why: &str| IdentityError::Damaged(why.to_owned());
        if !ended {
            return Err(damaged("its END line is missing"));
        }
        let body = STANDARD.decode(base64).map_err(|_| damaged("it is not base64"))?;
        Ok(Self { label, cipher, body })
    }
}

impl Cipher {
    fn parse(text: &str) -> Result<Self, IdentityError> {
        let (name, iv) = text.split_once(',').unwrap_or((text, ""));
        let key_length = match name {
            "AES-128-CBC" => 16,
            "AES-192-CBC" => 24,
            "AES-256-CBC" => 32,
            other => {
                let name: String = other
                    .chars()
                    .filter(|letter| !letter.is_control())
                    .take(32)
                    .collect();
                return Err(IdentityError::Cipher(name));
            }
        };
        let mut bytes = [0; 16];
        hex::decode_to_slice(iv.trim(), &mut bytes)
            .map_err(|_| IdentityError::Damaged("its initialization vector is not hexadecimal".into()))?;
        Ok(Self {
            key_length,
            iv: bytes,
        })
    }

    pub(super) fn decrypt(&self, body: &[u8], passphrase: &[u8]) -> Result<Vec<u8>, IdentityError> {
        let key = self.key(passphrase);
        let mut buffer = body.to_vec();
        macro_rules! with {
            ($cipher:ty) => {
                cbc::Decryptor::<$cipher>::new_from_slices(&key, &self.iv)
                    .map_err(|_| IdentityError::Passphrase)?
                    .decrypt_padded::<Pkcs7>(&mut buffer)
                    .map(<[u8]>::to_vec)
                    .map_err(|_| IdentityError::Passphrase)
            };
        }
        match self.key_length {
            16 => with!(aes::Aes128),
            24 => with!(aes::Aes192),
            _ => with!(aes::Aes256),
        }
    }

    /// Derives the key by OpenSSL's `EVP_BytesToKey` with one round of MD5; the salt is the first half of the vector.
    fn key(&self, passphrase: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        let mut last: Option<[u8; 16]> = None;
        while key.len() < self.key_length {
            let mut hash = md5::Context::new();
            hash.consume(last.as_ref().map_or(&[][..], |last| last));
            hash.consume(passphrase);
            hash.consume(&self.iv[..8]);
            let digest = hash.finalize().0;
            key.extend_from_slice(&digest);
            last = Some(digest);
        }
        key.truncate(self.key_length);
        key
    }
}

/// Encodes a body in PEM armor without headers.
pub(super) fn encode(label: &str, body: &[u8]) -> String {
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        STANDARD.encode(body)
    )
}
