//! Processor configurations: every key is either followed, known to change nothing here,
//! or refused.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Keys that change neither pixels nor layout: names of classes, and where transformers
/// puts its tensors.
const INERT: &[&str] = &[
    "_processor_class",
    "data_format",
    "default_to_square",
    "device",
    "disable_grouping",
    "feature_extractor_type",
    "image_seq_length",
    "input_data_format",
    "max_image_size",
    "num_channels",
    "processor_class",
    "return_metadata",
    "return_tensors",
    "transformers_version",
    "video_metadata",
];

/// Steps that no supported family takes: refused unless off.
const OFF: &[&str] = &[
    "do_center_crop",
    "do_pad",
    "crop_size",
    "pad_size",
    "auto_map",
];

/// Reads a family's block out of a checkpoint's folder: the named block of
/// `processor_config.json`, else the flat file.
pub(crate) fn read_folder(folder: &Path, block: &str, flat: &str) -> Result<Value> {
    let combined = folder.join("processor_config.json");
    if let Some(value) = read_json(&combined)?
        && let Some(found) = value.get(block)
    {
        return Ok(found.clone());
    }
    let flat = folder.join(flat);
    read_json(&flat)?.ok_or_else(|| Error::Io {
        path: flat,
        source: io::Error::new(io::ErrorKind::NotFound, "no processor configuration"),
    })
}

/// The JSON of a file, or none if there is no such file.
fn read_json(path: &Path) -> Result<Option<Value>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(Error::Io {
                path: path.to_owned(),
                source,
            });
        }
    };
    match serde_json::from_slice(&text) {
        Ok(value) => Ok(Some(value)),
        Err(source) => Err(Error::Json {
            path: path.to_owned(),
            source,
        }),
    }
}

/// One block of a configuration, read key by key. A `null` counts as absent.
pub(crate) struct Block<'a> {
    map: &'a Map<String, Value>,
    read: Vec<&'static str>,
}

impl<'a> Block<'a> {
    /// The block named `name` inside `value`, or `value` itself if it has none.
    pub(crate) fn new(value: &'a Value, name: &str) -> Result<Self> {
        let inner = value.get(name).unwrap_or(value);
        match inner.as_object() {
            Some(map) => Ok(Self {
                map,
                read: Vec::new(),
            }),
            None => Err(bad_value(name, inner, "an object")),
        }
    }

    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.read.push(key);
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// A whole number from 1 to `u32::MAX`.
    pub(crate) fn positive(&mut self, key: &'static str) -> Result<Option<u32>> {
        self.parse(key, "a whole number from 1 to 4294967295", |value| {
            value
                .as_u64()
                .and_then(|n| u32::try_from(n).ok())
                .filter(|&n| n > 0)
        })
    }

    pub(crate) fn boolean(&mut self, key: &'static str) -> Result<Option<bool>> {
        self.parse(key, "true or false", Value::as_bool)
    }

    pub(crate) fn number(&mut self, key: &'static str) -> Result<Option<f64>> {
        self.parse(key, "a finite number", |value| {
            value.as_f64().filter(|x| x.is_finite())
        })
    }

    /// One number for each of three channels, or one for all.
    pub(crate) fn channels(&mut self, key: &'static str) -> Result<Option<[f64; 3]>> {
        self.parse(key, "a number or three", |value| {
            if let Some(number) = value.as_f64() {
                return Some([number; 3]);
            }
            let numbers: Vec<f64> = value
                .as_array()?
                .iter()
                .map(Value::as_f64)
                .collect::<Option<_>>()?;
            numbers.try_into().ok()
        })
    }

    /// A whole number from 1 to `max`.
    #[cfg(feature = "audio")]
    pub(crate) fn size(&mut self, key: &'static str, max: usize) -> Result<Option<usize>> {
        self.parse(key, &format!("a whole number from 1 to {max}"), |value| {
            let size = usize::try_from(value.as_u64()?).ok()?;
            (1..=max).contains(&size).then_some(size)
        })
    }

    /// A length in milliseconds, as samples at 16 kHz, rounded as Python rounds: half to even.
    #[cfg(feature = "audio")]
    pub(crate) fn milliseconds(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<usize>,
    ) -> Result<Option<usize>> {
        let expected = format!("{} to {} samples at 16 kHz", range.start(), range.end());
        self.parse(key, &expected, |value| {
            let samples = (16_000.0 * value.as_f64()? / 1000.0).round_ties_even();
            let whole = samples as usize;
            (samples.is_finite() && range.contains(&whole)).then_some(whole)
        })
    }

    /// As many numbers as there are bins.
    #[cfg(feature = "audio")]
    pub(crate) fn numbers(&mut self, key: &'static str, count: usize) -> Result<Option<Vec<f64>>> {
        self.parse(key, &format!("{count} finite numbers"), |value| {
            let array = value.as_array().filter(|array| array.len() == count)?;
            array
                .iter()
                .map(|value| value.as_f64().filter(|x| x.is_finite()))
                .collect()
        })
    }

    /// A number that must be what follows from the others, if it is there at all.
    #[cfg(feature = "audio")]
    pub(crate) fn exactly(&mut self, key: &'static str, expected: usize) -> Result<()> {
        self.parse(
            key,
            &format!("{expected}, as follows from the rest"),
            |value| (value.as_u64() == Some(expected as u64)).then_some(()),
        )
        .map(drop)
    }

    /// What the feature extractors of every family share: one rate, zeros on the right, no
    /// noise.
    #[cfg(feature = "audio")]
    pub(crate) fn common_audio(&mut self) -> Result<()> {
        self.parse("sampling_rate", "16000", |value| {
            (value.as_f64() == Some(16_000.0)).then_some(())
        })?;
        self.parse("padding_value", "0", |value| {
            (value.as_f64() == Some(0.0)).then_some(())
        })?;
        self.parse("padding_side", "\"right\"", |value| {
            (value.as_str() == Some("right")).then_some(())
        })?;
        self.parse("dither", "0: noise has no fixed result", |value| {
            (value.as_f64() == Some(0.0)).then_some(())
        })?;
        // The mask is always there.
        self.boolean("return_attention_mask").map(drop)
    }

    /// The class name must be one of the family's, if it is there at all.
    pub(crate) fn class(&mut self, key: &'static str, prefixes: &[&str]) -> Result<()> {
        match self.get(key) {
            None => Ok(()),
            Some(value) => {
                let known = value.as_str().is_some_and(|name| {
                    let base = name.trim_end_matches("Fast").trim_end_matches("Pil");
                    prefixes.contains(&base)
                });
                if known {
                    Ok(())
                } else {
                    Err(bad_value(key, value, &prefixes.join(" or ")))
                }
            }
        }
    }

    fn parse<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match parse(value) {
                Some(parsed) => Ok(Some(parsed)),
                None => Err(bad_value(key, value, expected)),
            },
        }
    }

    /// Refuses what was not read, unless it is known to change nothing.
    pub(crate) fn finish(self) -> Result<()> {
        for (key, value) in self.map {
            let key = key.as_str();
            if self.read.contains(&key) || INERT.contains(&key) || value.is_null() {
                continue;
            }
            if OFF.contains(&key) {
                if value == &Value::Bool(false) {
                    continue;
                }
                return Err(bad_value(
                    key,
                    value,
                    "this step isn't part of the family: false",
                ));
            }
            return Err(Error::ConfigUnknown {
                key: key.to_owned(),
                value: value.to_string(),
            });
        }
        Ok(())
    }
}

/// The error for a value that can't be followed.
pub(crate) fn bad_value(key: &str, value: &Value, expected: &str) -> Error {
    let expected = expected.to_owned();
    Error::ConfigValue {
        key: key.to_owned(),
        value: value.to_string(),
        expected,
    }
}
