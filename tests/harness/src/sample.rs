//! Numbers that choose a sample of what can go wrong. Each commit and each day chooses another one, and a sample can be
//! chosen again: the seed is printed, and `SLUICE_SEED` sets it.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::gobuild::workspace;

/// The environment's word for the seed.
const SEED: &str = "SLUICE_SEED";
/// Seconds of a day.
const DAY: u64 = 86_400;

/// Numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// The numbers of `SLUICE_SEED`, or else of this commit and this day (UTC). The seed is printed with `purpose`.
    #[must_use]
    pub fn of_today(purpose: &str) -> Self {
        let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| seed(&commit(), today()));
        eprintln!("{purpose}: {SEED}={seed}");
        Self::of(seed)
    }

    /// The numbers of this seed.
    #[must_use]
    pub const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next number, below `end`; 0 where `end` is 0.
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below a usize")]
    pub const fn below(&mut self, end: usize) -> usize {
        let number = self.next_number();
        if end == 0 {
            0
        } else {
            (number % end as u64) as usize
        }
    }
}

/// Short enough to be typed.
fn seed(commit: &str, day: u64) -> u64 {
    let digest = Sha256::digest(format!("{commit} {day}"));
    let front = digest.iter().take(4);
    front.fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// The commit that is checked out; empty where there is none.
fn commit() -> String {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(workspace());
    let said = git.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).trim().to_owned()
}

/// Days since 1970.
fn today() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() / DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_commit_and_each_day_has_a_seed_of_its_own() {
        let seeds = [seed("a", 1), seed("b", 1), seed("a", 2)];
        assert!(seeds[0] != seeds[1] && seeds[0] != seeds[2], "{seeds:?}");
        assert_eq!(seed("a", 1), seeds[0]);
        assert!(seeds.iter().all(|seed| u32::try_from(*seed).is_ok()));
        assert_eq!(commit().len(), 40, "the tests run in a checkout");
    }

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let draw = || {
            let mut numbers = Numbers::of(5);
            [(); 50].map(|()| numbers.below(10))
        };
        assert_eq!(draw(), draw());
        for wanted in 0..10 {
            assert!(draw().contains(&wanted), "{wanted}: {:?}", draw());
        }
        assert_eq!(Numbers::of(1).below(0), 0);
    }
}
