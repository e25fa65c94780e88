//! The armor around keys (RFC 7468), and the encryption that it may announce itself (RFC 1421), which is older than
//! PKCS#8 and still what `ssh-keygen -m PEM` writes.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockModeDecrypt as _, KeyIvInit as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{IdentityError, LONGEST};

/// A key without its armor.
pub(super) struct Pem<'a> {
    /// `RSA PRIVATE KEY`.
    pub(super) label: &'a str,
    /// The encryption that a header announces.
    pub(super) cipher: Option<Cipher>,
    pub(super) body: Vec<u8>,
}

/// AES in CBC mode with a key that is made of the passphrase by MD5.
#[derive(Clone, Debug)]
pub(super) struct Cipher {
    key_length: usize,
    vector: [u8; 16],
}

impl<'a> Pem<'a> {
    /// The first private key in a text; what stands around it is no matter.
    pub(super) fn parse(text: &'a str) -> Result<Self, IdentityError> {
        if text.len() > LONGEST {
            return Err(IdentityError::TooLong);
        }
        let mut lines = text.lines().map(str::trim);
        let label = lines.find_map(|line| {
            let label = line.strip_prefix("-----BEGIN ")?.strip_suffix("-----")?;
            label.ends_with("PRIVATE KEY").then_some(label)
        });
        let label = label.ok_or(IdentityError::Form)?;
        match label {
            "RSA PRIVATE KEY"
            | "EC PRIVATE KEY"
            | "PRIVATE KEY"
            | "ENCRYPTED PRIVATE KEY"
            | "OPENSSH PRIVATE KEY" => {}
            "DSA PRIVATE KEY" => return Err(IdentityError::Type("DSA".into())),
            _ => return Err(IdentityError::Form),
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
        let (name, vector) = text.split_once(',').unwrap_or((text, ""));
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
        hex::decode_to_slice(vector.trim(), &mut bytes)
            .map_err(|_| IdentityError::Damaged("its initialization vector is not hexadecimal".into()))?;
        Ok(Self {
            key_length,
            vector: bytes,
        })
    }

    pub(super) fn decrypt(&self, body: &[u8], passphrase: &[u8]) -> Result<Vec<u8>, IdentityError> {
        let key = self.key(passphrase);
        let mut buffer = body.to_vec();
        macro_rules! with {
            ($cipher:ty) => {
                cbc::Decryptor::<$cipher>::new_from_slices(&key, &self.vector)
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

    /// OpenSSL's `EVP_BytesToKey` with one round of MD5, the salt being the vector's first half.
    fn key(&self, passphrase: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        let mut last: Option<[u8; 16]> = None;
        while key.len() < self.key_length {
            let mut hash = md5::Context::new();
            hash.consume(last.as_ref().map_or(&[][..], |last| last));
            hash.consume(passphrase);
            hash.consume(&self.vector[..8]);
            let digest = hash.finalize().0;
            key.extend_from_slice(&digest);
            last = Some(digest);
        }
        key.truncate(self.key_length);
        key
    }
}

/// Armor in its simplest form.
pub(super) fn plain(label: &str, body: &[u8]) -> String {
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        STANDARD.encode(body)
    )
}
