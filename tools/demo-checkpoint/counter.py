"""Random numbers from a counter, the same in Python and in Rust.

The Rust twin is `crates/demo-scenes/src/counter.rs`; the generator is that of
`tests/reference/weights.py`, drawn one number at a time:

    key   = mix64(mix64(seed + GAMMA) ^ fnv1a64(name))
    n-th  = mix64(key + n * GAMMA), n = 1, 2, ..           SplitMix64 with `key` as its state
"""

# SplitMix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014.
GAMMA = 0x9E3779B97F4A7C15
# FNV-1a: Fowler, Noll and Vo.
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
MASK = (1 << 64) - 1


def mix64(x):
    """The output function of SplitMix64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fnv1a64(name):
    h = FNV_OFFSET
    for byte in name.encode():
        h = ((h ^ byte) * FNV_PRIME) & MASK
    return h


class Counter:
    """A stream of numbers that is a function of (seed, name)."""

    def __init__(self, seed, name):
        self.state = mix64(mix64((seed + GAMMA) & MASK) ^ fnv1a64(name))

    def bits(self):
        """64 random bits."""
        self.state = (self.state + GAMMA) & MASK
        return mix64(self.state)

    def below(self, n):
        """A number in [0, n), by the upper half of the bits: the bias is below n / 2^32."""
        return ((self.bits() >> 32) * n) >> 32

    def between(self, low, high):
        """A number in [low, high]."""
        return low + self.below(high - low + 1)

    def chance(self, percent):
        return self.below(100) < percent

    def choice(self, values):
        return values[self.below(len(values))]

    def weighted(self, pairs):
        """One of (value, weight), with integer weights."""
        at = self.below(sum(weight for _, weight in pairs))
        for value, weight in pairs:
            if at < weight:
                return value
            at -= weight
        raise AssertionError("the weights add up to more than their sum")
