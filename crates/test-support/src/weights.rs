//! Weights from a counter: every value is a function of (seed, tensor name, element index).
//!
//! The Python twin, with the same formulas, is `tests/reference/weights.py`. Only integer
//! arithmetic modulo 2^64 and exactly rounded f32 operations are used, so both give the same bits.
//!
//! ```
//! use prefill_test_support::weights;
//!
//! let w = weights::generate(1, "layers.0.weight", 0.0, 0.5);
//! let first: Vec<f32> = w.take(1000).collect();
//! assert!(first.iter().all(|v| (-0.5..0.5).contains(v)));
//! ```

/// The increment of `SplitMix64`: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The values of one tensor in row-major order, without end: `offset + scale * u` with `u`
/// uniform in [-1, 1).
pub fn generate(seed: u64, name: &str, offset: f32, scale: f32) -> impl Iterator<Item = f32> {
    let key = mix64(mix64(seed.wrapping_add(GAMMA)) ^ fnv1a64(name.as_bytes()));
    (1_u64..).map(move |n| {
        let bits = mix64(key.wrapping_add(n.wrapping_mul(GAMMA)));
        // 24 bits, a power of two and a difference of neighbours in [-1, 1): all exact in f32.
        let u = (bits >> 40) as f32 * (1.0 / 8_388_608.0) - 1.0;
        offset + scale * u
    })
}

/// The output function of `SplitMix64`.
fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// FNV-1a (Fowler, Noll and Vo), 64 bits.
fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_match_their_published_vectors() {
        // SplitMix64 from state 0, as published with xoshiro's seeding code.
        assert_eq!(mix64(GAMMA), 0xE220_A839_7B1D_CDAF);
        assert_eq!(mix64(GAMMA.wrapping_mul(2)), 0x6E78_9E6A_A1B9_65F4);
        // FNV-1a of "a" and "foobar", from the authors' test suite.
        assert_eq!(fnv1a64(b"a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(fnv1a64(b"foobar"), 0x8594_4171_F739_67E8);
    }

    #[test]
    fn values_depend_on_seed_name_and_index() {
        let take = |seed, name| {
            generate(seed, name, 0.0, 1.0)
                .take(2)
                .map(f32::to_bits)
                .collect::<Vec<_>>()
        };
        let a = take(1, "a");
        assert_ne!(a[0], a[1]);
        assert_ne!(a, take(2, "a"));
        assert_ne!(a, take(1, "b"));
    }
}
