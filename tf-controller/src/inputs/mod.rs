//! What a stack is made of: the files it reads, its variables and its backend, and one digest over all of it.
//!
//! Pure but for [`closure`], which reads an unpacked artifact. Fetching Secrets and artifacts is `reconcile::resolve`'s.

mod backend;
pub mod closure;
mod refused;
mod variables;

pub use backend::{Place, kubernetes_backend};
pub use refused::refused;
pub use variables::{Pairs, PairsError, Selected, generate, select};

use closure::Closure;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sluice_tf_runner::bundle::Bundle;

/// The digest of everything that a plan of this bundle depends on, keyed so that it tells nothing of the values: the
/// closure and all of the bundle but where the artifact came from and what ran before.
#[must_use]
pub fn digest(key: &[u8], closure: &Closure, bundle: &Bundle) -> String {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    let options = format!("{:?}", bundle.options);
    let outputs = format!("{:?}", bundle.outputs);
    let readable = format!("{:?}", bundle.readable_plan);
    let environment = format!("{:?}", bundle.environment);
    let files = bundle.variable_files.join("\0");
    let parts: [&[u8]; 11] = [
        b"sluice inputs v1",
        &closure.digest,
        bundle.path.as_bytes(),
        bundle.workspace.as_bytes(),
        bundle.backend.as_deref().unwrap_or("\0none").as_bytes(),
        bundle.variables.as_bytes(),
        files.as_bytes(),
        environment.as_bytes(),
        options.as_bytes(),
        outputs.as_bytes(),
        readable.as_bytes(),
    ];
    for part in parts {
        mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        mac.update(part);
    }
    format!("hmac-sha256:{}", hex::encode(mac.finalize().into_bytes()))
}
