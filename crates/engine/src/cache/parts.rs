//! Parts of a cache: what it holds of some tokens, taken out to be kept, and put into another.

use mlx_rs::Array;
use mlx_rs::ops::concatenate;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_sys_ext::{Backend, Quantization, Quantized};

use super::{Cache, KvQuantization, LayerCache, Rows, STEP, State, StateCache, Stored};
use crate::{Error, Result};

/// Keys and values of consecutive tokens: for each group of layers that look alike the keys,
/// then the values, each `[layers, heads, tokens, D]`, or the three arrays of a quantised one.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub arrays: Vec<Array>,
    /// Whether the layers that can be quantised are.
    pub is_quantized: bool,
}

/// Which layers' keys and values a part holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Layers that see every token before.
    Full,
    /// Layers that see a window.
    Sliding,
}

/// All that leads a new cache to a position.
#[derive(Debug, Default)]
pub(crate) struct Prefix {
    pub position: usize,
    /// Rows of the full layers, which together begin at 0 and end at the position.
    pub rows: Vec<Part>,
    /// Rows of the sliding layers: the last that the next token sees.
    pub window: Option<Part>,
    /// The states' arrays.
    pub states: Vec<Array>,
}

impl Cache {
    /// Whether any layer sees a window only.
    pub(crate) fn has_windows(&self) -> bool {
        self.layers.iter().any(|layer| layer.window.is_some())
    }

    /// Whether any layer's memory is a state.
    pub(crate) fn has_states(&self) -> bool {
        !self.states.is_empty()
    }

    /// The keys and values of the tokens `from..to`, in arrays of their own, not evaluated
    /// yet.
    ///
    /// # Errors
    /// [`Error::NotRestorable`] if a layer no longer has all of them.
    pub(crate) fn part(
        &self,
        reach: Reach,
        (from, to): (usize, usize),
        kv: Option<&KvQuantization>,
    ) -> Result<Part> {
        let mut arrays = Vec::new();
        for group in self.groups(reach, kv)? {
            let mut keys = Vec::with_capacity(group.layers.len());
            let mut values = Vec::with_capacity(group.layers.len());
            for index in group.layers {
                let (k, v) = self.layers[index].rows_of(from, to)?;
                keys.push(k);
                values.push(v);
            }
            for layers in [keys, values] {
                arrays.extend(stack(&layers)?);
            }
        }
        Ok(Part {
            arrays,
            is_quantized: self.is_quantized(),
        })
    }

    /// The first token from which on the sliding layers must have rows for the one at
    /// `position`.
    pub(crate) fn window_start(&self, position: usize) -> usize {
        let windows = self.layers.iter().filter_map(|layer| layer.window);
        let widest = windows.max().unwrap_or(1) as usize;
        (position + 1).saturating_sub(widest)
    }

    /// The states' arrays, in arrays of their own, not evaluated yet.
    pub(crate) fn state_arrays(&self) -> Result<Vec<Array>> {
        let arrays = self.states.iter().flat_map(StateCache::arrays);
        arrays.map(copy).collect()
    }

    /// Whether rows are kept quantised by now.
    pub(crate) fn is_quantized(&self) -> bool {
        self.layers.iter().any(|layer| layer.quantization.is_some())
    }

    /// Takes over what another cache held after `prefix.position` tokens. This one must be new.
    ///
    /// # Errors
    /// [`Error::CachedPart`] for arrays that do not fit; this cache is then to be thrown away.
    pub(crate) fn resume(&mut self, prefix: &Prefix, kv: Option<&KvQuantization>) -> Result<()> {
        let position = prefix.position;
        let is_due = kv.is_some_and(|kv| position >= kv.start_position());
        self.put(Reach::Full, &prefix.rows, (0, position), is_due, kv)?;
        if self.has_windows() {
            let parts = prefix.window.as_slice();
            let from = self.window_start(position);
            self.put(Reach::Sliding, parts, (from, position), is_due, kv)?;
        }
        if prefix.states.len() != 2 * self.states.len() {
            return Err(misfit(format!(
                "{} arrays for {} states",
                prefix.states.len(),
                self.states.len()
            )));
        }
        for (state, arrays) in self.states.iter_mut().zip(prefix.states.chunks(2)) {
            state.set(State {
                inputs: arrays[0].clone(),
                memory: arrays[1].clone(),
            });
        }
        Ok(())
    }

    fn put(
        &mut self,
        reach: Reach,
        parts: &[Part],
        (from, to): (usize, usize),
        is_due: bool,
        kv: Option<&KvQuantization>,
    ) -> Result<()> {
        let mut taken = vec![0; parts.len()];
        let has_kernels = Backend::current().is_ok_and(|backend| backend != Backend::Cpu);
        for group in self.groups(reach, kv)? {
            let quantization = group.quantization.filter(|_| is_due);
            let [keys, values] = [(); 2].map(|()| -> Result<Vec<Stored>> {
                let mut rows = Vec::with_capacity(parts.len());
                for (part, taken) in parts.iter().zip(&mut taken) {
                    rows.push(part.next(taken, group.quantization, is_due)?);
                }
                // A GPU is quicker with a copy more than with many small ones.
                if rows.len() > 1 && has_kernels {
                    rows = vec![join(&rows)?];
                }
                Ok(rows)
            });
            let (keys, values) = (keys?, values?);
            for (place, &index) in group.layers.iter().enumerate() {
                let layer = &mut self.layers[index];
                layer.offset = to as i32;
                layer.quantization = quantization;
                if to > from {
                    let count = (to - from) as i32;
                    let room = STEP - count % STEP;
                    layer.rows = Some(Rows {
                        keys: buffer(&keys, place as i32, count, room)?,
                        values: buffer(&values, place as i32, count, room)?,
                        start: 0,
                        end: count,
                    });
                }
            }
        }
        Ok(())
    }

    /// Layers whose rows can lie in one array: of equal reach, quantised alike.
    fn groups(&self, reach: Reach, kv: Option<&KvQuantization>) -> Result<Vec<Group>> {
        let mut groups: Vec<Group> = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            if layer.window.is_some() != (reach == Reach::Sliding) {
                continue;
            }
            let quantization = match kv {
                Some(kv) => kv.of_layer(index)?,
                None => None,
            };
            let alike = groups
                .iter_mut()
                .find(|group| group.quantization == quantization);
            match alike {
                Some(group) => group.layers.push(index),
                None => groups.push(Group {
                    layers: vec![index],
                    quantization,
                }),
            }
        }
        Ok(groups)
    }
}

/// Layers whose rows lie in one array.
#[derive(Debug)]
struct Group {
    layers: Vec<usize>,
    quantization: Option<Quantization>,
}

impl Part {
    /// The group's next rows, keys or values, in the form that the cache is to keep.
    fn next(
        &self,
        taken: &mut usize,
        quantization: Option<Quantization>,
        is_due: bool,
    ) -> Result<Stored> {
        let mut array = || {
            let array = self.arrays.get(*taken).cloned();
            *taken += 1;
            let array = array.filter(|array| array.ndim() == 4);
            array.ok_or_else(|| misfit(format!("no rows in array {}", *taken - 1)))
        };
        let stored = match quantization.filter(|_| self.is_quantized) {
            Some(quantization) => Stored::Quantized(Quantized {
                weight: array()?,
                scales: array()?,
                biases: if quantization.has_biases() {
                    Some(array()?)
                } else {
                    None
                },
            }),
            None => Stored::Plain(array()?),
        };
        match quantization.filter(|_| is_due) {
            // As the cache itself did when it had so many tokens.
            Some(quantization) => stored.into_form(quantization),
            None if self.is_quantized && quantization.is_some() => {
                Err(misfit("quantised rows before they are due".to_owned()))
            }
            None => Ok(stored),
        }
    }
}

impl LayerCache {
    /// Rows of the tokens `from..to`.
    fn rows_of(&self, from: usize, to: usize) -> Result<(Stored, Stored)> {
        let tokens = self.offset as usize;
        let missing = Error::NotRestorable {
            position: from,
            tokens,
        };
        let Some(rows) = &self.rows else {
            return Err(missing);
        };
        let index = |position: usize| rows.end - (tokens as i32 - position as i32);
        if to > tokens || from > to || index(from) < rows.start {
            return Err(missing);
        }
        let (start, end) = (index(from), index(to));
        Ok((rows.keys.slice(start, end)?, rows.values.slice(start, end)?))
    }
}

/// The same array of every layer in one, `[layers, heads, tokens, D]`.
fn stack(layers: &[Stored]) -> Result<Vec<Array>> {
    let Some(first) = layers.first() else {
        return Ok(Vec::new());
    };
    (0..first.arrays().count())
        .map(|array| {
            let of_layers: Vec<&Array> = layers
                .iter()
                .filter_map(|layer| layer.arrays().nth(array))
                .collect();
            match of_layers.as_slice() {
                [only] => copy(only),
                all => Ok(concatenate(all, 0)?),
            }
        })
        .collect()
}

/// The same values in memory of their own. What is contiguous already MLX would share, and
/// with it keep all of the buffer that it is a part of.
pub(crate) fn copy(array: &Array) -> Result<Array> {
    let mut shape = array.shape().to_vec();
    if let Some(first) = shape.first_mut() {
        *first = 0;
    }
    let nothing = mlx_rs::ops::zeros_dtype(&shape, array.dtype())?;
    Ok(concatenate(&[array, &nothing], 0)?)
}

/// Consecutive rows in one.
fn join(parts: &[Stored]) -> Result<Stored> {
    zip(parts, |all| Ok(concatenate(&all, 2)?))
}

/// One layer's rows out of stacks of consecutive ones, `count` together, with room for more.
fn buffer(parts: &[Stored], layer: i32, count: i32, room: i32) -> Result<Stored> {
    zip(parts, |all| {
        let mut rows = Vec::with_capacity(all.len() + 1);
        for array in all {
            if layer >= array.dim(0) {
                return Err(misfit(format!("layer {layer} of {}", array.dim(0))));
            }
            rows.push(array.try_index(layer..=layer)?);
        }
        let found: i32 = rows.iter().map(|array| array.dim(2)).sum();
        if found != count {
            return Err(misfit(format!("{found} rows for {count} tokens")));
        }
        let mut shape = rows[0].shape().to_vec();
        shape[2] = room;
        rows.push(mlx_rs::ops::zeros_dtype(&shape, rows[0].dtype())?);
        Ok(concatenate(&rows, 2)?)
    })
}

/// What `make` makes of each array of some rows together with those that go on with it.
fn zip(parts: &[Stored], mut make: impl FnMut(Vec<&Array>) -> Result<Array>) -> Result<Stored> {
    let first = parts.first().ok_or_else(|| misfit("no rows".to_owned()))?;
    let arrays = first.arrays().count();
    if parts.iter().any(|part| part.arrays().count() != arrays) {
        return Err(misfit("plain rows beside quantised ones".to_owned()));
    }
    let mut index = 0;
    first.map(|_| {
        let all = parts.iter().filter_map(|part| part.arrays().nth(index));
        let all = all.collect();
        index += 1;
        make(all)
    })
}

fn misfit(fact: String) -> Error {
    Error::CachedPart { fact }
}

#[cfg(test)]
mod tests {
    use mlx_rs::transforms::eval;

    use super::*;

    /// A slice of a buffer that is contiguous by itself gets memory of its own.
    #[test]
    fn a_copy_shares_no_memory() {
        let buffer = mlx_rs::ops::zeros::<f32>(&[1, 1, 1 << 20, 1]).unwrap();
        eval([&buffer]).unwrap();
        let slice = buffer.try_index((.., .., 4..8, ..)).unwrap();
        let own = copy(&slice).unwrap();
        eval([&own]).unwrap();
        drop((buffer, slice));
        mlx_rs::memory::clear_cache().unwrap();
        let used = mlx_rs::memory::active_memory().unwrap();
        assert!(used < 1 << 16, "{used} bytes");
        assert_eq!(own.shape(), [1, 1, 4, 1]);
    }

    /// A GPU's way to a layer's buffer and a CPU's come to the same.
    #[test]
    fn rows_joined_first_are_the_same_rows() {
        let rows = |seed, count| {
            let key = mlx_rs::random::key(seed).unwrap();
            let shape = [3, 2, count, 4];
            Stored::Plain(mlx_rs::random::normal::<f32>(&shape, None, None, &key).unwrap())
        };
        let parts = [rows(1, 5), rows(2, 1), rows(3, 4)];
        let joined = [join(&parts).unwrap()];
        for layer in 0..3 {
            let [direct, joined] = [&parts[..], &joined[..]].map(|parts| {
                let Stored::Plain(rows) = buffer(parts, layer, 10, 6).unwrap() else {
                    panic!("plain");
                };
                assert_eq!(rows.shape(), [1, 2, 16, 4]);
                rows.to_vec_exact::<f32>().unwrap()
            });
            assert_eq!(direct, joined);
        }
        assert!(buffer(&parts, 3, 10, 6).is_err(), "there is no such layer");
        assert!(
            buffer(&parts, 0, 11, 6).is_err(),
            "there are not so many rows"
        );
    }
}
