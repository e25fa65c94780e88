//! Randomness as a dependency, so that tests can reproduce jitter and ids by a seed.

use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use uuid::{Builder, Uuid};

use crate::sync::lock;

/// A source of random numbers.
pub trait Random: Send + Sync {
    /// Returns a uniformly distributed number in `0.0 ..= 1.0`.
    fn unit(&self) -> f64;

    /// Returns 64 random bits.
    fn bits(&self) -> u64;
}

/// A thread-safe generator; cryptographically secure if created by [`Generator::from_system`].
#[derive(Debug)]
pub struct Generator(Mutex<StdRng>);

impl Generator {
    /// Creates a generator seeded by the operating system.
    #[must_use]
    pub fn from_system() -> Self {
        Self(Mutex::new(StdRng::from_os_rng()))
    }

    /// Creates a deterministic generator from a seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Random for Generator {
    fn unit(&self) -> f64 {
        lock(&self.0).random_range(0.0..=1.0)
    }

    fn bits(&self) -> u64 {
        lock(&self.0).random()
    }
}

/// Returns a random UUID (version 4), e.g. for the `reconcileID` of log lines.
#[must_use]
pub fn uuid(random: &dyn Random) -> Uuid {
    let (high, low) = (random.bits(), random.bits());
    let bits = (u128::from(high) << 64) | u128::from(low);
    Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers() {
        let (a, b) = (Generator::seeded(7), Generator::seeded(7));
        for _ in 0..100 {
            let drawn = a.unit();
            assert!((0.0..=1.0).contains(&drawn));
            assert_eq!(drawn.to_bits(), b.unit().to_bits());
        }
        assert_ne!(Generator::seeded(7).bits(), Generator::seeded(8).bits());
    }

    #[test]
    fn a_uuid_has_version_and_variant() {
        let (random, equal) = (Generator::seeded(1), Generator::seeded(1));
        for _ in 0..50 {
            let (high, low) = (equal.bits(), equal.bits());
            let high = (high & 0xffff_ffff_ffff_0fff) | 0x4000;
            let low = (low & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
            let digits = format!("{high:016x}{low:016x}");
            let groups = [
                &digits[..8],
                &digits[8..12],
                &digits[12..16],
                &digits[16..20],
                &digits[20..],
            ];
            assert_eq!(uuid(&random).to_string(), groups.join("-"));
        }
    }
}
