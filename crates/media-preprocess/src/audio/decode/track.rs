//! What of a track is to be played, and by which decoder.

use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as Fault;
use symphonia::core::formats::Track;

use super::codecs::codecs;
use super::faults::failed;
use super::trim::Trim;
use super::{Format, SourceInfo, mkv, mp4};
use crate::error::{Error, Result};

/// What is left out of a track, and how many frames it then has, where the file says so.
pub(super) fn trim_of(
    format: Format,
    track: &Track,
    info: &SourceInfo,
    edits: &[mp4::Edit],
    padding: &mkv::Padding,
) -> (Trim, Option<u64>) {
    let rate = info.sample_rate;
    let edit = edits.iter().find(|edit| edit.track == track.id);
    let (skip, remaining) = edit.map_or((0, None), |edit| edit.frames(rate));
    let states_length = match format {
        // MPEG audio states its length beside the encoder's delay, if at all.
        Format::Mpeg => track.delay.is_some(),
        format => format.states_length(),
    };
    let stated = track.num_frames.filter(|_| states_length);
    let stated = stated.map(|frames| frames.saturating_sub(skip));
    let total = match (stated, remaining) {
        // The edit's length is in units that may be coarser than a sample.
        (Some(stated), Some(remaining)) => Some(stated.min(remaining)),
        (stated, remaining) => stated.or(remaining),
    };
    let tail = padding.frames(track.id, rate);
    (Trim::new(skip, remaining, tail), total)
}

/// A decoder for a track.
pub(super) fn make_decoder(format: Format, track: &Track) -> Result<Box<dyn AudioDecoder>> {
    let parameters = track
        .codec_params
        .as_ref()
        .and_then(|parameters| parameters.audio())
        .ok_or(Error::NoAudioTrack { format, tracks: 1 })?;
    let mut parameters = parameters.clone();
    if format == Format::Mp4 && parameters.codec == CODEC_ID_OPUS {
        // The adapter takes the encoder's delay from here in the wrong byte order; the edit list
        // has it too.
        parameters.extra_data = None;
    }
    codecs()
        .make_audio_decoder(&parameters, &AudioDecoderOptions::default())
        .map_err(|fault| match fault {
            Fault::Unsupported(what) => Error::UnsupportedAudio {
                format,
                what: format!("codec {}: {what}", parameters.codec),
            },
            fault => failed(format, &fault),
        })
}
