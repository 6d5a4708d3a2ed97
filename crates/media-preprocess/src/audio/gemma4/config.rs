//! The `feature_extractor` block of a checkpoint.

use serde_json::Value;

use super::{Gemma4AudioLayout, Gemma4AudioProcessor};
use crate::audio::usm::{Parameters, Variant};
use crate::config::Block;
use crate::error::Result;

const TOWER: &str = "Gemma4AudioFeatureExtractor";
const UNIFIED: &str = "Gemma4UnifiedAudioFeatureExtractor";

/// Reads either class's block.
pub(super) fn read(config: &Value) -> Result<Gemma4AudioProcessor> {
    let mut block = Block::new(config, "feature_extractor")?;
    block.class("feature_extractor_type", &[TOWER, UNIFIED])?;
    let class = block.get("feature_extractor_type").and_then(Value::as_str);
    let unified = class == Some(UNIFIED);
    block.common_audio()?;
    let processor = if unified {
        let samples = block
            .size("audio_samples_per_token", 1 << 20)?
            .unwrap_or(640);
        // Not read by the class, but written by it: the width of a row.
        block.exactly("feature_size", samples)?;
        Gemma4AudioProcessor {
            samples_per_token: samples,
            ..Gemma4AudioProcessor::default().with_layout(Gemma4AudioLayout::Unified)
        }
    } else {
        Gemma4AudioProcessor::from_parts(&Parameters::read(&mut block, Variant::Gemma4)?)
    };
    block.finish()?;
    Ok(processor)
}
