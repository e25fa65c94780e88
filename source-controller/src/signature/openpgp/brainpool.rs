//! Verification of ECDSA signatures over the Brainpool curves (RFC 5639). All inputs are public, so constant time is
//! not required.

use std::sync::LazyLock;

use num_bigint::BigUint;
use pgp::crypto::ecc_curve::ECCCurve;

/// A curve y² = x³ + ax + b over the integers modulo `p`, with a generator of prime order `n`.
struct Curve {
    p: BigUint,
    a: BigUint,
    b: BigUint,
    n: BigUint,
    generator: Point,
}

/// A point in Jacobian coordinates: x/z², y/z³; infinity where z is 0.
#[derive(Clone)]
struct Point {
    x: BigUint,
    y: BigUint,
    z: BigUint,
}

/// Verifies a signature `(r, s)` over a digest with an uncompressed point as the public key.
pub(super) fn verify(curve: &ECCCurve, key: &[u8], digest: &[u8], r: &[u8], s: &[u8]) -> bool {
    let curve = match curve {
        ECCCurve::BrainpoolP256r1 => &*P256,
        ECCCurve::BrainpoolP384r1 => &*P384,
        ECCCurve::BrainpoolP512r1 => &*P512,
        _ => return false,
    };
    curve.check(key, digest, r, s).unwrap_or(false)
}

#[expect(clippy::many_single_char_names, reason = "the names that SEC 1 gives them")]
impl Curve {
    /// Parses the hexadecimal parameters: p, a, b, x and y of the generator, n.
    fn new([p, a, b, x, y, n]: [&str; 6]) -> Self {
        let number = |text: &str| BigUint::parse_bytes(text.as_bytes(), 16).unwrap_or_default();
        Self {
            p: number(p),
            a: number(a),
            b: number(b),
            n: number(n),
            generator: Point {
                x: number(x),
                y: number(y),
                z: BigUint::from(1_u8),
            },
        }
    }

    /// Verifies a signature (SEC 1, 4.1.4). Returns `None` if a value is out of range.
    fn check(&self, key: &[u8], digest: &[u8], r: &[u8], s: &[u8]) -> Option<bool> {
        let key = self.point(key)?;
        let in_range = |bytes: &[u8]| {
            let value = BigUint::from_bytes_be(bytes);
            (value.bits() > 0 && value < self.n).then_some(value)
        };
        let (r, s) = (in_range(r)?, in_range(s)?);
        let inverse = s.modinv(&self.n)?;
        let u1 = self.leftmost(digest) * &inverse % &self.n;
        let u2 = &r * &inverse % &self.n;
        let sum = self.combine(&u1, &u2, &key);
        let x = self.affine_x(&sum)?;
        Some(x % &self.n == r)
    }

    /// Parses a point of the form 04 ‖ x ‖ y and checks that it is on the curve. Its order is `n`, since the cofactor
    /// is 1.
    fn point(&self, bytes: &[u8]) -> Option<Point> {
        let size = usize::try_from(self.p.bits().div_ceil(8)).ok()?;
        let coordinates = bytes.strip_prefix(&[4]).filter(|rest| rest.len() == 2 * size)?;
        let (x, y) = coordinates.split_at(size);
        let (x, y) = (BigUint::from_bytes_be(x), BigUint::from_bytes_be(y));
        if x >= self.p || y >= self.p {
            return None;
        }
        let right = (&x * &x * &x + &self.a * &x + &self.b) % &self.p;
        (&y * &y % &self.p == right).then(|| Point {
            x,
            y,
            z: BigUint::from(1_u8),
        })
    }

    /// Returns the leftmost bits of a digest, as many as `n` has.
    fn leftmost(&self, digest: &[u8]) -> BigUint {
        let value = BigUint::from_bytes_be(digest);
        let surplus = (digest.len() as u64 * 8).saturating_sub(self.n.bits());
        value >> surplus
    }

    /// Returns u1·G + u2·Q, computed together.
    fn combine(&self, u1: &BigUint, u2: &BigUint, key: &Point) -> Point {
        let both = self.add(&self.generator, key);
        let mut sum = Point {
            x: BigUint::from(1_u8),
            y: BigUint::from(1_u8),
            z: BigUint::ZERO,
        };
        for bit in (0..u1.bits().max(u2.bits())).rev() {
            sum = self.double(&sum);
            let other = match (u1.bit(bit), u2.bit(bit)) {
                (true, true) => &both,
                (true, false) => &self.generator,
                (false, true) => key,
                (false, false) => continue,
            };
            sum = self.add(&sum, other);
        }
        sum
    }

    fn double(&self, point: &Point) -> Point {
        let p = &self.p;
        let Point { x, y, z } = point;
        let y2 = y * y % p;
        let s = ((x * &y2) << 2_u8) % p;
        let z2 = z * z % p;
        let m = (BigUint::from(3_u8) * x * x + &self.a * (&z2 * &z2 % p)) % p;
        let x3 = self.minus(&(&m * &m), &(&s << 1_u8));
        let y3 = self.minus(&(&m * self.minus(&s, &x3)), &((&y2 * &y2) << 3_u8));
        let z3 = ((y * z) << 1_u8) % p;
        Point { x: x3, y: y3, z: z3 }
    }

    fn add(&self, one: &Point, other: &Point) -> Point {
        let p = &self.p;
        if one.z.bits() == 0 {
            return other.clone();
        }
        if other.z.bits() == 0 {
            return one.clone();
        }
        let (z1, z2) = (&one.z * &one.z % p, &other.z * &other.z % p);
        let (u1, u2) = (&one.x * &z2 % p, &other.x * &z1 % p);
        let (s1, s2) = (&one.y * &z2 * &other.z % p, &other.y * &z1 * &one.z % p);
        let (h, r) = (self.minus(&u2, &u1), self.minus(&s2, &s1));
        if h.bits() == 0 && r.bits() == 0 {
            return self.double(one);
        }
        let h2 = &h * &h % p;
        let h3 = &h * &h2 % p;
        let u1h2 = &u1 * &h2 % p;
        let x = self.minus(&(&r * &r), &(&h3 + (&u1h2 << 1_u8)));
        let y = self.minus(&(&r * self.minus(&u1h2, &x)), &(&s1 * &h3));
        let z = &h * &one.z % p * &other.z % p;
        Point { x, y, z }
    }

    /// Returns the affine x coordinate; `None` for infinity.
    fn affine_x(&self, point: &Point) -> Option<BigUint> {
        let inverse = point.z.modinv(&self.p)?;
        Some(&point.x * (&inverse * &inverse % &self.p) % &self.p)
    }

    /// Returns the difference modulo `p`.
    fn minus(&self, from: &BigUint, what: &BigUint) -> BigUint {
        (from % &self.p + &self.p - what % &self.p) % &self.p
    }
}

/// RFC 5639, 3.4.
static P256: LazyLock<Curve> = LazyLock::new(|| {
    Curve::new([
        "a9fb57dba1eea9bc3e660a909d838d726e3bf623d52620282013481d1f6e5377",
        "7d5a0975fc2c3057eef67530417affe7fb8055c126dc5c6ce94a4b44f330b5d9",
        "26dc5c6ce94a4b44f330b5d9bbd77cbf958416295cf7e1ce6bccdc18ff8c07b6",
        "8bd2aeb9cb7e57cb2c4b482ffc81b7afb9de27e1e3bd23c23a4453bd9ace3262",
        "547ef835c3dac4fd97f8461a14611dc9c27745132ded8e545c1d54c72f046997",
        "a9fb57dba1eea9bc3e660a909d838d718c397aa3b561a6f7901e0e82974856a7",
    ])
});

/// RFC 5639, 3.6.
static P384: LazyLock<Curve> = LazyLock::new(|| {
    Curve::new([
        "8cb91e82a3386d280f5d6f7e50e641df152f7109ed5456b412b1da197fb71123acd3a729901d1a71874700133107ec53",
        "7bc382c63d8c150c3c72080ace05afa0c2bea28e4fb22787139165efba91f90f8aa5814a503ad4eb04a8c7dd22ce2826",
        "04a8c7dd22ce28268b39b55416f0447c2fb77de107dcd2a62e880ea53eeb62d57cb4390295dbc9943ab78696fa504c11",
        "1d1c64f068cf45ffa2a63a81b7c13f6b8847a3e77ef14fe3db7fcafe0cbd10e8e826e03436d646aaef87b2e247d4af1e",
        "8abe1d7520f9c2a45cb1eb8e95cfd55262b70b29feec5864e19c054ff99129280e4646217791811142820341263c5315",
        "8cb91e82a3386d280f5d6f7e50e641df152f7109ed5456b31f166e6cac0425a7cf3ab6af6b7fc3103b883202e9046565",
    ])
});

/// RFC 5639, 3.7.
static P512: LazyLock<Curve> = LazyLock::new(|| {
    Curve::new([
        "aadd9db8dbe9c48b3fd4e6ae33c9fc07cb308db3b3c9d20ed6639cca703308717d4d9b009bc66842aecda12ae6a380e62881ff2f2d82c68528aa6056583a48f3",
        "7830a3318b603b89e2327145ac234cc594cbdd8d3df91610a83441caea9863bc2ded5d5aa8253aa10a2ef1c98b9ac8b57f1117a72bf2c7b9e7c1ac4d77fc94ca",
        "3df91610a83441caea9863bc2ded5d5aa8253aa10a2ef1c98b9ac8b57f1117a72bf2c7b9e7c1ac4d77fc94cadc083e67984050b75ebae5dd2809bd638016f723",
        "81aee4bdd82ed9645a21322e9c4c6a9385ed9f70b5d916c1b43b62eef4d0098eff3b1f78e2d0d48d50d1687b93b97d5f7c6d5047406a5e688b352209bcb9f822",
        "7dde385d566332ecc0eabfa9cf7822fdf209f70024a57b1aa000c55b881f8111b2dcde494a5f485e5bca4bd88a2763aed1ca2b2fa8f0540678cd1e0f3ad80892",
        "aadd9db8dbe9c48b3fd4e6ae33c9fc07cb308db3b3c9d20ed6639cca70330870553e5c414ca92619418661197fac10471db1d381085ddaddb58796829ca90069",
    ])
});

#[cfg(test)]
mod tests {
    use super::*;

    fn curves() -> [(&'static Curve, u64); 3] {
        [(&P256, 256), (&P384, 384), (&P512, 512)]
    }

    #[test]
    fn the_generators_are_on_their_curves_with_the_right_order() {
        for (curve, bits) in curves() {
            assert_eq!((curve.p.bits(), curve.n.bits()), (bits, bits));
            let Point { x, y, .. } = &curve.generator;
            let encoded = [vec![4], x.to_bytes_be(), y.to_bytes_be()].concat();
            assert!(curve.point(&encoded).is_some());
            let zero = BigUint::ZERO;
            let order = curve.combine(&curve.n, &zero, &curve.generator);
            assert_eq!(order.z, zero, "n·G is infinity");
            let before = curve.combine(&(&curve.n - 1_u8), &zero, &curve.generator);
            assert_eq!(curve.affine_x(&before).as_ref(), Some(x), "(n - 1)·G is -G");
            let sum = curve.combine(&BigUint::from(5_u8), &BigUint::from(2_u8), &curve.generator);
            let seven = curve.combine(&BigUint::from(7_u8), &zero, &curve.generator);
            assert_eq!(curve.affine_x(&sum), curve.affine_x(&seven));
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (curve, _) in curves() {
            let Point { x, y, .. } = &curve.generator;
            let good = [vec![4], x.to_bytes_be(), y.to_bytes_be()].concat();
            let digest = [1; 32];
            let check = |key: &[u8], r: &[u8], s: &[u8]| curve.check(key, &digest, r, s);
            let n = curve.n.to_bytes_be();
            assert_eq!(check(&good, &[], &[1]), None);
            assert_eq!(check(&good, &[1], &[0]), None);
            assert_eq!(check(&good, &n, &[1]), None);
            assert_eq!(check(&good, &[1], &n), None);
            assert_eq!(check(&good, &[1], &[1]), Some(false));
            let mut off = good.clone();
            off[20] ^= 1;
            for bad in [&off[..], &good[..10], &[], &[0], &[&good[..], &[0]].concat()] {
                assert_eq!(check(bad, &[1], &[1]), None);
            }
        }
        assert!(!verify(&ECCCurve::P256, &[4], &[1], &[1], &[1]));
    }

    /// Signs with a known private key and nonce, and verifies the result.
    #[test]
    fn a_computed_signature_is_valid_and_any_modification_is_not() {
        for (curve, _) in curves() {
            let (private, nonce) = (
                BigUint::from(0xdead_beef_cafe_u64),
                BigUint::from(0x1234_5678_9abc_u64),
            );
            let zero = BigUint::ZERO;
            let public = curve.combine(&private, &zero, &curve.generator);
            let inverse = public.z.modinv(&curve.p).unwrap();
            let x = curve.affine_x(&public).unwrap();
            let y = &public.y * &inverse * &inverse * &inverse % &curve.p;
            let size = usize::try_from(curve.p.bits() / 8).unwrap();
            let padded = |number: &BigUint| {
                let bytes = number.to_bytes_be();
                [vec![0; size - bytes.len()], bytes].concat()
            };
            let key = [vec![4], padded(&x), padded(&y)].concat();
            for digest in [&[0xa5_u8; 32][..], &[0x5a; 64], &[0xff; 20]] {
                let r = curve
                    .affine_x(&curve.combine(&nonce, &zero, &curve.generator))
                    .unwrap()
                    % &curve.n;
                let s = (curve.leftmost(digest) + &r * &private) * nonce.modinv(&curve.n).unwrap() % &curve.n;
                let check = |digest: &[u8], s: &BigUint| {
                    curve.check(&key, digest, &r.to_bytes_be(), &s.to_bytes_be())
                };
                assert_eq!(check(digest, &s), Some(true));
                assert_eq!(check(digest, &(&s + 1_u8)), Some(false));
                let mut other = digest.to_vec();
                other[3] ^= 1;
                assert_eq!(check(&other, &s), Some(false));
            }
        }
    }
}
