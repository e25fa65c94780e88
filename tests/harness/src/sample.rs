//! Random numbers that select a sample of faults. Each commit and each day selects another sample. The seed is printed,
//! and `SLUICE_SEED` repeats a sample. Also random content of files.

use std::fmt::Write as _;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::gobuild::workspace;

/// The environment variable with the seed.
const SEED_VARIABLE: &str = "SLUICE_SEED";
/// Seconds per day.
const SECONDS_PER_DAY: u64 = 86_400;

/// A pseudo-random number generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates one from `SLUICE_SEED`, or else from the commit and the day (UTC). Prints the seed with `purpose`.
    #[must_use]
    pub fn from_environment(purpose: &str) -> Self {
        let requested = std::env::var(SEED_VARIABLE)
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = requested.unwrap_or_else(|| seed(&commit(), today()));
        eprintln!("{purpose}: {SEED_VARIABLE}={seed}");
        Self::from_seed(seed)
    }

    /// Creates one from a seed.
    #[must_use]
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns the next number below `end`; 0 if `end` is 0.
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below a usize")]
    pub const fn below(&mut self, end: usize) -> usize {
        let number = self.next_u64();
        if end == 0 {
            0
        } else {
            (number % end as u64) as usize
        }
    }
}

/// Returns lines of at least this many bytes, which differ for each seed and compress badly.
#[must_use]
pub fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed + 1;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let _ = writeln!(text, "{:08x}", state >> 32);
    }
    text
}

/// Returns a seed of 32 bits, short enough to type.
fn seed(commit: &str, day: u64) -> u64 {
    let digest = Sha256::digest(format!("{commit} {day}"));
    let prefix = digest.iter().take(4);
    prefix.fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// Returns the commit that is checked out; empty outside a repository.
fn commit() -> String {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(workspace());
    let output = git.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

/// Days since 1970.
fn today() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() / SECONDS_PER_DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_commit_and_each_day_has_its_own_seed() {
        let seeds = [seed("a", 1), seed("b", 1), seed("a", 2)];
        assert!(seeds[0] != seeds[1] && seeds[0] != seeds[2], "{seeds:?}");
        assert_eq!(seed("a", 1), seeds[0]);
        assert!(seeds.iter().all(|seed| u32::try_from(*seed).is_ok()));
        assert_eq!(commit().len(), 40, "the tests run in a checkout");
    }

    #[test]
    fn a_seed_repeats_its_numbers() {
        let draw = || {
            let mut rng = Rng::from_seed(5);
            [(); 50].map(|()| rng.below(10))
        };
        assert_eq!(draw(), draw());
        for number in 0..10 {
            assert!(draw().contains(&number), "{number}: {:?}", draw());
        }
        assert_eq!(Rng::from_seed(1).below(0), 0);
    }
}
