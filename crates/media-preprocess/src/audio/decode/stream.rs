//! A file decoded block by block.

use std::io::{self, Cursor};
use std::time::Instant;

use symphonia::core::audio::GenericAudioBufferRef;
use symphonia::core::codecs::audio::AudioDecoder;
use symphonia::core::errors::Error as Fault;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;

use super::average::average;
use super::faults::{failed, guarded, unreadable};
use super::source::{ReadSeek, Source};
use super::track::{make_decoder, trim_of};
use super::trim::Trim;
use super::{DecodeOptions, Format, Progress, caf, mkv, mp4, ogg, wav};
use crate::audio::limits::{check_channels, check_rate};
use crate::audio::resample::Stream as Resampling;
use crate::audio::usm::first_non_finite;
use crate::error::{Error, Result};

/// Packets in a row that may fail before the file is given up.
const MAX_DAMAGED: u64 = 64;

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceInfo {
    /// The container.
    pub format: Format,
    /// The codec, by symphonia's short name: `pcm_s16le`, `flac`, `aac`.
    pub codec: String,
    /// Samples a second.
    pub sample_rate: u32,
    /// Channels, before they were averaged.
    pub channels: usize,
    /// Sample frames decoded, after trimming.
    pub frames: u64,
}

/// A file decoded block by block, in bounded memory: averaged over its channels, at the
/// rate of the options.
///
/// ```
/// use prefill_media_preprocess::audio::{AudioStream, DecodeOptions};
///
/// # let bytes = include_bytes!("../../../tests/goldens/audio/speech44k1.mp3");
/// let mut stream = AudioStream::from_bytes(bytes, &DecodeOptions::default())?;
/// let (mut block, mut samples) = (Vec::new(), 0);
/// while stream.next_block(&mut block)? {
///     samples += block.len();
/// }
/// assert_eq!(samples, 24_000);
/// # Ok::<(), prefill_media_preprocess::Error>(())
/// ```
pub struct AudioStream<'a> {
    reader: Box<dyn FormatReader + 'a>,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    info: SourceInfo,
    options: DecodeOptions,
    resampling: Option<Resampling>,
    trim: Trim,
    /// What the container says that the track has, after trimming.
    total: Option<u64>,
    deadline: Option<Instant>,
    damaged: u64,
    damaged_in_a_row: u64,
    truncated: bool,
    ended: bool,
    planes: Vec<Vec<f32>>,
    mono: Vec<f32>,
}

impl std::fmt::Debug for AudioStream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AudioStream")
            .field("info", &self.info)
            .field("options", &self.options)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

impl<'a> AudioStream<'a> {
    /// A stream over the bytes of a file.
    ///
    /// # Errors
    /// Those of [`decode`](super::decode) that a file's beginning can give.
    pub fn from_bytes(bytes: &'a [u8], options: &DecodeOptions) -> Result<Self> {
        Self::new(Cursor::new(bytes), options)
    }

    /// A stream over a file, or whatever else can be read and sought.
    ///
    /// # Errors
    /// Those of [`decode`](super::decode) that a file's beginning can give.
    pub fn new(source: impl ReadSeek + 'a, options: &DecodeOptions) -> Result<Self> {
        let started = Instant::now();
        check_rate(options.sample_rate)?;
        let mut source = Source::new(Box::new(source)).map_err(unreadable)?;
        let head = source.peek(0, 12).map_err(unreadable)?;
        let Some(format) = Format::detect(&head) else {
            return Err(Error::UnknownAudioFormat { head });
        };
        guarded(format, || Self::open(source, format, options, started))?
    }

    fn open(
        mut source: Source<'a>,
        format: Format,
        options: &DecodeOptions,
        started: Instant,
    ) -> Result<Self> {
        let mut truncated = false;
        let mut edits = Vec::new();
        let mut padding = mkv::Padding::default();
        match format {
            Format::Wav => truncated = wav::mend(&mut source).map_err(unreadable)?,
            Format::Caf => caf::mend(&mut source).map_err(unreadable)?,
            Format::Ogg => truncated = !ogg::is_complete(&mut source).map_err(unreadable)?,
            Format::Matroska => padding = mkv::padding(&mut source).map_err(unreadable)?,
            Format::Mp4 => edits = mp4::edits(&mut source).map_err(unreadable)?,
            _ => {}
        }
        let input = MediaSourceStream::new(Box::new(source), MediaSourceStreamOptions::default());
        let reader = symphonia::default::get_probe()
            .probe(
                &Hint::new(),
                input,
                FormatOptions::default(),
                MetadataOptions::default(),
            )
            .map_err(|fault| failed(format, &fault))?;
        let format = Format::from_reader(reader.format_info().short_name).unwrap_or(format);
        let track = reader
            .default_track(TrackType::Audio)
            .ok_or(Error::NoAudioTrack {
                format,
                tracks: reader.tracks().len(),
            })?;
        let decoder = make_decoder(format, track)?;
        let parameters = decoder.codec_params();
        let rate = parameters.sample_rate.unwrap_or(0);
        let info = SourceInfo {
            format,
            codec: decoder.codec_info().short_name.to_owned(),
            sample_rate: rate,
            channels: parameters
                .channels
                .as_ref()
                .map_or(0, symphonia::core::audio::Channels::count),
            frames: 0,
        };
        let (trim, total) = trim_of(format, track, &info, &edits, &padding);
        tracing::debug!(%format, codec = info.codec, rate, channels = info.channels, total, "audio");
        Ok(Self {
            track: track.id,
            decoder,
            info,
            options: *options,
            resampling: None,
            trim,
            total,
            deadline: started.checked_add(options.limits.max_time),
            damaged: 0,
            damaged_in_a_row: 0,
            truncated,
            ended: false,
            planes: Vec::new(),
            mono: Vec::new(),
            reader,
        })
    }

    /// What the file is; `frames` counts on as it is decoded.
    #[must_use]
    pub fn info(&self) -> &SourceInfo {
        &self.info
    }

    pub(super) fn options(&self) -> &DecodeOptions {
        &self.options
    }

    pub(super) fn into_info(self) -> SourceInfo {
        self.info
    }

    /// How far decoding has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            frames: self.info.frames,
            total: self.total,
        }
    }

    /// Whether the file ended before it should have.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Packets that could not be decoded and were left out.
    #[must_use]
    pub fn damaged_packets(&self) -> u64 {
        self.damaged
    }

    /// Replaces `block` by the next samples, perhaps none; false after the last.
    ///
    /// # Errors
    /// Those of [`decode`](super::decode).
    pub fn next_block(&mut self, block: &mut Vec<f32>) -> Result<bool> {
        block.clear();
        if self.ended {
            return Ok(false);
        }
        if self
            .deadline
            .is_some_and(|deadline| Instant::now() > deadline)
        {
            return Err(Error::TimeLimit {
                limit: self.options.limits.max_time,
            });
        }
        let format = self.info.format;
        guarded(format, || self.step(block))?
    }

    /// Decodes one packet.
    fn step(&mut self, block: &mut Vec<f32>) -> Result<bool> {
        let format = self.info.format;
        if self.trim.is_done() {
            return self.end(block);
        }
        let packet = match self.reader.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => return self.end(block),
            Err(Fault::IoError(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.truncated = true;
                return self.end(block);
            }
            Err(Fault::IoError(error)) => return Err(unreadable(error)),
            Err(Fault::ResetRequired) => {
                self.restart()?;
                return Ok(true);
            }
            // What came before it stays: it is as if the file ended here.
            Err(_) if self.info.frames > 0 => {
                self.truncated = true;
                return self.end(block);
            }
            Err(fault) => return Err(failed(format, &fault)),
        };
        if packet.track_id != self.track {
            return Ok(true);
        }
        let result = self
            .decoder
            .decode(&packet)
            .map(|buffer| take(&buffer, &mut self.planes));
        match result {
            Ok((rate, channels)) => {
                self.damaged_in_a_row = 0;
                if self.planes.first().is_some_and(|plane| !plane.is_empty()) {
                    self.accept(rate, channels, block)?;
                }
            }
            Err(Fault::ResetRequired) => self.restart()?,
            Err(Fault::DecodeError(_) | Fault::IoError(_))
                if self.damaged_in_a_row < MAX_DAMAGED =>
            {
                self.damaged += 1;
                self.damaged_in_a_row += 1;
            }
            Err(fault) => return Err(failed(format, &fault)),
        }
        Ok(true)
    }

    /// Averages, trims and resamples what a packet held.
    fn accept(&mut self, rate: u32, channels: usize, block: &mut Vec<f32>) -> Result<()> {
        check_rate(rate)?;
        check_channels(channels)?;
        let start = block.len();
        if self.resampling.is_none() || rate != self.info.sample_rate {
            if let Some(mut before) = self.resampling.take() {
                before.finish(block)?;
            }
            let DecodeOptions {
                resampler,
                sample_rate,
                ..
            } = self.options;
            self.resampling = Some(Resampling::new(resampler, rate, sample_rate)?);
        }
        self.info.sample_rate = rate;
        self.info.channels = channels;
        let range = self.trim.range(self.planes[0].len());
        average(&self.planes, range, &mut self.mono);
        self.trim.hold(&mut self.mono);
        if let Some(at) = first_non_finite(&self.mono) {
            return Err(Error::NonFiniteSample {
                frame: self.info.frames + at as u64,
                value: self.mono[at],
            });
        }
        self.info.frames += self.mono.len() as u64;
        if let Some(resampling) = &mut self.resampling {
            resampling.push(&self.mono, block)?;
        }
        check_resampled(&block[start..])
    }

    /// The last block.
    fn end(&mut self, block: &mut Vec<f32>) -> Result<bool> {
        self.ended = true;
        if self.info.frames == 0 {
            if self.damaged > 0 {
                return Err(Error::MalformedAudio {
                    format: self.info.format,
                    message: format!("none of its {} packets could be decoded", self.damaged),
                });
            }
            // No packet has told the rate and the channels; the header must have.
            check_rate(self.info.sample_rate)?;
            check_channels(self.info.channels)?;
        }
        if self.total.is_some_and(|total| self.info.frames < total) {
            self.truncated = true;
        }
        if let Some(mut resampling) = self.resampling.take() {
            let start = block.len();
            resampling.finish(block)?;
            check_resampled(&block[start..])?;
        }
        Ok(true)
    }

    /// Goes on with the next of several streams in a chain.
    fn restart(&mut self) -> Result<()> {
        let format = self.info.format;
        let track = self
            .reader
            .default_track(TrackType::Audio)
            .ok_or(Error::NoAudioTrack {
                format,
                tracks: self.reader.tracks().len(),
            })?;
        self.decoder = make_decoder(format, track)?;
        self.track = track.id;
        // What was stated was of the first alone.
        self.total = None;
        Ok(())
    }
}

/// Refuses what overflowed in a resampler's sums.
fn check_resampled(samples: &[f32]) -> Result<()> {
    if first_non_finite(samples).is_none() {
        return Ok(());
    }
    Err(Error::Resampler {
        message: "samples near the largest f32 overflow in the filter".to_owned(),
    })
}

/// Copies a packet's samples out; its rate and channels.
fn take(buffer: &GenericAudioBufferRef<'_>, planes: &mut Vec<Vec<f32>>) -> (u32, usize) {
    buffer.copy_to_vecs_planar(planes);
    (buffer.spec().rate(), buffer.num_planes())
}
