//! How often hashes were seen, approximately.

/// Rows of counters; an estimate is the least of its counters.
const ROWS: u32 = 4;
const MAX_COUNT: u8 = 15;

/// A count-min sketch with ageing, as in `TinyLFU` (Einziger, Friedman and Manes 2017).
#[derive(Debug)]
pub(crate) struct Sketch {
    rows: [Vec<u8>; ROWS as usize],
    additions: usize,
    /// Counts are halved after so many times as many additions as there are counters in a row.
    period: usize,
}

impl Sketch {
    pub(crate) fn new(period: usize) -> Self {
        Self {
            rows: std::array::from_fn(|_| vec![0; 1024]),
            additions: 0,
            period,
        }
    }

    /// Makes the rows at least `width` wide. A doubled row keeps its estimates: both halves
    /// start as what their common counter was.
    pub(crate) fn grow(&mut self, width: usize) {
        while self.rows[0].len() < width {
            for row in &mut self.rows {
                row.extend_from_within(..);
            }
        }
    }

    pub(crate) fn add(&mut self, hash: u64) {
        let mask = self.rows[0].len() - 1;
        let estimate = self.estimate(hash);
        for (number, row) in (0..).zip(&mut self.rows) {
            let counter = &mut row[place(hash, number) & mask];
            // Conservative update: a larger counter is larger by another hash.
            if *counter == estimate && *counter < MAX_COUNT {
                *counter += 1;
            }
        }
        self.additions += 1;
        if self.additions >= self.period * (mask + 1) {
            self.additions /= 2;
            self.rows
                .iter_mut()
                .flatten()
                .for_each(|counter| *counter /= 2);
        }
    }

    pub(crate) fn estimate(&self, hash: u64) -> u8 {
        let mask = self.rows[0].len() - 1;
        let counters = (0..)
            .zip(&self.rows)
            .map(|(number, row)| row[place(hash, number) & mask]);
        counters.min().unwrap_or(0)
    }
}

/// Another place in each row: the hash mixed with the row's own odd constant.
fn place(hash: u64, row: u32) -> usize {
    let odd = 0x9e37_79b9_7f4a_7c15_u64.rotate_left(row * 8) | 1;
    (hash.wrapping_mul(odd) >> 32) as usize
}
