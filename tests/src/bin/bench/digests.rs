//! Measures the digest of an artifact with the algorithms that `--artifact-digest-algo` offers, in the code of the controller and on one thread,
//! as it computes them. Where the CPU has instructions for SHA-256, that code uses them. What the algorithm costs without them is measured with
//! OpenSSL, which can be told not to use them.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sluice_source_controller::archive::{Algorithm, Hasher};
use sluice_tests::BoxError;

use crate::results::{Results, Row, seconds};

/// The pieces of 66 MB, which is the size of the artifact of a large repository.
const PIECES: usize = 1_008;
/// Bytes of a piece.
const PIECE: usize = 65_536;
/// Prints the seconds of the SHA-256 of as many pieces as its argument says. Python computes it by OpenSSL.
const SCRIPT: &str = "
import hashlib, sys, time
piece, count = bytes(65536), int(sys.argv[1])
began = time.perf_counter()
digest = hashlib.new('sha256')
for _ in range(count):
    digest.update(piece)
digest.digest()
print(time.perf_counter() - began)
";
/// Switch off the instructions for SHA-256 in OpenSSL: of x86 (CPUID 7, bit 29 of EBX), and all but NEON of Arm. See `OPENSSL_ia32cap(3)`.
const WITHOUT_SHA: [(&str, &str); 2] = [("OPENSSL_ia32cap", ":~0x20000000"), ("OPENSSL_armcap", "0x1")];

/// Measures `rounds` digests of each algorithm.
pub(crate) fn measure(rounds: usize, results: &mut Results) {
    measure_pieces(rounds.max(1), PIECES, results);
}

fn measure_pieces(rounds: usize, pieces: usize, results: &mut Results) {
    let (mut sha256, mut sha512, mut blake3) = (Vec::new(), Vec::new(), Vec::new());
    let (mut openssl, mut missing) = (Vec::new(), None);
    for _ in 0..rounds {
        sha256.push(time_of(Algorithm::Sha256, pieces));
        sha512.push(time_of(Algorithm::Sha512, pieces));
        blake3.push(time_of(Algorithm::Blake3, pieces));
        match time_without_sha(pieces) {
            Ok(time) => openssl.push(time),
            Err(error) => missing = Some(error.to_string()),
        }
    }
    let without = missing.map_or_else(
        || "SHA-256 of OpenSSL without SHA instructions".to_owned(),
        |error| format!("OpenSSL was not measured: {error}"),
    );
    let megabytes = pieces * PIECE / 1_000_000;
    let row = Row::times(format!("SHA-256 of {megabytes} MB"), &sha256);
    results.add(row.beside(&without, seconds(&openssl)));
    let row = Row::times(format!("SHA-512 of {megabytes} MB"), &sha512);
    results.add(row.beside("SHA-256", seconds(&sha256)));
    let title = format!("BLAKE3 of {megabytes} MB");
    let row = Row::times(&title, &blake3);
    results.add(row.beside("SHA-256", seconds(&sha256)));
    results.add(Row::times(title, &blake3).beside(without, seconds(&openssl)));
}

/// Returns the time of a digest in the code of the controller.
fn time_of(algorithm: Algorithm, pieces: usize) -> Duration {
    let piece = vec![7_u8; PIECE];
    let began = Instant::now();
    let mut hasher = Hasher::new(algorithm);
    for _ in 0..pieces {
        hasher.update(&piece);
    }
    black_box(hasher.finish());
    began.elapsed()
}

/// Returns the time of SHA-256 in OpenSSL without the instructions of the CPU for it.
fn time_without_sha(pieces: usize) -> Result<Duration, BoxError> {
    let done = Command::new("python3")
        .args(["-c", SCRIPT, &pieces.to_string()])
        .envs(WITHOUT_SHA)
        .stdin(Stdio::null())
        .output()?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into());
    }
    let printed = String::from_utf8(done.stdout)?;
    Ok(Duration::try_from_secs_f64(printed.trim().parse()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_measured() {
        let mut results = Results::default();
        measure_pieces(1, 16, &mut results);
        let titles = [
            "SHA-256 of 1 MB",
            "SHA-512 of 1 MB",
            "BLAKE3 of 1 MB",
            "BLAKE3 of 1 MB",
        ];
        assert_eq!(results.titles(), titles);
        assert!(time_without_sha(16).unwrap() > Duration::ZERO);
    }
}
