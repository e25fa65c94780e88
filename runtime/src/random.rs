//! Randomness, injected: jitter and ids are drawn here, so that a test can repeat a run by its seed.

use std::sync::Mutex;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::clock::lock;

/// A source of random numbers.
pub trait Random: Send + Sync {
    /// A number of `0.0 ..= 1.0`, evenly spread.
    fn unit(&self) -> f64;

    /// 64 random bits.
    fn bits(&self) -> u64;
}

/// A generator behind a lock; cryptographically strong when made by [`Generator::from_system`].
#[derive(Debug)]
pub struct Generator(Mutex<StdRng>);

impl Generator {
    /// Seeded by the operating system.
    #[must_use]
    pub fn from_system() -> Self {
        Self(Mutex::new(StdRng::from_os_rng()))
    }

    /// Seeded by a number: the same seed gives the same draws.
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

/// A random UUID (version 4) in its usual text form, for the `reconcileID` of a pass.
#[must_use]
pub fn uuid(random: &dyn Random) -> String {
    let (high, low) = (random.bits(), random.bits());
    let high = (high & 0xffff_ffff_ffff_0fff) | 0x4000;
    let low = (low & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_draws() {
        let (a, b) = (Generator::seeded(7), Generator::seeded(7));
        for _ in 0..100 {
            let drawn = a.unit();
            assert!((0.0..=1.0).contains(&drawn));
            assert_eq!(drawn.to_bits(), b.unit().to_bits());
        }
        assert_ne!(Generator::seeded(7).bits(), Generator::seeded(8).bits());
    }

    #[test]
    fn a_uuid_has_version_and_variant_in_place() {
        let random = Generator::seeded(1);
        for _ in 0..50 {
            let id = uuid(&random);
            assert_eq!(id.len(), 36);
            assert_eq!(&id[14..15], "4");
            assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"), "{id}");
        }
    }
}
