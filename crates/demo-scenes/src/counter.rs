//! Random numbers from a counter, the same as `tools/demo-checkpoint/counter.py` gives.

/// The increment of `SplitMix64`: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators", 2014.
pub(crate) const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function of `SplitMix64`.
pub(crate) fn mix64(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// FNV-1a: Fowler, Noll and Vo.
fn fnv1a64(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    })
}

/// A stream of numbers that is a function of a seed and a name.
///
/// ```
/// use prefill_demo_scenes::Counter;
///
/// let mut counter = Counter::new(1, "dice");
/// let mut again = Counter::new(1, "dice");
/// let thrown = counter.between(1, 6);
/// assert!((1..=6).contains(&thrown));
/// assert_eq!(again.between(1, 6), thrown);
/// ```
#[derive(Debug, Clone)]
pub struct Counter {
    state: u64,
}

impl Counter {
    /// The stream of `seed` and `name`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        Self {
            state: mix64(mix64(seed.wrapping_add(GAMMA)) ^ fnv1a64(name)),
        }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix64(self.state)
    }

    /// A number in [0, n), by the upper half of the bits: the bias is below n / 2^32.
    pub fn below(&mut self, n: usize) -> usize {
        (((self.bits() >> 32) * n as u64) >> 32) as usize
    }

    /// A number in [low, high].
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as usize) as i64
    }

    /// True in so many of 100 cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `values`.
    ///
    /// # Panics
    /// If there is none.
    pub fn choice<'v, T>(&mut self, values: &'v [T]) -> &'v T {
        &values[self.below(values.len())]
    }

    /// One of the values, by their weights.
    ///
    /// # Panics
    /// If there is none with a weight above 0.
    pub fn weighted<T: Copy>(&mut self, values: &[(T, usize)]) -> T {
        let mut at = self.below(values.iter().map(|(_, weight)| weight).sum());
        for &(value, weight) in values {
            if at < weight {
                return value;
            }
            at -= weight;
        }
        panic!("no weight is above 0")
    }
}
