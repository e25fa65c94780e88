//! A key that also verifies signatures on the Brainpool curves, which rPGP does not implement. Hashing and packet
//! handling remain rPGP's.

use std::io;

use pgp::crypto::hash::HashAlgorithm;
use pgp::crypto::public_key::PublicKeyAlgorithm;
use pgp::errors::Error;
use pgp::ser::Serialize;
use pgp::types::{
    EcdsaPublicParams, Fingerprint, KeyDetails, KeyId, KeyVersion, PublicParams, SignatureBytes, Timestamp,
    VerifyingKey,
};

use super::brainpool;

/// A key with support for the Brainpool curves.
#[derive(Debug)]
pub(super) struct Verifier<'a, K>(pub(super) &'a K);

impl<K: KeyDetails> KeyDetails for Verifier<'_, K> {
    fn version(&self) -> KeyVersion {
        self.0.version()
    }

    fn legacy_key_id(&self) -> KeyId {
        self.0.legacy_key_id()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint()
    }

    fn algorithm(&self) -> PublicKeyAlgorithm {
        self.0.algorithm()
    }

    fn created_at(&self) -> Timestamp {
        self.0.created_at()
    }

    fn legacy_v3_expiration_days(&self) -> Option<u16> {
        self.0.legacy_v3_expiration_days()
    }

    fn public_params(&self) -> &PublicParams {
        self.0.public_params()
    }
}

impl<K: VerifyingKey> VerifyingKey for Verifier<'_, K> {
    fn verify(&self, hash: HashAlgorithm, digest: &[u8], signature: &SignatureBytes) -> Result<(), Error> {
        let PublicParams::ECDSA(EcdsaPublicParams::Unsupported { curve, opaque }) = self.public_params()
        else {
            return self.0.verify(hash, digest, signature);
        };
        let SignatureBytes::Mpis(numbers) = signature else {
            return Err("not an ECDSA signature".to_owned().into());
        };
        let [r, s] = numbers.as_slice() else {
            return Err("an ECDSA signature has two numbers".to_owned().into());
        };
        // The first two bytes contain the bit length of the point.
        let point = opaque.get(2..).unwrap_or_default();
        if brainpool::verify(curve, point, digest, r.as_ref(), s.as_ref()) {
            Ok(())
        } else {
            Err("invalid ECDSA signature".to_owned().into())
        }
    }
}

impl<K: Serialize> Serialize for Verifier<'_, K> {
    fn to_writer<W: io::Write>(&self, writer: &mut W) -> Result<(), Error> {
        self.0.to_writer(writer)
    }

    fn write_len(&self) -> usize {
        self.0.write_len()
    }
}
