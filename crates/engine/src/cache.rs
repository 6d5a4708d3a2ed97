//! Keys and values of the tokens so far.

mod parts;
mod quantization;
mod rows;
mod state;

use mlx_rs::Array;
use mlx_sys_ext::Quantization;

pub(crate) use self::parts::{Part, Prefix, Reach, copy};
pub use self::quantization::KvQuantization;
pub(crate) use self::rows::{KeysValues, Stored};
pub(crate) use self::state::{Snapshot, State, StateCache};
use crate::Result;

/// Rows that a buffer grows by, as mlx-lm has it.
const STEP: i32 = 256;

/// The cache of a model: one entry a layer that has keys and values of its own, and one a
/// layer whose memory is a state of fixed size.
#[derive(Debug)]
pub(crate) struct Cache {
    layers: Vec<LayerCache>,
    states: Vec<StateCache>,
    /// What is added to a later token's index to get its position: pictures take fewer
    /// positions than tokens where positions have three dimensions.
    rope_delta: i32,
}

impl Cache {
    /// An empty cache. Each layer has a window of that many tokens, or none.
    pub(crate) fn new(windows: impl IntoIterator<Item = Option<i32>>) -> Self {
        let layers = windows
            .into_iter()
            .map(|window| LayerCache {
                window,
                offset: 0,
                rows: None,
                quantization: None,
            })
            .collect();
        Self {
            layers,
            states: Vec::new(),
            rope_delta: 0,
        }
    }

    /// This cache with room for the states of so many layers.
    pub(crate) fn with_states(mut self, count: usize) -> Self {
        self.states.resize_with(count, StateCache::default);
        self
    }

    /// Tokens that have been fed.
    pub(crate) fn offset(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.offset as usize)
    }

    /// Every array that the next call will read.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.layers
            .iter()
            .filter_map(|layer| layer.rows.as_ref())
            .flat_map(|rows| rows.keys.arrays().chain(rows.values.arrays()))
            .chain(self.states.iter().flat_map(StateCache::arrays))
    }

    /// Quantises the rows of layers that are to be, once there are as many tokens as `kv` asks
    /// for.
    pub(crate) fn quantize_when_due(&mut self, kv: &KvQuantization) -> Result<()> {
        if self.offset() < kv.start_position() {
            return Ok(());
        }
        for (index, layer) in self.layers.iter_mut().enumerate() {
            if let (None, Some(quantization)) = (layer.quantization, kv.of_layer(index)?) {
                layer.quantize(quantization)?;
            }
        }
        Ok(())
    }

    /// What is added to a later token's index to get its position.
    pub(crate) fn rope_delta(&self) -> i32 {
        self.rope_delta
    }

    pub(crate) fn set_rope_delta(&mut self, delta: i32) {
        self.rope_delta = delta;
    }

    pub(crate) fn state(&mut self, index: usize) -> &mut StateCache {
        &mut self.states[index]
    }

    pub(crate) fn layer(&mut self, index: usize) -> &mut LayerCache {
        &mut self.layers[index]
    }
}

/// Keys and values of one layer, in the order of their tokens, whatever is cut off.
#[derive(Debug)]
pub(crate) struct LayerCache {
    /// A token sees this many, itself included.
    window: Option<i32>,
    /// Tokens ever fed: the position of the next one.
    offset: i32,
    rows: Option<Rows>,
    /// How the rows are quantised, if they are.
    quantization: Option<Quantization>,
}

/// Buffers of `capacity` rows, of which those at `start..end` are in use.
#[derive(Debug)]
struct Rows {
    keys: Stored,
    values: Stored,
    start: i32,
    end: i32,
}

impl LayerCache {
    /// Rows that a layer's buffers have room for once `tokens` were fed, at most.
    pub(crate) fn capacity(window: Option<i32>, tokens: usize) -> usize {
        let kept = window.map_or(tokens, |window| tokens.min(2 * window as usize));
        kept.next_multiple_of(STEP as usize)
    }

    /// The position of the next token.
    pub(crate) fn offset(&self) -> i32 {
        self.offset
    }

    /// How many keys the next `count` tokens will see together.
    pub(crate) fn keys_after(&self, count: i32) -> i32 {
        self.kept() + count
    }

    /// Appends the rows of new tokens, `[batch, heads, count, D]`, and gives all that these
    /// tokens may see: the new rows and, with a window of W, the last W - 1 before them.
    pub(crate) fn update(&mut self, keys: &Array, values: &Array) -> Result<KeysValues> {
        let count = keys.dim(2);
        let kept = self.kept();
        let keys = Stored::of(keys, self.quantization)?;
        let values = Stored::of(values, self.quantization)?;
        let mut rows = match self.rows.take() {
            Some(rows) if rows.end + count <= rows.keys.count() => rows,
            other => Self::grown(other, kept, count, (&keys, &values))?,
        };
        let from = rows.end;
        rows.keys.write(from, &keys)?;
        rows.values.write(from, &values)?;
        rows.start = from - kept;
        rows.end = from + count;
        let seen = KeysValues {
            keys: rows.keys.slice(rows.start, rows.end)?,
            values: rows.values.slice(rows.start, rows.end)?,
            quantization: self.quantization,
        };
        self.rows = Some(rows);
        self.offset += count;
        Ok(seen)
    }

    /// Quantises the rows so far, and those to come.
    fn quantize(&mut self, quantization: Quantization) -> Result<()> {
        if let Some(rows) = self.rows.take() {
            self.rows = Some(Rows {
                keys: rows.keys.into_form(quantization)?,
                values: rows.values.into_form(quantization)?,
                ..rows
            });
        }
        self.quantization = Some(quantization);
        Ok(())
    }

    /// Whether no row that an earlier token would see is gone.
    fn is_trimmable(&self) -> bool {
        self.window.is_none_or(|window| self.offset < window)
    }

    /// Forgets the rows from `position` on.
    fn trim_to(&mut self, position: i32) {
        if let Some(rows) = &mut self.rows {
            rows.end -= self.offset - position;
        }
        self.offset = position;
    }

    /// Rows before the next token that it may still see.
    fn kept(&self) -> i32 {
        let present = self.rows.as_ref().map_or(0, |rows| rows.end - rows.start);
        self.window
            .map_or(present, |window| present.min(window - 1))
    }

    /// Buffers with the last `kept` rows at their start and room for `count` more.
    fn grown(old: Option<Rows>, kept: i32, count: i32, like: (&Stored, &Stored)) -> Result<Rows> {
        let room = (count + STEP - 1) / STEP * STEP;
        let buffer = |old: Option<(&Stored, i32)>, like: &Stored| -> Result<Stored> {
            let empty = like.zeros(room)?;
            match old {
                Some((rows, end)) if kept > 0 => rows.slice(end - kept, end)?.then(&empty),
                _ => Ok(empty),
            }
        };
        let keys = buffer(old.as_ref().map(|rows| (&rows.keys, rows.end)), like.0)?;
        let values = buffer(old.as_ref().map(|rows| (&rows.values, rows.end)), like.1)?;
        Ok(Rows {
            keys,
            values,
            start: 0,
            end: kept,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One head, one dimension: token `t` has the key `t` and the value `-t`.
    fn tokens(range: std::ops::Range<i32>) -> (Array, Array) {
        let keys: Vec<f32> = range.clone().map(|t| t as f32).collect();
        let values: Vec<f32> = range.map(|t| -(t as f32)).collect();
        let shape = [1, 1, keys.len() as i32, 1];
        (
            Array::from_slice(&keys, &shape),
            Array::from_slice(&values, &shape),
        )
    }

    fn feed(cache: &mut LayerCache, count: i32) -> Vec<f32> {
        let (keys, values) = tokens(cache.offset()..cache.offset() + count);
        let expected = cache.keys_after(count);
        let seen = cache.update(&keys, &values).unwrap();
        assert_eq!(seen.count(), expected);
        let (Stored::Plain(keys), Stored::Plain(values)) = (seen.keys, seen.values) else {
            panic!("nothing is quantised");
        };
        let keys: Vec<f32> = keys.flatten(None, None).unwrap().to_vec_exact().unwrap();
        let values: Vec<f32> = values.flatten(None, None).unwrap().to_vec_exact().unwrap();
        assert!(
            keys.iter()
                .zip(&values)
                .all(|(key, value)| key.to_bits() == (-value).to_bits())
        );
        keys
    }

    fn count_up(range: std::ops::Range<i32>) -> Vec<f32> {
        range.map(|t| t as f32).collect()
    }

    #[test]
    fn a_full_layer_keeps_everything_over_growth() {
        let mut cache = LayerCache {
            window: None,
            offset: 0,
            rows: None,
            quantization: None,
        };
        assert_eq!(feed(&mut cache, 300), count_up(0..300));
        for last in 301..=620 {
            assert_eq!(feed(&mut cache, 1), count_up(0..last));
        }
        assert_eq!(feed(&mut cache, 400), count_up(0..1020));
    }

    #[test]
    fn a_window_sees_its_rows_in_order() {
        let mut cache = LayerCache {
            window: Some(8),
            offset: 0,
            rows: None,
            quantization: None,
        };
        let mut offset = 0;
        // Every token of a chunk sees a whole window: the 7 rows before the chunk stay.
        for count in [1, 1, 20, 1, 1, 5, 300, 1, 1].into_iter().chain([1; 700]) {
            let seen = feed(&mut cache, count);
            assert_eq!(seen, count_up((offset - 7).max(0)..offset + count));
            offset += count;
        }
        assert_eq!(cache.offset(), offset);
    }

    #[test]
    fn a_window_of_one_sees_only_itself() {
        let mut cache = LayerCache {
            window: Some(1),
            offset: 0,
            rows: None,
            quantization: None,
        };
        assert_eq!(feed(&mut cache, 3), count_up(0..3));
        assert_eq!(feed(&mut cache, 1), count_up(3..4));
    }

    /// Rows quantised as they come are those quantised one by one, in order, whatever is cut
    /// off.
    #[test]
    fn quantised_rows_stay_in_order() {
        let quantization = Quantization::affine(32, 8).unwrap();
        let key = mlx_rs::random::key(4).unwrap();
        let all = mlx_rs::random::normal::<f32>(&[1, 2, 700, 32], None, None, &key).unwrap();
        let rows = Stored::of(&all, Some(quantization)).unwrap();
        for window in [None, Some(8)] {
            let mut cache = LayerCache {
                window,
                offset: 0,
                rows: None,
                quantization: None,
            };
            let mut fed = 0;
            for count in [3, 1, 290, 1, 1, 300, 1] {
                if fed == 4 {
                    cache.quantize(quantization).unwrap();
                }
                let Stored::Plain(new) =
                    Stored::Plain(all.clone()).slice(fed, fed + count).unwrap()
                else {
                    panic!("plain");
                };
                let seen = cache.update(&new, &new).unwrap();
                fed += count;
                if fed <= 4 {
                    continue;
                }
                let first = fed - seen.count();
                assert_eq!(
                    first,
                    window.map_or(0, |window| (fed - count - window + 1).max(0))
                );
                let expected = rows.slice(first, fed).unwrap();
                for (found, expected) in seen.values.arrays().zip(expected.arrays()) {
                    assert!(found.eq_values(expected).unwrap());
                }
            }
        }
    }
}
